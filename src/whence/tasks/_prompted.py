"""Question first, then the answer token by token, as a language model sees it."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks.base import Answer, Batch, Task, line

Feed = Annotated[
    Literal["fed", "blank"],
    Field(
        description="fed: earlier answers are inputs, as in a language model; blank: nothing is, all are given at once"
    ),
]
Alphabet = Annotated[int, Field(ge=2, description="size of the alphabet")]


class Prompted(Task):
    """`symbols` letters, then a separator, then a blank: inputs are the question, the separator, earlier answers.

    The answer to a fed sequence is right as a whole exactly if the model would have generated it, letter by letter.
    """

    train_length = 16
    letters: int

    def __init__(self, letters: int, answers: str) -> None:
        self.letters, self.outputs, self.symbols = letters, letters, letters + 2
        self.feeds_answers = answers == "fed"

    @property
    def separator(self) -> int:
        return self.letters

    @property
    def blank(self) -> int:
        return self.letters + 1

    def lay_out(self, question: Tensor, answer: Tensor) -> Batch:
        batch, asked = len(question), question.shape[1]
        separator = torch.full((batch, 1), self.separator)
        back = answer[:, :-1] if self.feeds_answers else torch.full_like(answer[:, :-1], self.blank)
        inputs = torch.cat([question, separator, back], 1)
        targets = torch.cat([torch.zeros_like(question), answer], 1)
        positions = line(inputs.shape[1])
        scored = (positions >= asked).expand(batch, -1)
        return Batch(inputs, positions, targets, scored, prompt=asked + 1)

    def question_of(self, inputs: list[int]) -> list[int]:
        return inputs[: inputs.index(self.separator)]

    def unasked(self, question: list[int], answer: list[int]) -> list[Answer]:
        """Answers in their places: none is asked for within the question."""
        return [*[None] * len(question), *answer]
