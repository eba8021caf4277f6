"""Models of the transformers library: encoders, causal models and Mamba, from packages or from a directory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whence.errors import UserError
from whence.leak.audit.checks import check_token_ids
from whence.leak.audit.target import AuditTarget
from whence.leak.audit.untrained import untrained_twins
from whence.leak.pathways import hooked
from whence.models.capture import blocks
from whence.models.pretrained import between_ends, check_ids, default_text, ends_of, longest, model_of, tokenizer_of
from whence.recordings import read_array

ROWS, LENGTH = 24, 64
FEWEST = 5
MOST_READ = 2**22
"""Characters, of a text that makes few tokens"""
OTHERWISE = "or FILE.py:FUNCTION"
MEAN_TOKEN = "Masked tokens are replaced by the mean of all token embeddings: the model has no mask token."


def load(name: str, text: str | None = None, rows: int | None = None, length: int | None = None) -> AuditTarget:
    """A pretrained model with examples of running text.

    Args:
        name: `minilm`, `smollm2`, or a directory.
        text: the text; by default the packaged Python manual.
        rows: examples; by default 24, or as many as the text has.
        length: tokens per example; by default 64, or the maximum of the model if that is smaller.

    Raises:
        UserError: for a directory without tokenizer, a length beyond the positions of the model, and a text that is too
            short or that the tokenizer cannot encode.
    """
    tokenizer = tokenizer_of(name, also=OTHERWISE, instead=" or pass --token-ids FILE.npy")
    model = model_of(name, also=OTHERWISE)
    rows, most, limits = rows or ROWS, longest(model) or sys.maxsize, []
    if length is not None and length > most:
        raise UserError(
            f"--length {length}: expected at most {most} tokens, since {name} has {most} positions. Pass --length "
            f"{most} or less.",
            field="length",
        )
    if length is None and most < LENGTH:
        limits.append(f"Examples have {most} tokens instead of {LENGTH}, since the model has only {most} positions.")
    ids, ends = _rows_of(tokenizer, default_text() if text is None else text, rows, length or min(LENGTH, most))
    check_ids(model, ids)
    check_token_ids(ids[:, ends[0] : ids.shape[1] - ends[1]], tokenizer)
    if len(ids) < rows:
        limits.append(f"The audit uses {len(ids)} examples instead of {rows}, since the text is too short for more.")
    mask_id = tokenizer.mask_token_id
    masking = "" if mask_id is None else f"Masked tokens are replaced by {tokenizer.mask_token} (id {mask_id})."
    return replace(_target(name, model, ids, ends, mask_id, masking), limits=tuple(limits))


def load_ids(name: str, file: str, mask_id: int | None = None) -> AuditTarget:
    """A pretrained model with token ids from a .npy file of integers (rows, tokens), without a tokenizer."""

    def wrong(problem: str) -> UserError:
        return UserError(f"--token-ids {file}: expected {problem}", field="token_ids")

    model = model_of(name, also=OTHERWISE)
    try:
        ids = read_array(Path(file), "token_ids")
    except UserError as error:
        raise wrong(f"a .npy file of numbers, got one that cannot be read: {error}") from None
    if ids.ndim != 2 or ids.dtype.kind == "f":
        raise wrong(f"integers of shape (rows, tokens), got {ids.dtype} of shape {ids.shape}.")
    size = model.get_input_embeddings().num_embeddings
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < size:
        raise wrong(f"ids from 0 to {size - 1}, got {ids.min()} to {ids.max()}.")
    if mask_id is not None and mask_id >= size:
        raise UserError(f"--mask-token-id {mask_id}: expected an id from 0 to {size - 1}.", field="mask_token_id")
    most = longest(model) or sys.maxsize
    if ids.shape[1] > most:
        raise wrong(f"rows of at most {most} tokens (the positions of {name}), got {ids.shape[1]}. Shorten the rows.")
    masking = "" if mask_id is None else f"Masked tokens are replaced by the token id {mask_id}."
    return _target(name, model, torch.from_numpy(ids.astype(np.int64)), (0, 0), mask_id, masking)


def _target(
    name: str, model: Any, ids: Tensor, ends: tuple[int, int], mask_id: int | None, masking: str = ""
) -> AuditTarget:
    """The prediction is the last hidden state; the target is the same with nothing masked."""

    def call(some: Tensor) -> Tensor:
        return model(input_ids=some).last_hidden_state

    embedding: Any = model.get_input_embeddings()
    mask_module = next(key for key, module in model.named_modules() if module is embedding)
    layers = [key for key, _ in model.named_children() if key == "embeddings" and key != mask_module]
    layers += blocks(model)[: getattr(model.config, "num_hidden_layers", None)]  # without modules that follow them
    return AuditTarget(
        name,
        model,
        ids,
        with_mean_token(embedding, call)
        if mask_id is None
        else lambda some, masked: call(some.masked_fill(masked, mask_id)),
        call,
        layers=tuple(layers),
        mask_module=mask_module if mask_id is not None else None,
        fitted=True,
        ends=ends,
        untrained=untrained_twins(model, lambda twin: _target(name, twin, ids, ends, mask_id, masking)),
        mask_description=masking or MEAN_TOKEN,
    )


def _rows_of(tokenizer: Any, text: str, rows: int, length: int) -> tuple[Tensor, tuple[int, int]]:
    """Rows of running text, with the special tokens of the model at their ends."""
    ends = ends_of(tokenizer)
    inner = length - len(ends[0]) - len(ends[1])
    read, ids = 8 * rows * length, []  # characters: a long text need not be encoded as a whole
    while len(ids) < rows * inner:
        ids = tokenizer(text[:read], add_special_tokens=False)["input_ids"]
        if read >= min(len(text), max(MOST_READ, 64 * rows * length)):
            break
        read *= 2
    count = min(rows, len(ids) // inner)
    if count < FEWEST:
        raise UserError(
            f"text: expected {FEWEST} rows of {inner} tokens or more, got {len(ids)} tokens. Pass a longer text or a "
            "smaller --length."
        )
    body = torch.tensor(ids[: count * inner]).view(count, inner)
    return between_ends(body, ends), (len(ends[0]), len(ends[1]))


def with_mean_token(embedding: nn.Embedding, call: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """`call(ids)` with the embeddings of masked tokens replaced."""

    def predict(ids: Tensor, masked: Tensor) -> Tensor:
        def blank(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
            mean = embedding.weight.detach().mean(0).to(output.dtype)
            replaced = masked.to(output.device)
            return output.masked_scatter(replaced[..., None], mean.expand(int(masked.sum()), -1))

        with hooked([embedding], blank):
            return call(ids)

    return predict
