"""Initial directions of the decoder, with which the encoder is initialized, too."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whence.registry import Registry, Variant


class Init(Variant):
    """Draws from torch's global random generator, which the caller seeds."""

    def directions(self, d_sae: int, d_in: int) -> Tensor:
        """(d_sae, d_in), rows of length 1."""
        raise NotImplementedError


INITS: Registry[Init] = Registry(__name__, Init)


class Unit(Init):
    """Independent directions, uniform on the unit sphere."""

    def directions(self, d_sae: int, d_in: int) -> Tensor:
        return nn.functional.normalize(torch.randn(d_sae, d_in), dim=1)


class Orthogonal(Init):
    """Blocks of d_in orthogonal directions."""

    def directions(self, d_sae: int, d_in: int) -> Tensor:
        blocks = [nn.init.orthogonal_(torch.empty(d_in, d_in)) for _ in range(-(-d_sae // d_in))]
        return torch.cat(blocks)[:d_sae]
