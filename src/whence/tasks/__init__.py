"""Tasks: one file each. `TASKS.choose("k_back_recall:k=3")`.

A task generates batches with their positions and targets, and names the skill that it tests. Batches are drawn from a
generator, so that equal seeds give equal data to every model. `whence.shortcuts` measures the accuracy of predictors
without the skill.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from whence.registry import Choice, Registry, Variant, as_keywords

Per = Literal["token", "sequence", "place"]
Goal = Literal["classification", "regression"]
Answer = int | float | None
HOLD_COUNTS = frozenset({"counts", "bigrams", "trigrams", "skip-pairs", "regions", "order"})
"""Feature classes from which the exact number of each symbol can be computed."""
COMPARE_ENDS = frozenset({"bigrams", "trigrams", "skip-pairs", "ends"})
"""Feature classes that compare the ends of a sequence.

Counts of pairs do so by a telescoping sum: a symbol that begins more pairs than it ends stands at the beginning. Pairs
with a gap compare the first two tokens with the last two.
"""


@dataclass(frozen=True)
class Batch:
    """Inputs, positions and targets of several sequences.

    Example:
        >>> task = whence.tasks.KBackRecall(k=2)
        >>> batch = task.sample(torch.Generator().manual_seed(0), batch=4, length=8)
        >>> batch.inputs.shape, batch.positions.shape
        (torch.Size([4, 8]), torch.Size([1, 8]))
        >>> batch.scored[0].tolist()  # there is no symbol two places before the first two
        [False, False, True, True, True, True, True, True]
    """

    inputs: Tensor
    """(batch, tokens) integers."""
    positions: Tensor
    """(1, tokens): shared by all rows."""
    targets: Tensor
    """In the shape of `scored`; for regression floats, with one more axis of `outputs`."""
    scored: Tensor
    """bool, which answers are scored: (batch, tokens) per token, (batch,) per sequence, (batch, outputs) per place."""
    prompt: int = 0
    """Number of leading tokens that form the prompt. Prefix attention is bidirectional within it."""

    def to(self, device: torch.device) -> Batch:
        tensors = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name != "prompt"}
        return replace(self, **tensors)


class Task(Variant, abc.ABC):
    """Base class of tasks, one per file. `symbols` is the number of input symbols, `outputs` of classes or places.

    A subclass implements `sample`, which draws a `Batch`, and `solve`, which computes the
    answers to one sequence.

    Example:
        >>> task = whence.tasks.Parity()
        >>> task.per, task.symbols, task.outputs
        ('sequence', 2, 2)
    """

    per: Per = "token"
    """One answer per token, one per sequence, or positions in the sequence (as many as `outputs`)."""
    goal: ClassVar[Goal] = "classification"
    ranked: ClassVar[bool] = True
    """Whether results on this task rank models. False if a predictor without the skill is known to solve it."""
    version: ClassVar[int] = 1
    """Version of the generator. Increase it when the data of a seed change."""
    dense: ClassVar[bool] = False
    """Whether every prefix of a sequence is a problem of its own. Training at full length then covers shorter lengths,
    and out of distribution only later positions are scored."""
    feeds_answers: bool = False
    """Whether earlier answers are inputs, shifted by one position as in a language model. Requires a causal model."""
    shortest: int = 1
    longest: int | None = None
    train_length: ClassVar[int] = 32
    stretch: ClassVar[tuple[int, ...]] = (2, 4)
    """Default OOD lengths, as multiples of the training length."""
    examples: ClassVar[tuple[tuple[str, list[int], list[Answer]], ...]] = ()
    """Examples worked by hand: (options as on the command line, inputs, expected result of `solve`)."""
    skill: str = ""
    """The skill that the task tests, in one sentence."""
    expressed_by: frozenset[str] = frozenset()
    """Feature classes (see `whence.shortcuts.classes`) that express the skill. All others are shortcuts."""
    shortcut_window: int = 8
    """Largest number of preceding tokens that counts as a shortcut; longer windows express the skill."""
    symbols: int
    outputs: int

    @abc.abstractmethod
    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        """Draw independent sequences of one length."""

    @abc.abstractmethod
    def solve(self, inputs: list[int]) -> list[Answer]:
        """The answers to one sequence in plain Python, with which the tests check the targets.

        One per token (None where none is scored), one per sequence, or one per place.
        """

    @classmethod
    def usage(cls) -> list[str]:
        if not cls.examples:
            return []
        options, inputs, answers = cls.examples[0]
        return [
            f">>> whence.tasks.{cls.__name__}({as_keywords(options)}).solve({inputs})",
            f"{answers}",
            f">>> task = whence.tasks.{cls.__name__}()",
            ">>> batch = task.sample(torch.Generator().manual_seed(0), batch=4, length=task.train_length)",
            ">>> batch.inputs.shape == (4, task.tokens(task.train_length))",
            "True",
        ]

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        """Shortcuts of this task, in addition to the general ones: integers in the shape of `scored`.

        The search measures the accuracy of a lookup table on each.
        """
        return {}

    def answer_keys(self, batch: Batch) -> Tensor | None:
        """The token that holds the answer to each query, for attention maps.

        Returns:
            (batch or 1, tokens) indices of tokens, −1 where nothing is asked. None if the task declares no such
            token, which is the default.
        """
        return None

    def tokens(self, length: int) -> int:
        """Number of tokens of a problem of this length."""
        return length

    def ood_lengths(self, train_length: int) -> tuple[int, ...]:
        stretched = (factor * train_length for factor in self.stretch)
        return tuple(length for length in stretched if self.longest is None or length <= self.longest)

    def counted(self, batch: Batch, first: int) -> Tensor:
        """`scored`, without positions before `first` in a task with an answer at every position."""
        return batch.scored & (batch.positions >= first) if self.dense and self.per == "token" else batch.scored

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """bool, like `scored`: whether an answer is correct."""
        return outputs.argmax(-1) == targets

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *sorted(vars(self).items())))


def line(length: int) -> Tensor:
    """The positions 0 … length−1 of a plain sequence, shape (1, length)."""
    return torch.arange(length)[None]


TASKS: Registry[Task] = Registry(__name__, Task)
TaskChoice = Annotated[Choice[Task], TASKS]


def __getattr__(name: str) -> type[Task]:
    return TASKS.attribute(name)


def __dir__() -> list[str]:
    return ["TASKS", "Batch", "Task", *TASKS.public_names()]
