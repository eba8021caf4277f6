"""The k largest of every state."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from whence.features.sae.sparsity.base import Sparsity
from whence.kernels.sparse_code import top_k


class TopK(Sparsity):
    """Of every state, the k features that are most active."""

    selects = True

    def __init__(self, *, k: Annotated[int, Field(ge=1, description="active features per state")] = 16) -> None:
        super().__init__()
        self.k = k

    def chosen(self, pre: Tensor, masked: Tensor) -> Tensor:
        return top_k(masked, min(self.k, masked.shape[1]))

    @classmethod
    def at_l0(cls, l0: int) -> dict[str, float]:
        return {"k": l0}
