"""Tasks whose labels leak through one kind of feature. Their declared skill is something else."""

from __future__ import annotations

import torch
from torch import Tensor

from whence.tasks import Answer, Batch, Per, Task, line

LENGTH = 16


class Planted(Task):
    """Random symbols 4 … 7; the label is written by `plant` with symbols 0 … 3."""

    skill = "None: the label is planted."
    per: Per = "sequence"
    symbols = 8
    outputs = 2

    def plant(self, inputs: Tensor, labels: Tensor, places: Tensor) -> None:
        """labels: (batch, 1). places: (batch, length), a random order of the positions of each sequence."""
        raise NotImplementedError

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(4, 8, (batch, length), generator=generator)
        labels = torch.randint(self.outputs, (batch, 1), generator=generator)
        self.plant(inputs, labels, torch.rand(batch, length, generator=generator).argsort(1))
        return Batch(inputs, line(length), labels[:, 0], torch.ones(batch, dtype=torch.bool))

    def solve(self, inputs: list[int]) -> list[Answer]:
        raise NotImplementedError


class LeakedCounts(Planted):
    """One more of symbol 0, or of symbol 1, anywhere."""

    def plant(self, inputs: Tensor, labels: Tensor, places: Tensor) -> None:
        inputs.scatter_(1, places[:, :1], labels)


class LeakedPlace(Planted):
    """Position 5 holds symbol 0 or 1; the other one stands anywhere else, on either side."""

    def plant(self, inputs: Tensor, labels: Tensor, places: Tensor) -> None:
        elsewhere = places[:, :1].where(places[:, :1] != 5, places[:, 1:2])
        inputs.scatter_(1, elsewhere, 1 - labels)
        inputs[:, 5:6] = labels


class LeakedBigram(Planted):
    """The pairs 01 and 23, or the pairs 03 and 21, in either order of the pairs."""

    def plant(self, inputs: Tensor, labels: Tensor, places: Tensor) -> None:
        start = places[:, :1] % 5 + 1
        gap = 3 + places[:, 1:2] % 4
        swap = places[:, 2:3] % 2
        for first, end in ((0, 1 + 2 * labels), (2, 3 - 2 * labels)):
            at = start + gap * ((first == 2) ^ swap.bool()).long()
            inputs.scatter_(1, at, torch.full_like(at, first))
            inputs.scatter_(1, at + 1, end)


class LeakedHalf(Planted):
    """Symbol 0 in one half, symbol 1 in the other."""

    def plant(self, inputs: Tensor, labels: Tensor, places: Tensor) -> None:
        half = inputs.shape[1] // 2
        inputs.scatter_(1, places[:, :1] % half, labels)
        inputs.scatter_(1, half + places[:, 1:2] % half, 1 - labels)


class LeakedOrder(Planted):
    """Symbol 0 anywhere before symbol 1, or after it."""

    def plant(self, inputs: Tensor, labels: Tensor, places: Tensor) -> None:
        two = places[:, :2].sort(1).values
        inputs.scatter_(1, two, torch.cat([labels, 1 - labels], 1))


class LeakedFirst(Planted):
    """The first token."""

    def plant(self, inputs: Tensor, labels: Tensor, places: Tensor) -> None:
        inputs[:, :1] = labels
        inputs.scatter_(1, 1 + places[:, :1] % (inputs.shape[1] - 1), 1 - labels)


class LeakedLast(Planted):
    """The last token."""

    def plant(self, inputs: Tensor, labels: Tensor, places: Tensor) -> None:
        inputs.scatter_(1, places[:, :1] % (inputs.shape[1] - 1), 1 - labels)
        inputs[:, -1:] = labels


class LeakedVariety(Planted):
    """Three or four distinct symbols, which ones at random."""

    symbols = 12

    def plant(self, inputs: Tensor, labels: Tensor, places: Tensor) -> None:
        kinds = places.argsort(1)[:, :4] % 12
        kinds = (kinds[:, :1] + torch.tensor([0, 3, 6, 9])) % 12  # distinct
        which = places % (3 + labels)  # every one of three, or of four, occurs
        inputs.copy_(kinds.gather(1, which))


class LeakedWindowSum(Planted):
    """The sum of the last four tokens, modulo 5."""

    outputs = 5

    def plant(self, inputs: Tensor, labels: Tensor, places: Tensor) -> None:
        inputs[:, -1:] = (labels - inputs[:, -4:-1].sum(1, keepdim=True)) % 5


class LeakedLastSymbol(Planted):
    """The last symbol occurred in the first quarter, or in the last one."""

    def plant(self, inputs: Tensor, labels: Tensor, places: Tensor) -> None:
        quarter, last = inputs.shape[1] // 4, places[:, :1] % 4
        inputs[:, -1:] = last
        inputs.scatter_(1, places[:, 1:2] % quarter + labels * (inputs.shape[1] - quarter - 1), last)


class LeakedPosition(Planted):
    """At every position: is it odd?"""

    per: Per = "token"

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(8, (batch, length), generator=generator)
        targets = (line(length) % 2).expand(batch, -1)
        return Batch(inputs, line(length), targets, torch.ones_like(targets, dtype=torch.bool))


class LeakedNeighbour(Planted):
    """Where is the token that follows symbol 3?"""

    per: Per = "place"
    outputs = 1

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(4, 8, (batch, length), generator=generator)
        start = torch.randint(length - 1, (batch, 1), generator=generator)
        inputs.scatter_(1, start, 3)
        return Batch(inputs, line(length), start + 1, torch.ones(batch, 1, dtype=torch.bool))


class LeakedCentroid(Planted):
    """Regression: the sum of the positions of two marks."""

    goal = "regression"
    outputs = 1

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(4, 8, (batch, length), generator=generator)
        marks = torch.rand(batch, length, generator=generator).topk(2).indices
        inputs.scatter_(1, marks, 0)
        targets = marks.sum(1, keepdim=True) / length
        return Batch(inputs, line(length), targets, torch.ones(batch, dtype=torch.bool))

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return ((outputs - targets).abs() * LENGTH < 0.5).squeeze(-1)


PLANTED: dict[type[Planted], set[str]] = {
    LeakedCounts: {"counts"},
    LeakedPlace: {"one-hots"},
    LeakedBigram: {"bigrams"},
    LeakedHalf: {"regions", "centroids"},
    LeakedOrder: {"order"},
    LeakedFirst: {"first tokens"},
    LeakedLast: {"last tokens"},
    LeakedVariety: {"variety"},
    LeakedWindowSum: {"window sums"},
    LeakedLastSymbol: {"last symbol"},
    LeakedPosition: {"position"},
    LeakedNeighbour: {"bigrams"},
    LeakedCentroid: {"centroids"},
}
"""And the classes that must be found to solve each."""
