"""Copy a sequence several times."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks import Answer, Batch
from whence.tasks._prompted import Alphabet, Feed, Prompted


class RepeatCopy(Prompted):
    """Repeat the letters of the prompt in order, several times.

    times = 2:  inputs  C A | C A C
                targets . . C A C A

    With answers fed, the task can be solved through content, as in copying: find the last few answers among the earlier
    tokens and predict the letter that followed them. Predictions from the previous letter alone (the first letter
    after the last) are shortcuts.
    """

    examples = (
        ("times=2", [2, 0, 8, 2, 0, 2], [None, None, 2, 0, 2, 0]),
        ("answers=blank", [2, 0, 8, 9, 9, 9, 9, 9], [None, None, 2, 0, 2, 0, 2, 0]),
    )

    def __init__(
        self,
        *,
        times: Annotated[int, Field(ge=1, le=1000, description="number of repetitions")] = 3,
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
