"""Answers of a task, each with the tokens that are visible when it is given."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from whence.tasks import Task

PER_SEQUENCE = 4
"""Answers taken from one sequence of a task with an answer per token: neighbouring answers add little evidence."""


@dataclass(frozen=True)
class Answers:
    """A sample of answers and what a causal model sees of the sequence when it gives them."""

    task: Task
    size: int
    """Length of the problem, which may take more tokens than that."""
    tokens: Tensor
    """(answers, tokens) integers; tokens behind the answer's place hold `blank`."""
    place: Tensor
    """(answers,): index of the last visible token."""
    targets: Tensor
    """(answers,); (answers, outputs) for places and for regression."""
    sequence: Tensor
    """(answers,): which sequence an answer belongs to. Answers of one sequence depend on each other."""
    declared: dict[str, Tensor]
    """The task's own shortcuts, each in the shape of `targets` for classification."""

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, part: slice) -> Answers:
        tokens, place, targets, sequence = (of[part] for of in (self.tokens, self.place, self.targets, self.sequence))
        declared = {name: of[part] for name, of in self.declared.items()}
        return Answers(self.task, self.size, tokens, place, targets, sequence, declared)

    @property
    def blank(self) -> int:
        """Stands where no token is visible."""
        return self.task.symbols

    @property
    def length(self) -> int:
        return self.tokens.shape[1]

    @property
    def positions(self) -> Tensor:
        return torch.arange(self.length)

    @property
    def last(self) -> Tensor:
        """(answers, 1): the last visible token, the one that the answer is about in many tasks."""
        return self.tokens.gather(1, self.place[:, None])

    @functools.cached_property
    def visible(self) -> Tensor:
        """bool (answers, tokens)"""
        return self.positions <= self.place[:, None]

    def recent(self, count: int, skip: int = 0) -> Tensor:
        """(answers, count): the last `count` visible tokens, latest first, without the last `skip`; blanks before."""
        index = self.place[:, None] - skip - torch.arange(count)
        return torch.where(index >= 0, self.tokens.gather(1, index.clamp(min=0)), self.blank)


def draw(task: Task, length: int, *, first: int = 0, count: int, seed: int) -> Answers:
    """At least `count` answers from position `first` on, at random places of independent sequences."""
    generator = torch.Generator().manual_seed(seed)
    if task.per != "token":
        batch = task.sample(generator, count, length)
        end = torch.full((count,), batch.inputs.shape[1] - 1)
        return Answers(task, length, batch.inputs, end, batch.targets, torch.arange(count), task.shortcuts(batch))
    asked = task.counted(task.sample(torch.Generator().manual_seed(seed), 8, length), first)
    several = min(PER_SEQUENCE, int(asked.sum(1).min()))
    sequences = -(-count // several)
    batch = task.sample(generator, sequences, length)
    counted = task.counted(batch, first)
    chance = torch.rand(counted.shape, generator=generator).masked_fill(~counted, -1.0)
    place = chance.topk(several).indices
    row = torch.arange(sequences)[:, None].expand_as(place)
    place, row = place.flatten(), row.flatten()
    tokens = torch.where(torch.arange(batch.inputs.shape[1]) <= place[:, None], batch.inputs[row], task.symbols)
    declared = {name: feature[row, place] for name, feature in task.shortcuts(batch).items()}
    return Answers(task, length, tokens, place, batch.targets[row, place], row, declared)
