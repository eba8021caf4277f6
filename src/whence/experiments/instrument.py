"""What an instrument supplies. Everything else about a comparison is shared (`whence.experiments.comparison`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

import pydantic
from pydantic import Field

from whence import stats
from whence.config import Config
from whence.errors import UserError
from whence.experiments.looks import variant
from whence.experiments.saved import Presets
from whence.experiments.table import Column, Criterion, Family, PlannedTable, Row, Table
from whence.store.artifacts import Artifact, ArtifactKind
from whence.store.runs import Store
from whence.training.config import AnyRun

if TYPE_CHECKING:
    from whence.report.shell import go  # plotly has no type stubs

R = TypeVar("R", bound=AnyRun)


class ComparisonConfig(Config):
    """What every comparison can be asked for."""

    GROUP: ClassVar[str] = "Seeds"

    seeds: int = Field(
        default=3, ge=1, le=1000, description="paired seeds per variant; below 6 a table is headed exploratory"
    )
    first_seed: int = Field(default=0, ge=0, le=2**31, description="the first of them; the others follow")
    until_decided: bool = Field(
        default=False, description="add paired seeds until every comparison is decided, or max_seeds are spent"
    )
    max_seeds: int = Field(default=16, ge=1, le=1000, description="the budget of until_decided, in seeds")

    @property
    def seed_range(self) -> range:
        """Seeds that are planned; with `until_decided`, those to begin with."""
        count = self.seeds
        if self.until_decided:  # fewer could not decide anything
            count = max(count, min(stats.SEEDS_TO_DECIDE, self.max_seeds))
        return range(self.first_seed, self.first_seed + count)

    @property
    def variants(self) -> int:
        """How many runs every seed takes, computed from the lengths of lists alone."""
        return 1

    @property
    def further_runs(self) -> int:
        """Beside those of tables"""
        return 0

    @pydantic.model_validator(mode="after")
    def _limit_runs(self) -> Self:
        """Before they are planned: nobody waits for a mistyped sweep."""
        seeds = max(len(self.seed_range), self.max_seeds if self.until_decided else 0)
        count = self.variants * seeds + self.further_runs
        if count > MOST_RUNS:
            raise UserError(
                f"seeds: this comparison has {count:,} runs ({self.variants:,} for each of {seeds} seeds"
                + (f", {self.further_runs:,} to tune" if self.further_runs else "")
                + f"). Allowed: up to {MOST_RUNS:,}."
            )
        return self

    @property
    def design(self) -> stats.TestDesign:
        return "sequential" if self.until_decided else "fixed"

    @property
    def error_family(self) -> Family:
        return "table"

    def with_seeds(self, count: int) -> Any:
        return self.model_copy(update={"seeds": count, "until_decided": False})

    def check_budget(self) -> None:
        if self.until_decided and self.seeds > self.max_seeds:
            raise UserError(
                f"max_seeds: {self.max_seeds} are fewer than the {self.seeds} to begin with. Allowed: {self.seeds} or "
                "more, or fewer seeds."
            )


MOST_VARIANTS = 100
"""Of one kind, in one list: a table compares them in pairs"""
MOST_RUNS = 10_000
"""Of one comparison, those of tuning included"""
C = TypeVar("C", bound=ComparisonConfig)
Q = TypeVar("Q", bound=Config)
T = TypeVar("T", bound=Config)
OnProgress = Callable[[str], None]


@dataclass(frozen=True)
class Measurement(Generic[Q, T]):
    """Something that a table shows and training does not give, such as the cost of a model. Stored as an artifact."""

    kind: ArtifactKind[Q, T]
    request: Q
    label: str
    """For progress lines"""
    compute: Callable[[], T]


@dataclass(frozen=True)
class Action(Generic[Q, T]):
    """What an instrument measures on request, outside of comparisons: `whence INSTRUMENT VERB`, or a job of the app.

    `run` returns the stored artifact where there is one, and measures otherwise. Its request may hold more than the
    configuration, such as the checksum of a file.
    """

    verb: str
    config: type[Q]
    run: Callable[[Q, Store, OnProgress], Artifact[Any, T]]
    title: Callable[[Q], str]
    """One line, for lists"""


@dataclass(frozen=True)
class Summary:
    """A small table over all tables of a comparison."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]


class Instrument(Protocol[C, R]):
    """One instrument's comparisons. Methods with a body are defaults that an instrument may override."""

    name: str
    config: type[C]
    run: type[R]
    """What it trains, one at a time: `whence INSTRUMENT train`"""
    presets: Presets[Any] | None = None
    actions: Sequence[Action[Any, Any]] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """The words of the command line that start a comparison."""
        return (self.name, "compare")

    @abstractmethod
    def title(self, config: C) -> str:
        """One line, for lists of comparisons."""
        ...

    @abstractmethod
    def plan(self, config: C, store: Store) -> list[PlannedTable[R]]:
        """Tables and runs, unchecked. What tuning chose, and seeds that were added, are read from the store."""
        ...

    def tables_of_runs(self, runs: Sequence[R]) -> Sequence[PlannedTable[R]]:
        """Tables of runs that were chosen one by one: a row for those that differ in nothing but the seed."""
        groups: dict[str, list[R]] = {}
        for run in runs:
            groups.setdefault(variant(run), []).append(run)
        labels = [", ".join(own[0].labels().values()) for own in groups.values()]
        variants = {
            label if labels.count(label) == 1 else f"{label} · {own[0].id[:6]}": own
            for label, own in zip(labels, groups.values(), strict=True)
        }
        return [PlannedTable("single runs", variants, (), ())]

    def stages(self, config: C, store: Store) -> Iterator[Sequence[R]]:
        """Runs that must end before the plan is known, such as those of tuning."""
        yield from ()

    @abstractmethod
    def rows(self, planned: PlannedTable[R], rows: Sequence[Row[R]], store: Store) -> Sequence[Row[R]]:
        """The same rows with their cells."""
        ...

    @abstractmethod
    def columns(self, planned: PlannedTable[R], rows: Sequence[Row[R]]) -> Sequence[Column]: ...

    def comparable(self, planned: PlannedTable[R], row: Row[R], criterion: Criterion) -> bool:
        """Whether a row may be ranked."""
        return True

    def caption(self, table: Table[R]) -> str:
        """What the columns are, in a line."""
        return ""

    def conclusion(self, table: Table[R]) -> str:
        """The result in one sentence, with which a page begins."""
        if table.untested:
            return f"{table.untested}."
        if text := stats.conclusion(table.comparisons, design=table.design):
            return f"{text}."
        return "No verdict: " + ("no two variants can be ranked." if table.planned.pairs else "nothing is compared.")

    def findings(self, table: Table[R]) -> Sequence[str]:
        """One sentence per line: what the table shows, and failed runs."""
        return [*table.lost, *stats.report(table.comparisons)]

    def measurements(self, planned: PlannedTable[R], store: Store) -> Sequence[Measurement[Any, Any]]:
        return ()

    def style(self, table: Table[R], name: str) -> Mapping[str, str]:
        """Colour and dash of a variant, as its figures draw it; empty where they draw all alike."""
        return {}

    def figures(self, table: Table[R]) -> Mapping[str, go.Figure]:
        """By heading, for pages and the app."""
        return {}

    def sections(self, tables: Sequence[Table[R]], store: Store) -> Mapping[str, Sequence[str]]:
        """By the title of a table, more HTML for its part of the page, after its figures."""
        return {}

    def evidence(self, table: Table[R]) -> Sequence[str]:
        """HTML for the section "How we know" of a table, after the statistics."""
        return ()

    def summary(self, tables: Sequence[Table[R]]) -> Summary | None:
        return None

    def records(self, table: Table[R]) -> Iterator[dict[str, Any]]:
        """For CSV: by default one line per run, with every number that the table shows."""
        for row in table.rows:
            for result in row.finished:
                seed = result.run.seed
                scores = {column.key: row.cell(column.key).per_seed for column in table.columns}
                numbers = {key: per_seed[seed] for key, per_seed in scores.items() if seed in per_seed}
                names = {"table": table.title, "variant": row.name, "seed": seed}
                yield {**names, **numbers, "run": result.run.id, "seconds": result.seconds}
