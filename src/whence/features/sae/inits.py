"""Initial directions of a decoder, from which the encoder starts as well."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whence.registry import Registry, Variant


class Init(Variant):
    """Drawn from torch's ambient stream, which whoever initialises has seeded."""

    def directions(self, d_sae: int, d_in: int) -> Tensor:
        """(d_sae, d_in), rows of length 1."""
        raise NotImplementedError


INITS: Registry[Init] = Registry(__name__, Init)


class Unit(Init):
    """Every direction on its own, uniformly over the sphere."""

    def directions(self, d_sae: int, d_in: int) -> Tensor:
        return nn.functional.normalize(torch.randn(d_sae, d_in), dim=1)


class Orthogonal(Init):
    """As many directions as there are dimensions at right angles to each other, then as many again."""

    def directions(self, d_sae: int, d_in: int) -> Tensor:
        blocks = [nn.init.orthogonal_(torch.empty(d_in, d_in)) for _ in range(-(-d_sae // d_in))]
        return torch.cat(blocks)[:d_sae]
