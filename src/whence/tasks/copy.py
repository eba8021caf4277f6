"""Say it again."""

from __future__ import annotations

import torch
from torch import Tensor

from whence.tasks._content import commonest, commonest_left, continued, following_left
from whence.tasks._prompted import Alphabet, Feed, Prompted
from whence.tasks.base import Answer, Batch


class Copy(Prompted):
    """Name the question's letters again, in their order.

    fed:    inputs  C A B | C A        blank:  inputs  C A B | _ _
            targets . . . C A B                targets . . . C A B

    With answers fed, content goes some way: look the previous letter up in the question and say what followed. Letters
    are few, so that it stands there several times over: that is in the floors. Two letters of context find the place
    four times in five, longer ones nearly always: copying with answers fed does not need position, with blanks it does.
    """

    shortest = 2
    examples = (
        ("", [2, 0, 1, 8, 2, 0], [None, None, None, 2, 0, 1]),
        ("answers=blank", [2, 0, 1, 8, 9, 9], [None, None, None, 2, 0, 1]),
    )

    def __init__(self, *, letters: Alphabet = 8, answers: Feed = "fed") -> None:
        super().__init__(letters, answers)

    def tokens(self, length: int) -> int:
        return 2 * length

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        question = torch.randint(self.letters, (batch, length), generator=generator)
        return self.lay_out(question, question)

    def solve(self, inputs: list[int]) -> list[Answer]:
        question = self.question_of(inputs)
        return self.unasked(question, question)

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        asked = batch.prompt - 1
        question, answer = batch.inputs[:, :asked], batch.targets[:, asked:]
        names = {"the commonest letter of the question": commonest(question, self.letters).expand_as(batch.inputs)}
        if not self.feeds_answers:
            return names
        followed = continued(question, batch.inputs)
        left = commonest_left(question, answer, self.letters)
        unused = following_left(question, answer, self.letters)
        return names | {
            "what most often followed the previous letter and is still unused": torch.cat([question, unused], 1),
            "the commonest letter that is still missing": torch.cat([question, left], 1),
            "what followed the previous letter in the question": followed,
        }
