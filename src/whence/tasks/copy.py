"""Say it again."""

from __future__ import annotations

from torch import Tensor

from whence.tasks import Answer, Batch
from whence.tasks._prompted import Prompted


class Copy(Prompted):
    """Name the question's letters again, in their order.

    fed:    inputs  C A B | C A        blank:  inputs  C A B | _ _
            targets . . . C A B                targets . . . C A B

    With answers fed, content is one way to solve the task: find the last few answers in the question and name the
    letter that followed them. Suffixes of up to three letters are right in about 90 % of cases, longer ones nearly
    always, so copying with answers fed does not need position. With blanks it does. What the previous letter alone
    tells is a shortcut.
    """

    examples = (
        ("", [2, 0, 1, 8, 2, 0], [None, None, None, 2, 0, 1]),
        ("answers=blank", [2, 0, 1, 8, 9, 9], [None, None, None, 2, 0, 1]),
    )

    def answer(self, question: Tensor) -> Tensor:
        return question

    def solve(self, inputs: list[int]) -> list[Answer]:
        question = self.question_of(inputs)
        return self.unasked(question, question)

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        question = batch.inputs[:, : batch.prompt - 1]
        return self.through_content(batch, question)
