"""Every scale on its own must reconstruct something."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from whence.features.sae.losses.base import Batch, Loss


class ScaleTargets(Loss):
    """The first part of a dictionary alone, then the first two, and so on, are held against the state as well."""

    needs_parts = True

    def __init__(self, *, weight: Annotated[float, Field(gt=0, description="of each partial error")] = 0.1) -> None:
        super().__init__()
        self.weight = weight

    def term(self, batch: Batch) -> Tensor | float:
        assert batch.parts is not None
        code = batch.code
        part = batch.parts if code.indices is None else batch.parts[code.indices]
        partial = [batch.error(code.values * (part <= last)).mean() for last in range(int(batch.parts.max()))]
        return self.weight * sum(partial)
