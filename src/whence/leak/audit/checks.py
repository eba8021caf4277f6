"""Checks of the inputs and measures of an audit: degenerate ones are refused, since no verdict would be valid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from whence.config import Config
from whence.errors import UserError
from whence.leak.audit.measures import deviation
from whence.leak.audit.probe import FOLDS
from whence.leak.audit.shift import SAME
from whence.leak.audit.target import AuditTarget
from whence.leak.metrics import check_ratios

ONE_ID = 0.9
"""Share of a single token id from which inputs are not considered text."""


def check(target: AuditTarget, ratios: Sequence[float]) -> None:
    """Raise UserError for inputs on which nothing can be measured, before anything is computed."""
    try:
        check_ratios(ratios)
    except ValueError as error:
        raise UserError(f"ratios: {error}") from None
    content = target.content
    steps = target.maskable // target.stride
    if steps < 2 * FOLDS:
        raise UserError(
            f"positions: expected {2 * FOLDS} or more that can be masked, for a {FOLDS}-fold cross-validation, got "
            f"{steps}. Pass longer examples."
        )
    if len(content) < FOLDS:
        raise UserError(
            f"data: expected {FOLDS} examples or more, for a {FOLDS}-fold cross-validation, got {len(content)}. "
            "Pass more rows."
        )
    body = content[:, target.inner]
    if content.is_floating_point():
        _check_values(body)
    else:
        check_token_ids(body)
    if bool((body == body[:1]).all()):
        raise UserError(
            f"data: expected examples that differ, got {len(body)} equal ones, so that content and position cannot be "
            "distinguished. Pass different examples."
        )


def _check_values(values: Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        count = int((~torch.isfinite(values)).sum())
        raise UserError(
            f"data: expected finite values, got {count:,} that are infinite or not a number. Remove or replace them."
        )
    if bool((values == values.flatten()[0]).all()):
        raise UserError(f"data: expected values that vary, got {values.flatten()[0]:g} everywhere. Pass real examples.")


def check_targets(targets: Tensor) -> None:
    """Raise UserError where targets are not finite or differ by rounding alone."""
    if not bool(torch.isfinite(targets).all()):
        raise UserError(
            "model: expected finite outputs, got values that are infinite or not a number with nothing masked. Check "
            "the weights of the model."
        )
    if deviation(targets) <= SAME * float(targets.double().pow(2).mean().sqrt()):
        raise UserError(
            "data: expected targets that vary, got constant ones. Check the inputs and the weights of the model."
        )


def check_token_ids(ids: Tensor, tokenizer: Any = None) -> None:
    """Raise UserError if nearly all tokens have the same id, as in a text that the tokenizer cannot encode."""
    kinds, counts = ids.unique(return_counts=True)
    most = int(counts.argmax())
    part, common = float(counts[most]) / ids.numel(), int(kinds[most])
    if part < ONE_ID:
        return
    field, name, what_to_do = "data", "", "Pass token ids of real examples."
    if tokenizer is not None:
        field, name = "text", f" ({tokenizer.convert_ids_to_tokens(common)})"
        what_to_do = "Pass a text that the tokenizer can encode, or add the tokenizer that belongs to the model."
    raise UserError(
        f"{field}: expected tokens that vary, got id {common}{name} for {math.floor(100 * part)} % of {ids.numel():,} "
        f"tokens. {what_to_do}"
    )


def check_finite(name: str, measures: object, path: tuple[str, ...] = ()) -> None:
    """Raise UserError for the first measure that is infinite or not a number."""
    if isinstance(measures, Config):
        measures = measures.model_dump()
    if isinstance(measures, Mapping):
        for key, value in measures.items():
            check_finite(name, value, (*path, str(key)))
    elif isinstance(measures, list):
        for value in measures:
            check_finite(name, value, path)
    elif isinstance(measures, float) and not math.isfinite(measures):
        raise UserError(
            f"model: expected finite measures, got {measures} for {' '.join(path)} of {name}. Check weights and inputs "
            "for values that are infinite, not a number, or constant."
        )
