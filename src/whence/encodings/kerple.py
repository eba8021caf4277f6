"""Kernelised relative biases: the logarithmic and the power kernel."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.encodings.base import Count, Encoding, distances


class KERPLE(Encoding):
    """Subtract a learned function of the distance: p·ln(1 + a·d), or a·d^p."""

    extrapolation = "the learned curve goes on"
    reference = "Chi et al., 2022 (KERPLE)"
    examples = ("kind=power",)

    def __init__(
        self,
        heads: Count,
        *,
        kind: Annotated[
            Literal["log", "power"], Field(description="log: −p·ln(1 + a·d). power: −a·d^p with 0 < p < 2")
        ] = "log",
    ) -> None:
        super().__init__()
        self.kind = kind
        # Constrained so that the kernel is conditionally positive definite: a > 0, and p > 0 or 0 < p < 2.
        self.log_a = nn.Parameter(torch.empty(heads))
        self.raw_p = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """a uniform in (0, 1) and p in (0, 2), away from the ends, where gradients vanish."""
        a = torch.empty_like(self.log_a).uniform_(0.05, 1.0)
        half_p = torch.empty_like(self.raw_p).uniform_(0.05, 0.95)
        with torch.no_grad():
            self.log_a.copy_(a.log())
            self.raw_p.copy_((2 * half_p).log() if self.kind == "log" else half_p.logit())

    def a_and_p(self) -> tuple[Tensor, Tensor]:
        raw = self.raw_p.float()
        return self.log_a.float().exp(), raw.exp() if self.kind == "log" else 2 * raw.sigmoid()

    def bias(self, positions_q: Tensor, positions_k: Tensor) -> Tensor:
        away = distances(positions_q, positions_k).abs().float()
        a, p = (value[:, None, None] for value in self.a_and_p())
        return -p * torch.log1p(a * away) if self.kind == "log" else -a * away**p
