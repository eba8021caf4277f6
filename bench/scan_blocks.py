"""A whole bidirectional Mamba block against mambapy's, with the same weights: both ways, and the mean of the two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from mambapy.mamba import MambaBlock, MambaConfig
from torch import Tensor, nn

from rounds import best_of
from scan_peers import Shape
from whence.mixers.bimamba import BiMamba


class BothWays(nn.Module):
    """mambapy's block, as one would make it bidirectional: it has no reading from the right of its own."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.block = MambaBlock(MambaConfig(d_model=d_model, n_layers=1))

    def forward(self, x: Tensor) -> Tensor:
        return (self.block(x) + self.block(x.flip(1)).flip(1)) / 2


def sides(shape: Shape) -> dict[str, Callable[[bool], tuple[Tensor, ...]]]:
    """Each takes whether gradients are wanted. `channels` is the inner width, so d_model is half of it."""
    batch, length, channels = shape
    ours, theirs = BiMamba(channels // 2), BothWays(channels // 2)
    theirs.block.load_state_dict(ours.ahead.state_dict())
    x, back = (torch.randn(batch, length, channels // 2) for _ in range(2))
    x.requires_grad_()

    def run(block: nn.Module, call: Callable[[], Tensor], gradients: bool) -> tuple[Tensor, ...]:
        if not gradients:
            with torch.no_grad():
                return (call(),)
        y = call()
        weights = dict(sorted(block.named_parameters(), key=lambda pair: pair[0].partition(".")[2]))
        return y.detach(), *torch.autograd.grad(y, [x, *weights.values()], back)

    return {
        "whence": lambda gradients: run(ours, lambda: ours(x, None), gradients),
        "mambapy": lambda gradients: run(theirs, lambda: theirs(x), gradients),
    }


def blocks(shapes: Sequence[Shape], rounds: int, seconds: float) -> dict[str, Any]:
    """ms of both at all shapes, checked to compute the same."""
    result: dict[str, Any] = {}
    for shape in shapes:
        both = sides(shape)
        for ours, theirs in zip(both["whence"](True), both["mambapy"](True), strict=True):
            error = ((ours - theirs).abs().max() / theirs.abs().max()).item()
            assert error <= 1e-3, f"the blocks disagree at {shape}: {error:.1e}"
        measured = result["×".join(map(str, shape))] = {}
        for what, gradients in (("forward", False), ("forward+backward", True)):
            timed = {name: lambda run=run, gradients=gradients: run(gradients) for name, run in both.items()}
            best = best_of(timed, rounds, seconds)
            measured[what] = {"ms": {name: 1e3 * taken for name, taken in best.items()}}
            measured[what]["whence_is_faster_by"] = best["mambapy"] / best["whence"]
            ours, theirs = (measured[what]["ms"][name] for name in ("whence", "mambapy"))
            print(
                f"block {shape!s:16} {what:17} whence {ours:8.1f} ms  mambapy {theirs:8.1f} ms  "
                f"whence is {theirs / ours:.1f}×",
                flush=True,
            )
    return result
