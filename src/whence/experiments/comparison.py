"""From a configuration to its tables and its page, for the command line, Python and the app.

plan → check → run → measure → tabulate → page. The caller passes an instrument, a configuration, a store and execution
options. Progress is reported through callbacks.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from whence import stats
from whence.errors import UserError
from whence.execution.engines.local import run_all, share
from whence.execution.events import OnEvent, RunEnd
from whence.execution.execute import bytes_needed
from whence.execution.options import ExecutionOptions
from whence.experiments.export import Report
from whence.experiments.instrument import ComparisonConfig, Instrument, Measurement, OnProgress, Summary
from whence.experiments.options import store_flag
from whence.experiments.saved import config_path, save_config
from whence.experiments.table import PlannedTable, Table
from whence.experiments.tabulate import tabulate
from whence.formatting import as_size
from whence.report.shell import write
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.files import canonical
from whence.store.runs import Store
from whence.system import memory_bytes, resolve_device
from whence.training.config import AnyRun

C = TypeVar("C", bound=ComparisonConfig)
R = TypeVar("R", bound=AnyRun)
Watch = Callable[[Sequence[AnyRun], int, int], AbstractContextManager[OnEvent]]
"""From the runs, the number of workers and the threads per worker: a context manager that returns an event handler"""


@dataclass(frozen=True)
class ComparisonResult(Generic[R]):
    name: str
    config: ComparisonConfig
    tables: Sequence[Table[R]]
    summary: Summary | None
    ends: dict[str, RunEnd]
    """By run id, how its process ended"""
    report: Path | None
    """The page; None while no run has finished"""
    command: str
    """The command that reproduces the comparison"""
    instrument: Instrument[Any, R]
    problems: Sequence[str] = ()
    """Measurements and files that failed, with the reason"""

    @property
    def interrupted(self) -> bool:
        return "interrupted" in self.ends.values()

    @property
    def run_ids(self) -> list[str]:
        """Ids of all runs in the tables."""
        return list(dict.fromkeys(run.id for table in self.tables for run in table.planned.runs))

    @property
    def undecided(self) -> int:
        """Number of comparisons of variants that are not decided."""
        return sum(not c.decided for table in self.tables for c in table.comparisons)

    def to_json(self) -> dict[str, Any]:
        report = str(self.report) if self.report else None
        tables = [table.to_json() for table in self.tables]
        summary = asdict(self.summary) if self.summary else None
        return {
            "name": self.name,
            "tables": tables,
            "summary": summary,
            "runs": self.ends,
            "report": report,
            "command": self.command,
        }

    def _repr_html_(self) -> str:
        from whence.experiments.notebook import result_fragment

        return result_fragment(self)


def no_events(runs: Sequence[AnyRun], workers: int, threads: int) -> AbstractContextManager[OnEvent]:
    return nullcontext(lambda event: None)


def run_comparison(
    instrument: Instrument[C, R],
    config: C,
    store: Store,
    options: ExecutionOptions = ExecutionOptions(),
    *,
    minutes: float | None = None,
    watch: Watch = no_events,
    on_progress: OnProgress = lambda message: None,
    on_note: OnProgress | None = None,
) -> ComparisonResult[R]:
    """Run a comparison: train the runs that the store lacks, then make the tables and the page.

    Args:
        minutes: time after which `until_decided` adds no more seeds.
        watch: receives the events of the runs.
        on_progress: receives the current activity.
        on_note: receives messages that should remain visible; by default `on_progress`.

    Raises:
        UserError: for configurations that are impossible, before anything is written.
    """
    on_note = on_note or on_progress
    started = time.monotonic()
    if minutes is not None and not config.until_decided:
        raise UserError("minutes: --minutes limits --until-decided, which was not given. Allowed: both, or neither.")
    check_resources(check_plan(instrument, config, store), store, options)
    save_config(instrument.name, config, store)
    on_note(plan_note(instrument, config, store))
    ends: dict[str, RunEnd] = {}

    def execute(runs: Sequence[R]) -> bool:
        """Train the runs that have not ended; whether none was interrupted."""
        ends.update(execute_runs([run for run in runs if run.id not in ends], store, options, watch))
        return "interrupted" not in ends.values()

    going = all(execute(stage) for stage in instrument.stages(config, store))
    going = going and execute(runs_of(plan_comparison(instrument, config, store)))
    while going and config.until_decided and not (minutes and time.monotonic() - started > 60 * minutes):
        more = [run for run in more_runs(instrument, config, store, ends) if run.id not in ends]
        if not more:
            break
        on_note(f"Not decided yet: adding seed {more[0].seed} ({stats.count(len(more), 'run')})")
        going = execute(more)
    problems: list[str] = []
    if going:
        for planned in plan_comparison(instrument, config, store):
            for measurement in instrument.measurements(planned, store):
                problems += measure(measurement, store, on_progress)
    result = read_comparison(instrument, config, store, ends, on_progress=on_progress)
    return replace(result, problems=[*problems, *result.problems])


def measure(measurement: Measurement[Any, Any], store: Store, on_progress: OnProgress) -> list[str]:
    """Measure and store what the store lacks. Returns problems, which do not stop the comparison."""
    if measurement.kind.find(measurement.request, store) is not None:
        return []
    on_progress(measurement.label)
    try:
        measurement.kind.save(measurement.request, measurement.compute(), store)
    except (OSError, CorruptFileError) as damage:
        return [f"{measurement.label}: not possible, {disk.explain(damage)}"]
    return []


def read_comparison(
    instrument: Instrument[C, R],
    config: C,
    store: Store,
    ends: dict[str, RunEnd] | None = None,
    *,
    on_progress: OnProgress = lambda message: None,
) -> ComparisonResult[R]:
    """Tables and page from the runs in the store. Nothing is run or measured."""
    path = config_path(instrument.name, config, store)
    report, page = report_on(instrument, config, store, ["--config", str(path)], ends), None
    problems: list[str] = []
    if report.finished:
        on_progress("Writing the report")
        try:
            page = write(path.stem, report.html(), store.reports)
        except (OSError, CorruptFileError) as error:  # the tables can be shown without it
            problems.append(f"The report was not written: {disk.explain(error)}")
    summary = instrument.summary(report.tables)
    return ComparisonResult(
        path.stem, config, report.tables, summary, ends or {}, page, report.command, instrument, problems
    )


def report_on(
    instrument: Instrument[C, R],
    config: C,
    store: Store,
    named: Sequence[str],
    ends: dict[str, RunEnd] | None = None,
) -> Report[R]:
    """`named`: the flag and the value that select this configuration on the command line."""
    command = shlex.join(["whence", *instrument.command, *named, *store_flag(store)])
    tables = tables_of(instrument, config, store, ends)
    return Report(instrument, tables, config.model_dump(mode="json"), command, store)


def tables_of(
    instrument: Instrument[C, R], config: C, store: Store, ends: dict[str, RunEnd] | None = None
) -> list[Table[R]]:
    plan = plan_comparison(instrument, config, store)
    return tabulate(instrument, plan, store, ends or {}, design=config.design, family=config.error_family)


def plan_comparison(instrument: Instrument[C, R], config: C, store: Store) -> list[PlannedTable[R]]:
    """The tables of a configuration, with the seeds that `until_decided` has added."""
    if not config.until_decided:
        return instrument.plan(config, store)
    known = set(store.ids())
    most = config.with_seeds(max(len(config.seed_range), config.max_seeds))

    def begun(runs: Sequence[R]) -> list[R]:
        return [run for run in runs if run.seed in config.seed_range or run.id in known]

    plan = instrument.plan(most, store)
    return [replace(table, variants={name: begun(runs) for name, runs in table.variants.items()}) for table in plan]


def runs_of(plan: Sequence[PlannedTable[R]]) -> list[R]:
    """Every run of every table, once. Seeds vary slowest."""
    ordered = sorted((run for planned in plan for run in planned.runs), key=lambda run: run.seed)
    return list({run.id: run for run in ordered}.values())


def planned_runs(instrument: Instrument[C, R], config: C, store: Store) -> list[R]:
    """Every run of a comparison, beginning with the tuning runs, which must end before the plan is known."""
    first = [run for stage in instrument.stages(config, store) for run in stage]
    return [*first, *runs_of(plan_comparison(instrument, config, store))]


def plan_note(instrument: Instrument[C, R], config: C, store: Store) -> str:
    """The number of seeds that the plan needs for a verdict, as a sentence."""
    comparisons = count_comparisons(instrument, config, store)
    return stats.plan_note(config.seeds, comparisons, family=config.error_family, design=config.design)


def count_comparisons(instrument: Instrument[C, R], config: C, store: Store) -> int:
    """Size of the family: the comparisons of the largest table, or of all tables."""
    counts = [len(planned.contrasts) for planned in instrument.plan(config, store)]
    return sum(counts) if config.error_family == "sheet" else max(counts, default=0)


def more_runs(instrument: Instrument[C, R], config: C, store: Store, ends: dict[str, RunEnd]) -> list[R]:
    """One more seed for every variant of an undecided comparison; empty when all are decided."""
    tables = tables_of(instrument, config, store, ends)
    waiting = {
        (table.title, name) for table in tables for c in table.comparisons if not c.decided for name in (c.a, c.b)
    }
    seed = 1 + max(run.seed for table in tables for run in table.planned.runs)
    if not waiting or seed - config.first_seed >= config.max_seeds:
        return []
    plan = instrument.plan(config.with_seeds(1 + seed - config.first_seed), store)
    return [
        run
        for planned in plan
        for name, runs in planned.variants.items()
        if (planned.title, name) in waiting
        for run in runs
        if run.seed == seed
    ]


def check_plan(instrument: Instrument[C, R], config: C, store: Store) -> list[R]:
    """Check the configuration as a whole and return its runs. Raises UserError; nothing is written."""
    config.check_budget()
    runs = planned_runs(instrument, config, store)
    for run in _without_seeds(runs):
        run.check()
    return runs


def _without_seeds(runs: Sequence[R]) -> list[R]:
    """One run of each set that differs in the seed only."""
    return list({canonical({**run.document(), "seed": 0}): run for run in runs}.values())


def check_resources(runs: Sequence[AnyRun], store: Store, options: ExecutionOptions) -> tuple[int, int]:
    """Check memory, disk and device; return the number of workers and of threads per worker. Raises UserError."""
    resolve_device(options.device)
    sizes = [(run.check(), run.working_bytes()) for run in _without_seeds(runs)]
    parameters = max((count for count, _ in sizes), default=0)
    workers, threads = share(len(runs), options.workers, options.threads)
    # weights, gradients and two moments beside activations
    weights, working = max(((16 * count, more) for count, more in sizes), key=sum, default=(0, 0))
    needed, there = (weights + working) * workers, memory_bytes()
    if needed > there:
        raise UserError(
            f"model: at least {as_size(needed)} of memory are needed, and {as_size(there)} are available: each of "
            f"{stats.count(workers, 'worker')} needs {as_size(weights)} to train {weights // 16:,} parameters and "
            f"{as_size(working)} for activations and data. Reduce the model, the batch size or the sequence length, or "
            "pass fewer --workers."
        )
    store.prepare(bytes_needed(parameters, len(runs), workers))
    return workers, threads


def execute_runs(
    runs: Sequence[AnyRun], store: Store, options: ExecutionOptions, watch: Watch = no_events
) -> dict[str, RunEnd]:
    """Run them on this machine. Returns how each ended, by id."""
    if not runs:
        return {}
    workers, threads = check_resources(runs, store, options)
    with watch(runs, workers, threads) as on_event:
        ends = run_all(runs, store, options, on_event)
    for run in [run for run, end in ends.items() if end == "busy"]:
        with suppress(OSError, CorruptFileError):  # the process that was running it may have finished meanwhile
            if store.folder(run).status().state == "finished":
                ends[run] = "skipped"
    return ends
