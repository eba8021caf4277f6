"""Recall the value of a key."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import one_hot

from whence.tasks import Answer, Batch, Task, line
from whence.tasks._shortcuts import commonest


class AssociativeRecall(Task):
    """Predict the value of each key, after a list of key-value pairs.

    inputs  K 3 M 1 N 3 | M N K        (the bar is not a token)
    targets . . . . . . | 1 3 3

    The length is the number of pairs. Each key occurs once in the list, and the order of the queries is
    independent of the order of the pairs, so a value can only be found through the key beside it. With few pairs,
    knowing which values occur is a shortcut.
    """

    skill = "Look up the value beside the queried key."
    expressed_by = frozenset({"bigrams", "trigrams"})
    shortest = 2
    train_length = 8
    examples = (("keys=4,values=5", [0, 7, 2, 5, 3, 7, 2, 3, 0], [None, None, None, None, None, None, 1, 3, 3]),)

    def __init__(
        self,
        *,
        keys: Annotated[int, Field(ge=2, le=2**16, description="number of keys, and maximum number of pairs")] = 64,
        values: Annotated[int, Field(ge=2, le=2**16, description="number of values")] = 16,
    ) -> None:
        self.keys = self.longest = keys
        self.values = self.outputs = values
        self.symbols = keys + values  # numbered in this order

    def tokens(self, length: int) -> int:
        return 3 * length

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        keys = torch.rand(batch, self.keys, generator=generator).topk(length).indices
        values = torch.randint(self.values, (batch, length), generator=generator)
        order = torch.rand(batch, length, generator=generator).argsort(1)
        pairs = torch.stack([keys, values + self.keys], 2).flatten(1)
        inputs = torch.cat([pairs, keys.gather(1, order)], 1)
        targets = torch.cat([torch.zeros_like(pairs), values.gather(1, order)], 1)
        scored = (line(3 * length) >= 2 * length).expand(batch, -1)
        return Batch(inputs, line(3 * length), targets, scored, prompt=2 * length)

    def solve(self, inputs: list[int]) -> list[Answer]:
        shown = 2 * (len(inputs) // 3)
        value_of = {inputs[place]: inputs[place + 1] - self.keys for place in range(0, shown, 2)}
        return [*[None] * shown, *[value_of[key] for key in inputs[shown:]]]

    def answer_keys(self, batch: Batch) -> Tensor:
        """The value beside the key that is asked for."""
        inputs, shown = batch.inputs, batch.prompt
        pair = (inputs[:, shown:, None] == inputs[:, None, :shown:2]).long().argmax(2)
        return torch.cat([torch.full((len(inputs), shown), -1), 2 * pair + 1], 1)

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        inputs, shown = batch.inputs, batch.prompt
        values = inputs[:, 1:shown:2] - self.keys
        return {
            "the commonest value shown": commonest(values, self.values).expand_as(inputs),
            "the latest value shown": values[:, -1:].expand_as(inputs),
            "the value at the same place in the order": torch.cat([inputs[:, :shown], values], 1),
            "the key alone": inputs,
            **{
                f"the commonest value in the same {name} of the list as the key": self._by_region(batch, parts)
                for name, parts in (("half", 2), ("quarter", 4))
            },
        }

    def _by_region(self, batch: Batch, parts: int) -> Tensor:
        """For each key that is asked for, the commonest value in its part of the list."""
        inputs, shown = batch.inputs, batch.prompt
        keys, values, asked = inputs[:, :shown:2], inputs[:, 1:shown:2] - self.keys, inputs[:, shown:]
        region = line(keys.shape[1])[0] * parts // keys.shape[1]
        counts = one_hot(values, self.values).new_zeros(len(inputs), parts, self.values)
        counts.index_add_(1, region, one_hot(values, self.values))
        place = (asked[:, :, None] == keys[:, None, :]).long().argmax(2)
        return torch.cat([inputs[:, :shown], counts.argmax(2).gather(1, region[place])], 1)
