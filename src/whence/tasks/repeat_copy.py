"""Say it again, several times."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks import Answer, Batch
from whence.tasks._prompted import Alphabet, Feed, Prompted


class RepeatCopy(Prompted):
    """Name the question's letters in their order, and begin again, so many times over.

    times = 2:  inputs  C A | C A C
                targets . . C A C A

    With answers fed, content is one way to solve the task, as in copying: find the last few answers among the tokens so
    far and name the letter that followed them. What the previous letter alone tells (after the question's last letter,
    its first) is a shortcut.
    """

    examples = (
        ("times=2", [2, 0, 8, 2, 0, 2], [None, None, 2, 0, 2, 0]),
        ("answers=blank", [2, 0, 8, 9, 9, 9, 9, 9], [None, None, 2, 0, 2, 0, 2, 0]),
    )

    def __init__(
        self,
        *,
        times: Annotated[int, Field(ge=1, le=1000, description="how often to say it")] = 3,
        letters: Alphabet = 8,
        answers: Feed = "fed",
    ) -> None:
        super().__init__(letters=letters, answers=answers)
        self.times = times

    def tokens(self, length: int) -> int:
        return (1 + self.times) * length

    def answer(self, question: Tensor) -> Tensor:
        return question.repeat(1, self.times)

    def solve(self, inputs: list[int]) -> list[Answer]:
        question = self.question_of(inputs)
        rounds = len(inputs) // len(question) - 1
        return self.unasked(question, [letter for _ in range(rounds) for letter in question])

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        question = batch.inputs[:, : batch.prompt - 1]
        return self.through_content(batch, torch.cat([question, question[:, :1]], 1))
