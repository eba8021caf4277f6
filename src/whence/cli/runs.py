"""`whence runs …`: list, show, export, resume, verify, repair and delete stored runs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field

from whence.cli.options import EngineOptions, Invocation, StoreOptions, Verb
from whence.cli.output import FAILED, exit_code, print_json, print_lines, print_note, print_table, print_text, stderr
from whence.cli.progress import progress_line, watch_runs
from whence.errors import UserError, not_allowed
from whence.experiments.options import metavar, positional
from whence.formatting import as_csv, as_size, counted, duration, scored, scores
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.lock import LockedError
from whence.store.records import EvaluationRecord, RunSummary
from whence.store.runs import RunFolder, Store, evaluation_rows, load_runs
from whence.training.config import AnyRun

if TYPE_CHECKING:
    from whence.store.repair import Repair, Way

WAYS: dict[Way, str] = {
    "set aside": "move to damaged/",
    "collect": "collect again",
    "tidy": "clean up",
    "train": "train again",
}
REPAIRED = "repaired"
UNREPAIRED = ("busy", "crashed", "failed", "interrupted", "not possible", "lost")
RUNS = "run ids, or their first digits"
STATES = ("finished", "running", "interrupted", "failed", "corrupt")


class FilterOptions(StoreOptions):
    state: str | None = Field(
        default=None,
        description="list only runs in this state",
        json_schema_extra=metavar("{" + ",".join(STATES) + "}"),
    )
    label: str = Field(default="", description="list only runs whose title (task, encoding) contains this text")


class RunsExportOptions(FilterOptions):
    csv: bool = Field(default=False, description="print comma-separated values, which is the default")


class RunsShowOptions(StoreOptions):
    run: str = Field(description="run id, or its first digits", json_schema_extra=positional("RUN"))


class VerifyOptions(StoreOptions):
    runs: tuple[str, ...] = Field(
        default=(),
        description=f"{RUNS}; none: everything in the store",
        json_schema_extra=positional("RUN"),
    )


class ResumeOptions(EngineOptions):
    runs: tuple[str, ...] = Field(
        default=(),
        description=f"{RUNS}; none: all interrupted runs",
        json_schema_extra=positional("RUN"),
    )


class AgreeOptions(StoreOptions):
    yes: bool = Field(default=False, description="do not ask for confirmation")


class RemoveOptions(AgreeOptions):
    runs: tuple[str, ...] = Field(default=(), description=RUNS, json_schema_extra=positional("RUN"))


class RepairOptions(EngineOptions, AgreeOptions):
    retrain: bool = Field(default=False, description="also repair what needs training")


def _chosen(store: Store, options: FilterOptions) -> list[RunSummary]:
    if options.state is not None and options.state not in STATES:
        raise not_allowed("state", options.state, STATES)
    return [row for row in store.summaries() if options.state in (None, row.state) and options.label in row.title]


def _list(invocation: Invocation) -> int:
    options = invocation.options(FilterOptions)
    store = options.open_store()
    rows = _chosen(store, options)
    if options.json_:
        print_json([row.to_json() for row in rows])
        return 0
    if not rows:
        print_text(f"No runs in {store.root}. Start some with 'whence arena compare'.")
        return 0
    print_lines(
        f"{counted(len(rows), 'run')} in {store.root}",
        ["id", "state", "title", "seed", "step", "metrics (% unless a unit is given)", "time", "started"],
        [_row(row) for row in rows],
    )
    return 0


def _row(row: RunSummary) -> list[str]:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.created)) if row.created else ""
    return [
        row.id,
        row.state,
        row.title or row.reason,
        "" if row.seed is None else str(row.seed),
        f"{row.step}/{row.steps}" if row.steps else "",
        scores(row.headline),
        duration(row.seconds),
        when,
    ]


def _show(invocation: Invocation) -> int:
    options = invocation.options(RunsShowOptions)
    folder = options.open_store().find(options.run)
    try:
        status, config, records = folder.status(), folder.config_document(), folder.metrics()
    except (CorruptFileError, FileNotFoundError) as damage:
        raise UserError(f"run: {folder.id} cannot be read: {damage}. See 'whence runs verify {folder.id}'.") from None
    files = {path.name: disk.size_of(path) for path in disk.entries(folder.path)}
    if options.json_:
        metrics = [record.model_dump(mode="json") for record in records]
        document = {"path": str(folder.path), "status": status.to_json(), "config": config}
        print_json({**document, "metrics": metrics, "files": files})
        return 0
    print_text(f"{folder.id}  {status.state}  {status.title}  seed {status.seed}")
    speed = f"{status.tokens:,} tokens in {duration(status.seconds)}"
    print_text(f"step {status.step}/{status.steps} · {speed} · {folder.path}")
    if status.error:
        print_text(f"failed: {status.reason}")
    evaluations = [record for record in records if isinstance(record, EvaluationRecord)]
    if evaluations:
        names = list(evaluations[-1].headline)
        print_text()
        print_table(
            "Evaluations (% unless a unit is given)",
            ["step", *names],
            [
                [str(e.step), *(scored(name, e.headline[name]) if name in e.headline else "" for name in names)]
                for e in evaluations
            ],
        )
    print_text("\nConfiguration\n" + json.dumps(config, indent=1))
    return 0


def _export(invocation: Invocation) -> int:
    options = invocation.options(RunsExportOptions)
    store = options.open_store()
    if options.json_ and options.csv:
        raise UserError("csv: expected --csv or --json, got both. Pass one of them.")
    rows, left_out = evaluation_rows(store, _chosen(store, options))
    _note_left_out(left_out)
    print_json(rows) if options.json_ else sys.stdout.write(as_csv(rows))
    return FAILED if left_out else 0


def _resume(invocation: Invocation) -> int:
    options = invocation.options(ResumeOptions)
    store = options.open_store()
    from whence.experiments.comparison import execute_runs

    ids = [store.find(word).id for word in options.runs] or [
        r.id for r in store.summaries() if r.state == "interrupted"
    ]
    runs, left_out = load_runs(store, ids)
    _note_left_out(left_out)
    if options.print_config:
        print_json([run.document() for run in runs])
        return 0
    if not runs:
        print_json({"runs": {}}) if options.json_ else print_text(f"No interrupted runs in {store.root}.")
        return 0
    ends = execute_runs(runs, store, options, watch_runs(store))
    if options.json_:
        print_json({"runs": ends})
    return exit_code(ends, invocation.command)


def _verify(invocation: Invocation) -> int:
    options = invocation.options(VerifyOptions)
    store = options.open_store()
    folders = [store.find(word) for word in options.runs]
    checked = _checked(store, folders)
    problems = {what: found for what, found in checked.items() if found}
    if options.json_:
        print_json({"checked": len(checked), "problems": problems})
    else:
        for what, found in problems.items():
            for problem in found:
                print_text(f"{what}: {problem}")
        total = len(folders) or len(store.ids())
        others = len(checked) - total
        also = f" and {counted(others, 'other item')}" if others else ""
        print_text(f"{counted(total, 'run')}{also} checked, {len(problems)} with problems")
    if problems:
        print_note("To list possible repairs: whence runs repair --print-config")
    return FAILED if problems else 0


def _checked(store: Store, folders: Sequence[RunFolder] = ()) -> dict[str, list[str]]:
    """Problems by name, of these runs or of everything in the store."""
    from rich.progress import track

    from whence.store.verify import checks, problems_of

    todo = [(folder.id, partial(problems_of, folder)) for folder in folders] or checks(store)
    shown = track(todo, "Verifying", console=stderr, transient=True, disable=not stderr.is_terminal)
    return {what: check() for what, check in shown}


def _repair(invocation: Invocation) -> int:
    options = invocation.options(RepairOptions)
    store = options.open_store()
    from whence.store.repair import plan_repairs

    problems = _checked(store)
    repairs = plan_repairs(store, problems)
    done = [repair for repair in repairs if options.retrain or repair.way != "train"]
    left = [repair for repair in repairs if repair not in done]
    if not options.json_:
        print_text(f"{len(problems)} checked, {len(repairs)} with problems")
        for repair in repairs:
            print_text(f"\n{repair.what}: {WAYS[repair.way]} ({repair.cost})")
            print_text("\n".join(f"  {problem}" for problem in repair.problems))
        if left:
            print_text(f"\n{len(left)} of {len(repairs)} need --retrain.")
    if done and not options.print_config and (options.yes or _agreed(f"Repair {counted(len(done), 'item')}?")):
        results = _carry_out(done, store, options)
    elif done and not (options.json_ or options.print_config):
        raise UserError("yes: nothing was changed. Pass --yes to repair without confirmation.")
    else:
        results = {}
    if options.json_:
        plan = [{"what": r.what, "problems": list(r.problems), "repair": r.way, "cost": r.cost} for r in repairs]
        print_json({"plan": plan, "done": results})
    else:
        for what, result in results.items():
            print_text(f"{what}: {result}")
    return FAILED if len(results) < len(repairs) or any(text.startswith(UNREPAIRED) for text in results.values()) else 0


def _carry_out(repairs: Sequence[Repair], store: Store, options: RepairOptions) -> dict[str, str]:
    """The result of each repair, by name."""
    from whence.experiments.comparison import execute_runs

    results: dict[str, str] = {}
    runs: list[AnyRun] = []
    for repair in repairs:
        try:
            if repair.run:
                repair.run.check()
                runs.append(repair.run)
            else:
                results[repair.what] = _without_training(repair, store)
        except LockedError:
            results[repair.what] = "busy"
        except (UserError, OSError, CorruptFileError) as problem:
            results[repair.what] = f"not possible: {disk.explain(problem)}"
    try:
        ends = execute_runs(runs, store, options, watch_runs(store))
    except UserError as problem:
        return {**results, **{run.id: f"not possible: {problem}" for run in runs}}
    return {**results, **{run: REPAIRED if end == "skipped" else end for run, end in ends.items()}}


def _without_training(repair: Repair, store: Store) -> str:
    from whence.store.repair import set_aside

    if repair.way == "collect":
        from whence.features.actions import repair_collection

        with progress_line("Loading the model") as on_progress:
            repair_collection(repair.path.name, store, on_progress)
        return REPAIRED
    moved = set_aside(store, repair)
    if moved and repair.path.parent == store.runs:  # without its configuration it cannot be trained from here
        return f"lost: moved to {moved}; repeat the command that trained it"
    return f"moved to {moved}" if moved else "no longer there"


def _gc(invocation: Invocation) -> int:
    options = invocation.options(AgreeOptions)
    store = options.open_store()

    sizes = {path.name: disk.size_of(path) for path in disk.entries(store.damaged)}
    if not options.json_:
        if not sizes:
            print_text(f"No damaged files were set aside in {store.root}.")
            return 0
        print_lines(f"{store.damaged}", ["name", "size"], [[name, as_size(size)] for name, size in sizes.items()])
    items = f"{counted(len(sizes), 'item')} ({as_size(sum(sizes.values()))})"
    if sizes and not options.yes and not _agreed(f"Delete {items} permanently?"):
        raise UserError("yes: nothing was deleted. Pass --yes to delete without confirmation.")
    for name in sizes:
        disk.remove_tree(store.damaged / name)
    if options.json_:
        print_json({"deleted": sizes})
    else:
        print_text(f"Deleted {items}.")
    return 0


def _rm(invocation: Invocation) -> int:
    options = invocation.options(RemoveOptions)
    store = options.open_store()
    folders = [store.folder(run_id) for run_id in dict.fromkeys(store.find(word).id for word in options.runs)]
    if not folders:
        raise UserError("run: expected one run or more, got none. See 'whence runs list'.")
    if not options.yes and not _agreed(f"Delete {counted(len(folders), 'run')} permanently?"):
        raise UserError("yes: nothing was deleted. Pass --yes to delete without confirmation.")
    for folder in folders:
        try:
            store.remove(folder)
        except LockedError:
            raise UserError(f"run: {folder.id} is running in another process. Stop that process first.") from None
    if options.json_:
        print_json({"removed": [folder.id for folder in folders]})
    else:
        print_text(f"Deleted {', '.join(folder.id for folder in folders)}.")
    return 0


def _note_left_out(left_out: Mapping[str, Exception]) -> None:
    for run_id, problem in left_out.items():
        print_note(f"{run_id}: skipped: {problem}")


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    stderr.print(f"{question} [y/N] ", end="", markup=False)
    return input().strip().lower() in ("y", "yes")


VERBS = {
    "list": Verb(
        """List all runs, oldest first

  whence runs list
  whence runs list --state failed
  whence runs list --label alibi""",
        _list,
    ),
    "show": Verb(
        """Show one run: configuration, state and evaluations

  whence runs show 7c1e""",
        _show,
    ),
    "export": Verb(
        """Export the evaluations of all runs as CSV or JSON

One row per evaluation, with all metrics.

  whence runs export > runs.csv
  whence runs export --label rope --json""",
        _export,
    ),
    "resume": Verb(
        """Resume interrupted runs

A resumed run gives the same result as one that was never interrupted.

  whence runs resume
  whence runs resume 7c1e 88ab""",
        _resume,
    ),
    "verify": Verb(
        """Verify stored files against their checksums

Verifies runs, reports, artifacts, collected activations, labelled sets and jobs. Exit code 1: a file is damaged.

  whence runs verify
  whence runs verify 7c1e""",
        _verify,
    ),
    "repair": Verb(
        """Repair what 'verify' finds: move damaged files away, collect again, train again

Lists the repairs with their costs, then asks for confirmation. Damaged files are moved to the folder damaged/ of the
store, where they stay until 'whence runs gc'.

  whence runs repair --print-config               list the repairs only
  whence runs repair --yes --retrain              repair everything""",
        _repair,
    ),
    "gc": Verb(
        """Delete damaged files that were set aside

Lists the content of the folder damaged/ of the store, then asks for confirmation.

  whence runs gc
  whence runs gc --yes""",
        _gc,
    ),
    "rm": Verb(
        """Delete runs permanently, after confirmation

  whence runs rm 7c1e 88ab
  whence runs rm 7c1e --yes""",
        _rm,
    ),
}
