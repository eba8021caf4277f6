"""Say it backwards."""

from __future__ import annotations

import torch
from torch import Tensor

from whence.tasks._content import commonest, commonest_left, continued, following_left
from whence.tasks._prompted import Alphabet, Feed, Prompted
from whence.tasks.base import Answer, Batch


class Reverse(Prompted):
    """Name the question's letters from the last to the first.

    fed:    inputs  C A B | B A        blank:  inputs  C A B | _ _
            targets . . . B A C                targets . . . B A C

    The distance to the letter that is asked for grows by two with every answer: no fixed offset helps. With answers
    fed, what stood before the previous letter goes some way: that is in the floors.
    """

    shortest = 2
    examples = (
        ("", [2, 0, 1, 8, 1, 0], [None, None, None, 1, 0, 2]),
        ("answers=blank", [2, 0, 1, 8, 9, 9], [None, None, None, 1, 0, 2]),
    )

    def __init__(self, *, letters: Alphabet = 8, answers: Feed = "fed") -> None:
        super().__init__(letters, answers)

    def tokens(self, length: int) -> int:
        return 2 * length

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        question = torch.randint(self.letters, (batch, length), generator=generator)
        return self.lay_out(question, question.flip(1))

    def solve(self, inputs: list[int]) -> list[Answer]:
        question = self.question_of(inputs)
        return self.unasked(question, [question[-place] for place in range(1, len(question) + 1)])

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        asked = batch.prompt - 1
        question, answer = batch.inputs[:, :asked], batch.targets[:, asked:]
        names = {
            "the commonest letter of the question": commonest(question, self.letters).expand_as(batch.inputs),
            "the last letter of the question": question[:, -1:].expand_as(batch.inputs),
        }
        if not self.feeds_answers:
            return names
        followed = continued(question.flip(1), batch.inputs)
        left = commonest_left(question, answer, self.letters)
        unused = following_left(question.flip(1), answer, self.letters)
        return names | {
            "what most often stood before the previous letter and is still unused": torch.cat([question, unused], 1),
            "the commonest letter that is still missing": torch.cat([question, left], 1),
            "what stood before the previous letter in the question": followed,
        }
