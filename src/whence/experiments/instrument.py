"""The interface of an instrument. Everything else about a comparison is shared (`whence.experiments.comparison`)."""

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
    """Fields that all comparisons share."""

    GROUP: ClassVar[str] = "Seeds"

    seeds: int = Field(
        default=3, ge=1, le=1000, description="number of random seeds per variant; below 6 results are exploratory"
    )
    first_seed: int = Field(default=0, ge=0, le=2**31, description="first random seed; the others are consecutive")
    until_decided: bool = Field(
        default=False,
        description="add seeds until every comparison is decided or max_seeds is reached (sequential test)",
    )
    max_seeds: int = Field(
        default=16, ge=1, le=1000, description="maximum number of seeds per variant of until_decided"
    )

    @property
    def seed_range(self) -> range:
        """Planned seeds; with `until_decided`, the seeds to begin with."""
        count = self.seeds
        if self.until_decided:  # fewer cannot decide anything
            count = max(count, min(stats.SEEDS_TO_DECIDE, self.max_seeds))
        return range(self.first_seed, self.first_seed + count)

    @property
    def variants(self) -> int:
        """Number of runs per seed, computed without planning them."""
        return 1

    @property
    def further_runs(self) -> int:
        """Number of runs that are in no table, such as tuning runs."""
        return 0

    @pydantic.model_validator(mode="after")
    def _limit_runs(self) -> Self:
        """Limit the number of runs before they are planned, so that a mistyped sweep fails at once."""
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
                f"max_seeds: {self.max_seeds} is less than seeds={self.seeds}. Allowed: {self.seeds} or more, or fewer "
                "seeds."
            )


MOST_VARIANTS = 100
"""Maximum length of a list of variants, which a table compares in pairs"""
MOST_RUNS = 10_000
"""Maximum number of runs of a comparison, with tuning runs"""
C = TypeVar("C", bound=ComparisonConfig)
Q = TypeVar("Q", bound=Config)
T = TypeVar("T", bound=Config)
OnProgress = Callable[[str], None]


@dataclass(frozen=True)
class Measurement(Generic[Q, T]):
    """A measurement that a table shows and training does not compute, such as attention. Stored as an artifact."""

    kind: ArtifactKind[Q, T]
    request: Q
    label: str
    """Shown in progress lines"""
    compute: Callable[[], T]


@dataclass(frozen=True)
class Action(Generic[Q, T]):
    """A measurement on request, outside of comparisons: `whence INSTRUMENT VERB`, or a job of the app.

    `run` returns the stored artifact if there is one, and measures otherwise. The request of the artifact can hold more
    than the configuration, such as the checksum of a file.
    """

    verb: str
    config: type[Q]
    run: Callable[[Q, Store, OnProgress], Artifact[Any, T]]
    title: Callable[[Q], str]
    """A one-line title for lists"""


@dataclass(frozen=True)
class Summary:
    """A small table over all tables of a comparison."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]


class Instrument(Protocol[C, R]):
    """The comparisons of one instrument. Methods with a body are defaults that can be overridden."""

    name: str
    config: type[C]
    run: type[R]
    """Configuration of a single run: `whence INSTRUMENT train`"""
    presets: Presets[Any] | None = None
    actions: Sequence[Action[Any, Any]] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """The command line that starts a comparison, without `whence`."""
        return (self.name, "compare")

    @abstractmethod
    def title(self, config: C) -> str:
        """A one-line title for lists of comparisons."""
        ...

    @abstractmethod
    def plan(self, config: C, store: Store) -> list[PlannedTable[R]]:
        """Tables and runs, unchecked. Tuned values and added seeds are read from the store."""
        ...

    def tables_of_runs(self, runs: Sequence[R]) -> Sequence[PlannedTable[R]]:
        """Tables of individually chosen runs: one row for runs that differ only in the seed."""
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
        """Runs that must end before the plan is known, such as tuning runs."""
        yield from ()

    @abstractmethod
    def rows(self, planned: PlannedTable[R], rows: Sequence[Row[R]], store: Store) -> Sequence[Row[R]]:
        """The rows with their cells filled in."""
        ...

    @abstractmethod
    def columns(self, planned: PlannedTable[R], rows: Sequence[Row[R]]) -> Sequence[Column]: ...

    def comparable(self, planned: PlannedTable[R], row: Row[R], criterion: Criterion) -> bool:
        """Whether a row is ranked by this criterion."""
        return True

    def caption(self, table: Table[R]) -> str:
        """One line below the table that explains its columns."""
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
        """Colour and dash of a variant in figures; empty where figures do not distinguish variants."""
        return {}

    def figures(self, table: Table[R]) -> Mapping[str, go.Figure]:
        """Figures by heading, for pages and the app. The first one leads the page."""
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
        """Records for CSV: by default one line per run, with every number of the table."""
        for row in table.rows:
            for result in row.finished:
                seed = result.run.seed
                scores = {column.key: row.cell(column.key).per_seed for column in table.columns}
                numbers = {key: per_seed[seed] for key, per_seed in scores.items() if seed in per_seed}
                names = {"table": table.title, "variant": row.name, "seed": seed}
                yield {**names, **numbers, "run": result.run.id, "seconds": result.seconds}
