"""Tasks: one file each. `TASKS.choose("k_back_recall:k=3")`.

A task is a recipe for batches, with the positions in them, the truth about them, and the skill it asks for. It is
made of whole batches drawn from a generator, so that equal seeds give equal data to every model.
`whence.shortcuts` measures what predictors without the skill reach.
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
    """What a model sees and what it should answer. Positions are data like everything else.

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
    """What is right, in the shape of `scored`; for regression floats, with one more axis of `outputs`."""
    scored: Tensor
    """bool, where an answer counts: (batch, tokens) per token, (batch,) per sequence, (batch, outputs) per place."""
    prompt: int = 0
    """How many tokens in front are given at once; a model with prefix attention may look ahead within them."""

    def to(self, device: torch.device) -> Batch:
        tensors = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name != "prompt"}
        return replace(self, **tensors)


class Task(Variant, abc.ABC):
    """One file, one task. `symbols` kinds of input, `outputs` kinds of answer (per place: so many places to name).

    Base class of all tasks. A subclass implements `sample`, which draws a `Batch`, and `solve`, which computes the
    answers to one sequence.

    Example:
        >>> task = whence.tasks.Parity()
        >>> task.per, task.symbols, task.outputs
        ('sequence', 2, 2)
    """

    per: Per = "token"
    """An answer for every token, one for the sequence, or places in it (as many as `outputs`)."""
    goal: ClassVar[Goal] = "classification"
    ranked: ClassVar[bool] = True
    """Whether results on this task may rank models. False if a predictor without the skill is known to solve it."""
    version: ClassVar[int] = 1
    """Version of the generator. Raise it when the data that a seed gives change."""
    dense: ClassVar[bool] = False
    """Every beginning of a sequence is a problem of its own: training at full length covers the shorter ones, and
    beyond training only the later positions count."""
    feeds_answers: bool = False
    """Earlier answers are among the inputs, one place late, as a language model sees them: no looking ahead."""
    shortest: int = 1
    longest: int | None = None
    train_length: ClassVar[int] = 32
    stretch: ClassVar[tuple[int, ...]] = (2, 4)
    """Lengths beyond training, as multiples of the training length, unless the user names others."""
    examples: ClassVar[tuple[tuple[str, list[int], list[Answer]], ...]] = ()
    """Worked by hand: (options as a user writes them, inputs, what `solve` must say)."""
    skill: str = ""
    """One sentence: what a model must be able to do to solve the task."""
    expressed_by: frozenset[str] = frozenset()
    """Feature classes (see `whence.shortcuts.classes`) whose use *is* the skill. All others are shortcuts."""
    shortcut_window: int = 8
    """Number of tokens before the current one that do not express the skill: longer windows are no shortcuts."""
    symbols: int
    outputs: int

    @abc.abstractmethod
    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        """Independent sequences of one length."""

    @abc.abstractmethod
    def solve(self, inputs: list[int]) -> list[Answer]:
        """The answers to one sequence, from the inputs alone, in plain Python: the truth that labels are held to.

        One per token (None where none is asked), or one, or one per place.
        """

    @classmethod
    def usage(cls) -> list[str]:
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
        """Shortcuts of this task alone, to be searched beside the general ones: integers in the shape of `scored`.

        The search measures the best use of each by a lookup table.
        """
        return {}

    def tokens(self, length: int) -> int:
        """How many tokens a problem of this length takes."""
        return length

    def ood_lengths(self, train_length: int) -> tuple[int, ...]:
        stretched = (factor * train_length for factor in self.stretch)
        return tuple(length for length in stretched if self.longest is None or length <= self.longest)

    def counted(self, batch: Batch, first: int) -> Tensor:
        """`scored`, without what lies before position `first` in a task that is asked at every position."""
        return batch.scored & (batch.positions >= first) if self.dense and self.per == "token" else batch.scored

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """bool, like `scored`: is this answer right?"""
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
