"""The selective scan as others write it on a CPU, all with whence's arguments, and the proof that they agree."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from whence.kernels import selective_scan
from whence.kernels.selective_scan import other_devices

Shape = tuple[int, int, int]  # batch, length, channels
Scan = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
N = 16


class Inputs:
    """u, delta, A, B, C as a freshly initialised Mamba would make them, and a gradient that comes back for y."""

    def __init__(self, shape: Shape) -> None:
        batch, length, channels = shape
        draw = torch.Generator().manual_seed(0)
        u, delta, self.dy = (torch.randn(shape, generator=draw) for _ in range(3))
        B, C = (torch.randn(batch, length, N, generator=draw) for _ in range(2))
        A = -torch.arange(1.0, N + 1).repeat(channels, 1)
        self.tensors = [tensor.requires_grad_() for tensor in (u, F.softplus(delta - 3), A, B, C)]

    def forward(self, scan: Scan) -> Tensor:
        with torch.no_grad():
            return scan(*self.tensors)

    def both(self, scan: Scan) -> tuple[Tensor, ...]:
        """y and the gradients of all five."""
        y = scan(*self.tensors)
        return y.detach(), *torch.autograd.grad(y, self.tensors, self.dy)


def discretized(u: Tensor, delta: Tensor, A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """exp(Δ·A) and Δ·B·u, all steps at once: (batch, length, channels, N)."""
    return torch.exp(delta.unsqueeze(-1) * A), delta.unsqueeze(-1) * B.unsqueeze(2) * u.unsqueeze(-1)


def mambapy(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """mambapy.mamba.MambaBlock.selective_scan, without D."""
    from mambapy.pscan import pscan

    return (pscan(*discretized(u, delta, A, B)) @ C.unsqueeze(-1)).squeeze(3)


def loop_per_step(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """The unbind loop that needs the least memory; whence's own fallback."""
    return other_devices.torch_scan(u, delta, A, B, C, None, None, False, torch.float32)[0]


def loop_at_once(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """The unbind loop over decays and inputs made beforehand, and one product with C afterwards."""
    decays, inputs = discretized(u, delta, A, B)
    h = torch.zeros_like(inputs[:, 0])
    states = []
    for decay, added in zip(decays.unbind(1), inputs.unbind(1), strict=True):
        h = decay * h + added
        states.append(h)
    return (torch.stack(states, 1) @ C.unsqueeze(-1)).squeeze(3)


def transformers(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Its torch path: the decorators that would look for a CUDA kernel are taken off."""
    from transformers.models.mamba import modeling_mamba

    plain = inspect.unwrap(modeling_mamba.mamba_selective_scan)
    u, delta, B, C = (tensor.transpose(1, 2) for tensor in (u, delta, B, C))
    return plain(u, delta, A, B, C).transpose(1, 2)


SCANS: dict[str, Scan] = {
    "whence": selective_scan,
    "mambapy": mambapy,
    "unbind loop, exp per step": loop_per_step,
    "unbind loop, exp at once": loop_at_once,
    "transformers": transformers,
}


def disagreements(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...], tolerance: float = 1e-3) -> Iterator[str]:
    """Relative to the largest number of a tensor: single precision cannot promise more for sums over many steps."""
    for name, a, b in zip(("y", "du", "ddelta", "dA", "dB", "dC"), ours, theirs, strict=False):
        error = ((a - b).abs().max() / a.abs().max()).item()
        if not error <= tolerance:
            yield f"{name} is off by {error:.1e}"


def check(inputs: Inputs, scans: dict[str, Scan], gradients: bool) -> None:
    """All compute the same thing; also their warm-up."""
    results = {name: inputs.both(scan) if gradients else (inputs.forward(scan),) for name, scan in scans.items()}
    for name, theirs in results.items():
        wrong = list(disagreements(results["whence"], theirs))
        assert not wrong, f"{name} disagrees with whence: {', '.join(wrong)}"
