"""Signals of which it is known how much is position and how much is content."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.leak.data.base import RecordingData, Split
from whence.random import derive


class SyntheticRecordings(RecordingData):
    """Smooth random content, different in every example, plus a template that is the same at the same place in all.

    `position` is the share of the variance that the template carries: no model can know more from position than that.
    """

    held_out_name = ""

    def __init__(
        self,
        *,
        position: Annotated[
            float, Field(ge=0, le=1, description="share of the variance that position determines")
        ] = 0.0,
        smoothness: Annotated[float, Field(gt=0, description="steps over which content stays alike")] = 6.0,
        steps: Annotated[int, Field(ge=2, le=1000, description="steps per example")] = 64,
        channels: Annotated[int, Field(ge=1, le=100)] = 4,
        template: Annotated[int, Field(ge=0, description="which template")] = 0,
    ) -> None:
        self.position, self.smoothness, self.steps, self.channels = position, smoothness, steps, channels
        self.template = template

    def draw(self, generator: torch.Generator, rows: int, split: Split, half: int | None = None) -> Tensor:
        content = self._smooth(generator, rows)
        fixed = self._smooth(torch.Generator().manual_seed(derive(self.template, "template")), 1)
        fixed = (fixed - fixed.mean(1, keepdim=True)) / fixed.std(1, keepdim=True, correction=0)
        return math.sqrt(1 - self.position) * content + math.sqrt(self.position) * fixed

    def _smooth(self, generator: torch.Generator, rows: int) -> Tensor:
        """White noise under a bell, of unit variance: a stationary Gaussian process."""
        reach = math.ceil(4 * self.smoothness)
        noise = torch.randn(rows, self.channels, self.steps + 2 * reach, generator=generator)
        bell = torch.exp(-((torch.arange(-reach, reach + 1) / self.smoothness) ** 2))
        bell = (bell / bell.norm()).view(1, 1, -1)
        return torch.conv1d(noise.flatten(0, 1)[:, None], bell).view(rows, self.channels, -1).transpose(1, 2)
