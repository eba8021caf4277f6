"""Copy a sequence."""

from __future__ import annotations

from torch import Tensor

from whence.tasks import Answer, Batch
from whence.tasks._prompted import Prompted


class Copy(Prompted):
    """Repeat the letters of the prompt in order.

    fed:    inputs  C A B | C A        blank:  inputs  C A B | _ _
            targets . . . C A B                targets . . . C A B

    With answers fed, the task can be solved through content: find the last few answers in the prompt and predict the
    letter that followed them. Suffixes of up to three letters are correct in about 90 % of cases and longer ones
    nearly always, so copying with answers fed does not need position. With blanks it does. Predictions from the
    previous letter alone are shortcuts.
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
