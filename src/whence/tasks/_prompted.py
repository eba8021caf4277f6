"""Tasks with a prompt, followed by the answer token by token, as in a language model."""

from __future__ import annotations

import abc
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks import Answer, Batch, Task, line
from whence.tasks._shortcuts import commonest, commonest_left, continued, following_left

Feed = Annotated[
    Literal["fed", "blank"],
    Field(description="fed: earlier answers are inputs, as in a language model; blank: they are replaced by blanks"),
]
Alphabet = Annotated[int, Field(ge=2, le=2**16, description="number of symbols")]


class Prompted(Task):
    """Random letters, a separator, and the answer. Blanks stand in place of answers that are not fed.

    With answers fed, a sequence is entirely correct exactly if the model would generate it token by token.
    """

    skill = "Retrieve the letter of the question that belongs at this position of the answer."
    train_length = 16
    shortest = 2

    def __init__(self, *, letters: Alphabet = 8, answers: Feed = "fed") -> None:
        self.letters, self.outputs, self.symbols = letters, letters, letters + 2
        self.separator, self.blank = letters, letters + 1
        self.feeds_answers = answers == "fed"
        if self.feeds_answers:
            self.skill += (
                " With answers fed, continuing the longest suffix that occurred before is one way to solve it."
            )
            self.expressed_by = frozenset({"suffix"})

    @abc.abstractmethod
    def answer(self, question: Tensor) -> Tensor:
        """(batch, length) → (batch, as long as the answer is)."""

    def tokens(self, length: int) -> int:
        return 2 * length

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        question = torch.randint(self.letters, (batch, length), generator=generator)
        answer = self.answer(question)
        separator = torch.full((batch, 1), self.separator)
        back = answer[:, :-1] if self.feeds_answers else torch.full_like(answer[:, :-1], self.blank)
        inputs = torch.cat([question, separator, back], 1)
        targets = torch.cat([torch.zeros_like(question), answer], 1)
        positions = line(inputs.shape[1])
        return Batch(inputs, positions, targets, (positions >= length).expand(batch, -1), prompt=length + 1)

    def answer_keys(self, batch: Batch) -> Tensor | None:
        """For answers that rearrange the question by position alone: `answer`, applied to the indices."""
        asked = batch.prompt - 1
        return torch.cat([torch.full((1, asked), -1), self.answer(line(asked))], 1)

    def question_of(self, inputs: list[int]) -> list[int]:
        return inputs[: inputs.index(self.separator)]

    def unasked(self, question: list[int], answer: list[int]) -> list[Answer]:
        """Answers by position: None within the question."""
        return [*[None] * len(question), *answer]

    def through_content(self, batch: Batch, shown: Tensor, follow: str = "followed") -> dict[str, Tensor]:
        """Shortcuts through letters instead of positions. `shown` is the question in the order of the answer."""
        question, answer = batch.inputs[:, : batch.prompt - 1], batch.targets[:, batch.prompt - 1 :]
        names = {"the commonest letter of the question": commonest(question, self.letters).expand_as(batch.inputs)}
        if not self.feeds_answers:
            return names
        unused = following_left(shown, answer, self.letters)
        missing = commonest_left(question, answer, self.letters)
        return names | {
            f"what most often {follow} the previous letter and is still unused": torch.cat([question, unused], 1),
            "the commonest letter that is still missing": torch.cat([question, missing], 1),
            f"what {follow} the previous letter in the question": continued(shown, batch.inputs),
        }
