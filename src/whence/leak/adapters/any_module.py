"""Any nn.Module that takes content and returns one prediction per token."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from whence.errors import UserError
from whence.leak.subject import Subject
from whence.models.init import initialise
from whence.models.taps import blocks


def subject_of(
    model: nn.Module,
    content: Tensor,
    *,
    mask: Callable[[Tensor, Tensor], Any] | int | None = None,
    prediction: Callable[[Any], Tensor] = lambda output: output,
    target: Callable[[Tensor], Tensor] | None = None,
    layers: tuple[str, ...] | None = None,
    ends: tuple[int, int] = (0, 0),
    name: str = "",
) -> Subject:
    """Say how to hide, where the layers are, what the prediction is; the defaults suit the plainest models.

    content: (rows, tokens, features) of numbers, or (rows, tokens) of ids.
    mask(content, hidden) → the model's argument, or a tuple of them. By default hidden numbers become 0 and hidden
    ids the one given as `mask`; a model whose forward takes a second argument is told what is hidden.
    prediction(output) → (rows, tokens, outputs). target(content) → what would be right: the content itself, or for
    ids what the model says when nothing is hidden.
    """
    if not isinstance(content, Tensor) or content.ndim < 2:
        raise UserError("content: expected a tensor (rows, tokens) or (rows, tokens, features).", field="content")
    ids = not content.is_floating_point()
    if ids and mask is None:
        raise UserError("mask: token ids need the id that stands for a hidden one: mask=103.", field="mask")
    told = _takes_two(model)

    def arguments(some: Tensor, hidden: Tensor) -> tuple[Any, ...]:
        if callable(mask):
            made = mask(some, hidden)
            return made if isinstance(made, tuple) else (made,)
        gone = hidden.view(*hidden.shape, *[1] * (some.ndim - 2))
        shown = some.masked_fill(gone, mask if ids and mask is not None else 0)
        return (shown, hidden) if told else (shown,)

    def predict_with(module: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda some, hidden: prediction(module(*arguments(some, hidden)))

    def build(module: nn.Module, untrained: Callable[[], Subject] | None) -> Subject:
        predict = predict_with(module)

        def itself(some: Tensor) -> Tensor:
            return predict(some, torch.zeros(some.shape[:2], dtype=torch.bool)) if ids else some

        return Subject(
            name or type(model).__name__,
            module,
            content,
            predict,
            target or itself,
            layers=tuple(blocks(model)) if layers is None else layers,
            fitted=ids and target is None,
            ends=ends,
            untrained=untrained,
        )

    return build(model, lambda: build(_untrained(model), None))


def _takes_two(model: nn.Module) -> bool:
    parameters = inspect.signature(model.forward).parameters.values()
    return len([p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]) > 1


def _untrained(model: nn.Module) -> nn.Module:
    """A copy, every part of which that can be is started anew."""
    twin = copy.deepcopy(model)
    initialise(twin, 0)
    return twin
