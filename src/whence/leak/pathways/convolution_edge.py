"""Zeros that stand before the first token."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from whence.kernels import causal_conv
from whence.leak.audit.target import AuditTarget
from whence.leak.pathways.base import Detector, Pathway, patched, together
from whence.mixers.mamba import Mamba


class ConvolutionEdge(Detector):
    """Convolution edge: where zeros are seen, the edge is near. Shut, the other end lies beyond it, as on a ring."""

    def detect(self, target: AuditTarget, masked: Tensor) -> list[Pathway]:
        ours = {n: m for n, m in target.model.named_modules() if isinstance(m, Mamba) and m.conv1d.kernel_size[0] > 1}
        pathways = []
        if ours:
            pathways.append(Pathway("convolution edge", together(list(ours)), lambda: _ringed([*ours.values()])))
        with _Padded(shut=False) as seen:
            target.predictions(target.content[:1], masked[:1])
        if seen.calls:
            pathways.append(Pathway("convolution edge", f"{seen.calls} convolutions", lambda: _Padded(shut=True)))
        return pathways


@contextmanager
def _ringed(mixers: list[Mamba]) -> Iterator[None]:
    """whence's own convolutions, which are no modules."""
    with ExitStack() as stack:
        for mixer in mixers:
            stack.enter_context(patched(mixer, _convolve=_around(mixer)))
        yield


def _around(mixer: Mamba) -> Any:
    taps = mixer.conv1d.kernel_size[0] - 1

    def convolve(u: Tensor, reverse: bool = False) -> Tensor:
        longer = [u, u[:, :taps]] if reverse else [u[:, -taps:], u]
        full = causal_conv(torch.cat(longer, 1), mixer.conv1d.weight[:, 0], mixer.conv1d.bias, reverse=reverse)
        return full[:, : u.shape[1]] if reverse else full[:, taps:]

    return convolve


_CONV = inspect.Signature(
    [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        for name, default in {
            "input": None,
            "weight": None,
            "bias": None,
            "stride": 1,
            "padding": 0,
            "dilation": 1,
            "groups": 1,
        }.items()
    ]
)


class _Padded(TorchFunctionMode):
    """Sees every convolution that pads with zeros, wherever it is called from, and makes rings of them if asked."""

    def __init__(self, *, shut: bool) -> None:
        super().__init__()
        self.shut, self.calls = shut, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in (F.conv1d, torch.conv1d):
            return func(*args, **kwargs)
        asked = _CONV.bind(*args, **kwargs)
        asked.apply_defaults()
        padding = asked.arguments["padding"]
        pad = _one(padding)
        if pad == "same":
            reach = _one(asked.arguments["dilation"]) * (asked.arguments["weight"].shape[-1] - 1)
            sides = (reach // 2, reach - reach // 2)
        else:
            sides = (0, 0) if isinstance(pad, str) else (pad, pad)
        if sides == (0, 0):
            return func(*args, **kwargs)
        self.calls += 1
        if self.shut:
            asked.arguments["input"] = F.pad(asked.arguments["input"], sides, mode="circular")
            asked.arguments["padding"] = 0
        return func(*asked.args, **asked.kwargs)


def _one(value: Any) -> Any:
    return value[0] if isinstance(value, tuple | list) else value
