"""Sort letters."""

from __future__ import annotations

import torch
from torch import Tensor

from whence.tasks import HOLD_COUNTS, Answer, Batch
from whence.tasks._prompted import Alphabet, Feed, Prompted
from whence.tasks._shortcuts import counts_of


class Sort(Prompted):
    """Repeat the letters of the prompt in ascending order.

    fed:    inputs  C A D A | A A C        blank:  inputs  C A D A | _ _ _
            targets . . . . A A C D                targets . . . . A A C D

    This is a control task: positions within the prompt do not matter, and the counts of its letters suffice. An
    encoding that helps here does not help through position in the prompt. Counts of the letters express the skill.
    Shortcuts are the position in the answer (the seventh letter of sixteen is likely in the middle of the alphabet) and
    the set of letters without their counts.
    """

    examples = (
        ("", [2, 0, 3, 0, 16, 0, 0, 2], [None, None, None, None, 0, 0, 2, 3]),
        ("answers=blank", [2, 0, 3, 0, 16, 17, 17, 17], [None, None, None, None, 0, 0, 2, 3]),
    )

    def __init__(self, *, letters: Alphabet = 16, answers: Feed = "fed") -> None:
        super().__init__(letters=letters, answers=answers)
        self.skill = "Count the letters of the prompt and list them in ascending order."
        self.expressed_by = HOLD_COUNTS | {"one-hots"}

    def answer_keys(self, batch: Batch) -> None:
        """None: the place of a letter in the answer depends on all letters."""

    def answer(self, question: Tensor) -> Tensor:
        return question.sort(1).values

    def solve(self, inputs: list[int]) -> list[Answer]:
        question = self.question_of(inputs)
        return self.unasked(question, [x for x in range(self.letters) for letter in question if letter == x])

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        inputs, asked = batch.inputs, batch.prompt - 1
        place = batch.positions.expand_as(inputs)
        if not self.feeds_answers:
            return {"the place in the answer": place}
        return {
            "the place in the answer": place,
            "the place and the previous answer": place * self.symbols + inputs,
            "the previous answer and the next letter that occurs": inputs * self.symbols
            + self._next_larger(inputs[:, :asked]).gather(1, inputs),
        }

    def _next_larger(self, question: Tensor) -> Tensor:
        """For every letter the next that the question holds, for the separator the first; `letters` where none is."""
        occurs = counts_of(question, self.letters) > 0
        following = torch.full((len(question), self.letters + 1), self.letters)
        following[:, self.separator] = occurs.long().argmax(1)
        for letter in range(self.letters - 2, -1, -1):
            following[:, letter] = torch.where(occurs[:, letter + 1], letter + 1, following[:, letter + 1])
        return following
