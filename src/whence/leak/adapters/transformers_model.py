"""Models of the transformers library: encoders, causal models and Mamba, from packages or from a directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from whence.errors import UserError
from whence.leak.adapters.mean_token import with_mean_token
from whence.leak.subject import Subject
from whence.models.pretrained import between_ends, default_text, ends_of, longest, pretrained
from whence.models.taps import blocks
from whence.runs.streams import ambient_kept

ROWS, LENGTH = 24, 64


def load(name: str, text: str | None = None, rows: int = ROWS, length: int = LENGTH) -> Subject:
    """`minilm`, `smollm2`, or a directory."""
    model, tokenizer = pretrained(name, also="or FILE.py:FUNCTION")

    def twin() -> nn.Module:
        with ambient_kept():
            torch.manual_seed(0)
            return type(model)(model.config).float()

    most = longest(model) or length
    ids, ends = _rows_of(tokenizer, default_text() if text is None else text, rows, min(length, most))
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


def _rows_of(tokenizer: Any, text: str, rows: int, length: int) -> tuple[Tensor, tuple[int, int]]:
    """Rows of running text, with the special tokens that the model is used to at their ends."""
    ends = ends_of(tokenizer)
    inner = length - len(ends[0]) - len(ends[1])
    ids = tokenizer(text[: 8 * rows * length], add_special_tokens=False)["input_ids"]
    count = min(rows, len(ids) // inner)
    if count < 5:
        raise UserError(f"text: {len(ids)} tokens make {count} rows of {inner}. Allowed: 5 rows or more.", field="text")
    body = torch.tensor(ids[: count * inner]).view(count, inner)
    return between_ends(body, ends), (len(ends[0]), len(ends[1]))
