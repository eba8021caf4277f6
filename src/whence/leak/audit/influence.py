"""Influence of content and position on predictions: interventions on the visible content, and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from whence.leak.audit.measures import Sample
from whence.leak.audit.target import AuditTarget
from whence.leak.metrics import ContentTest
from whence.leak.pathways import ablated, additive_encodings, hooked
from whence.models.capture import blocks

ROWS = 8


def content_test(target: AuditTarget, sample: Sample, seed: int = 0) -> ContentTest | None:
    """The effect of permuting or replacing visible content; None where at most one token is visible.

    Changes are None where predictions have no variance. The factor is None where the error is 0.
    """
    visible = ~sample.masked
    movable = torch.zeros_like(visible)
    movable[:, target.inner] = visible[:, target.inner]
    if int(movable.sum(1).max()) < 2:
        return None
    generator = torch.Generator().manual_seed(seed + 1)
    key = torch.rand(movable.shape, generator=generator).masked_fill(~movable, 2.0)
    order = torch.arange(movable.shape[1]).repeat(len(movable), 1)
    for row, there in enumerate(movable):
        order[row, there] = key[row].argsort()[: int(there.sum())]
    index = order.view(*order.shape, *[1] * (target.content.ndim - 2)).expand_as(target.content)
    permuted, replaced = (
        target.predictions(content, sample.masked)[sample.masked].double()
        for content in (target.content.gather(1, index), target.content.roll(1, 0))
    )
    before, truth = sample.predicted, sample.truth
    own = (before - before.mean(0)).pow(2).mean()
    was = (before - truth).pow(2).mean()
    return ContentTest(
        permuted=float((permuted - before).pow(2).mean() / own) if own > 0 else None,
        error_factor=float((permuted - truth).pow(2).mean() / was) if was > 0 else None,
        replaced=float((replaced - before).pow(2).mean() / own) if own > 0 else None,
    )


def gradient_share(target: AuditTarget, masked: Tensor) -> float | None:
    """‖∂L/∂position‖ / (‖∂L/∂content‖ + ‖∂L/∂position‖), L the squared error at masked tokens.

    An additive encoding has the same gradient as the embedded token that it is added to. The gradient of position is
    therefore that of all embedded tokens with an encoding, and the gradient of content is that of the visible ones.
    None without additive encodings, since rotations and biases have no such gradient.
    """
    target, masked = target.with_rows(ROWS), masked[:ROWS]
    vectors = added_vectors(target, masked)
    if vectors is None or not (added := (vectors.abs() > 1e-6).any(-1)).any():
        return None
    gradient = _gradient(target, masked)
    position, content = float(gradient[added].norm()), float(gradient[~masked].norm())
    return position / (position + content) if position + content > 0 else None


def added_vectors(target: AuditTarget, masked: Tensor) -> Tensor | None:
    """The additive encodings of embedded tokens, (rows, tokens, width); None if there are none, or unknown."""
    pathways = additive_encodings(target, masked)
    if not pathways or not target.layers:
        return None
    encoded = embedded(target, masked)
    with ablated(pathways):
        plain = embedded(target, masked)
    if encoded is None or plain is None or encoded.shape[:2] != masked.shape:
        return None
    return encoded - plain


def embedded(target: AuditTarget, masked: Tensor) -> Tensor | None:
    """The input of the first block."""
    inputs: list[Tensor] = []

    def save(tokens: Tensor) -> Tensor:
        inputs.append(tokens.detach().clone())
        return tokens

    with _at_the_first_block(target, save):
        target.predictions(target.content, masked)
    return torch.cat(inputs) if inputs else None


def _gradient(target: AuditTarget, masked: Tensor) -> Tensor:
    """Gradient of the squared error at masked tokens with respect to the embedded tokens."""
    leaves: list[Tensor] = []

    def leaf(tokens: Tensor) -> Tensor:
        leaves.append(tokens.detach().requires_grad_())
        return leaves[-1]

    truth = target.targets()[masked]
    with _at_the_first_block(target, leaf), torch.enable_grad():
        target.current["masked"] = masked
        predicted = target.predict(target.content, masked)
        loss = (predicted[masked.to(predicted.device)].float() - truth.to(predicted.device)).pow(2).mean()
        return torch.autograd.grad(loss, leaves[-1])[0].float().cpu()


@contextmanager
def _at_the_first_block(target: AuditTarget, act: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Apply `act` to the embedded tokens, before the first block.

    The first layer is either the embedding, whose output is used, or a block, whose input is used.
    """
    first = target.layers[0]
    module = target.model.get_submodule(first)
    if first not in blocks(target.model):
        with hooked([module], lambda _module, _inputs, output: act(output)):
            yield
        return

    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args and isinstance(args[0], Tensor):
            return (act(args[0]), *args[1:]), kwargs
        name = next((key for key, value in kwargs.items() if isinstance(value, Tensor)), None)
        return (args, {**kwargs, name: act(kwargs[name])}) if name else None

    with module.register_forward_pre_hook(before, with_kwargs=True):
        yield
