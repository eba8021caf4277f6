"""Reverse a sequence."""

from __future__ import annotations

from torch import Tensor

from whence.tasks import Answer, Batch
from whence.tasks._prompted import Prompted


class Reverse(Prompted):
    """Repeat the letters of the prompt from the last to the first.

    fed:    inputs  C A B | B A        blank:  inputs  C A B | _ _
            targets . . . B A C                targets . . . B A C

    The distance to the required letter grows by two with every answer, so no fixed offset solves the task. With answers
    fed, it can be solved through content: find the last few answers in the reversed prompt and predict the letter that
    follows. Predictions from the previous letter alone are shortcuts.
    """

    examples = (
        ("", [2, 0, 1, 8, 1, 0], [None, None, None, 1, 0, 2]),
        ("answers=blank", [2, 0, 1, 8, 9, 9], [None, None, None, 1, 0, 2]),
    )

    def answer(self, question: Tensor) -> Tensor:
        return question.flip(1)

    def solve(self, inputs: list[int]) -> list[Answer]:
        question = self.question_of(inputs)
        return self.unasked(question, [question[-place] for place in range(1, len(question) + 1)])

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        question = batch.inputs[:, : batch.prompt - 1]
        last = {"the last letter of the question": question[:, -1:].expand_as(batch.inputs)}
        return last | self.through_content(batch, question.flip(1), "stood before")
