"""Mamba: a selective state space that reads the sequence in order, one state per channel."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from whence.encodings.base import Count
from whence.kernels import causal_conv, selective_scan
from whence.mixers import Mixer
from whence.models.layers import Linear

State = Annotated[int, Field(ge=1, le=2**12, description="state size per channel (N)")]
Expand = Annotated[int, Field(ge=1, le=64, description="inner width as a multiple of d_model")]
ConvWidth = Annotated[int, Field(ge=1, le=2**12, description="kernel width of the convolution before the scan")]
Rank = Annotated[
    int | None, Field(ge=1, le=2**16, description="rank of the step-size projection; default: d_model / 16")
]
DELTA_RANGE = (1e-3, 0.1)  # step sizes at the start, log-uniform
PLAIN = 1 / math.sqrt(3)  # the deviation of nn.Linear's own initialisation, which Mamba's is built on


class Memory(NamedTuple):
    """State of a sequence: the last inputs of the convolution, and the state of the scan."""

    window: Tensor
    """(batch, d_conv − 1, inner)"""
    state: Tensor
    """(batch, inner, N)"""


class Mamba(Mixer):
    """Selective state space model: causal, with linear cost in the length.

    Parameters are named as in the original implementation, so that its weights can be loaded.
    """

    def __init__(
        self,
        d_model: Count,
        out_scale: float = 1.0,
        *,
        d_state: State = 16,
        expand: Expand = 2,
        d_conv: ConvWidth = 4,
        dt_rank: Rank = None,
        bias: Annotated[bool, Field(description="biases in the input and output projections")] = False,
        conv_bias: Annotated[bool, Field(description="bias in the convolution")] = True,
    ) -> None:
        super().__init__()
        inner = expand * d_model
        self.d_state, self.dt_rank = d_state, math.ceil(d_model / 16) if dt_rank is None else dt_rank
        self.in_proj = Linear(d_model, 2 * inner, bias=bias, scale=PLAIN)
        self.conv1d = nn.Conv1d(inner, inner, d_conv, groups=inner, bias=conv_bias)  # only holds the weights
        self.x_proj = Linear(inner, self.dt_rank + 2 * d_state, bias=False, scale=PLAIN)
        self.dt_proj = nn.Linear(self.dt_rank, inner)
        self.A_log = nn.Parameter(torch.empty(inner, d_state))
        self.D = nn.Parameter(torch.empty(inner))
        self.out_proj = Linear(inner, d_model, bias=bias, scale=PLAIN * out_scale)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Of what the children do not know: A = −1 … −N in every channel, steps over all time scales."""
        shortest, longest = (math.log(delta) for delta in DELTA_RANGE)
        with torch.no_grad():
            self.A_log.copy_(torch.arange(1, self.d_state + 1, dtype=torch.float32).log().expand_as(self.A_log))
            self.D.fill_(1.0)
            nn.init.uniform_(self.dt_proj.weight, -(self.dt_rank**-0.5), self.dt_rank**-0.5)
            delta = torch.empty_like(self.dt_proj.bias).uniform_(shortest, longest).exp().clamp(min=1e-4)
            self.dt_proj.bias.copy_(delta + torch.log(-torch.expm1(-delta)))  # the inverse of softplus

    def forward(self, x: Tensor, valid: Tensor | None = None, /, *, reverse: bool = False) -> Tensor:
        """valid: bool (batch, length). A token that is not valid writes nothing: not into the state, not into its
        neighbours' convolution. It reads the state that was there before it.

        Or float: how strongly each token writes. Its input and its step are scaled, so that 0 is the same as not valid.
        """
        u, gate = self.split(x, valid)
        return self.out_proj(self.mix(u, valid, reverse=reverse) * gate)

    def extend(self, x: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
        """As forward, for the next tokens of sequences that stand at `memory`; and where they stand afterwards.

        One token at a time, many, or the whole sequence at once: the results are those of one forward.
        """
        u, gate = self.split(x, None)
        overlap = self.conv1d.kernel_size[0] - 1
        window = u.new_zeros(u.shape[0], overlap, u.shape[2]) if memory is None else memory.window.to(u.dtype)
        extended = torch.cat([window, u], 1)
        u = self._convolve(extended)[:, overlap:]
        state = None if memory is None else memory.state
        y, state = selective_scan(u, *self._selection(u), self.D, initial_state=state, return_state=True)
        return self.out_proj(y * gate), Memory(extended[:, extended.shape[1] - overlap :].clone(), state)

    def split(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """→ what is read, and what gates the result: (batch, length, inner) each."""
        u, z = self.in_proj(x).chunk(2, -1)
        if valid is not None:
            u = u * valid[..., None] if valid.is_floating_point() else u.masked_fill(~valid[..., None], 0)
        return u, F.silu(z)

    def mix(self, u: Tensor, valid: Tensor | None, *, reverse: bool = False) -> Tensor:
        """All between the projections in and out, but for the gate."""
        u = self._convolve(u, reverse)
        delta, A, B, C = self._selection(u)
        if valid is not None and valid.is_floating_point():
            delta, valid = delta * valid[..., None], None
        return selective_scan(u, delta, A, B, C, self.D, valid=valid, reverse=reverse)

    def _convolve(self, u: Tensor, reverse: bool = False) -> Tensor:
        return causal_conv(u, self.conv1d.weight[:, 0], self.conv1d.bias, reverse=reverse)

    def _selection(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """delta, A, B, C."""
        dt, B, C = self.x_proj(u).split([self.dt_rank, self.d_state, self.d_state], -1)
        dt = self.dt_proj(dt)
        delta = F.softplus(dt.to(torch.promote_types(dt.dtype, torch.float32)))  # half precision would blur time scales
        return delta, -torch.exp(self.A_log), B, C
