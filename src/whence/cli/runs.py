"""`whence runs …`: what has been run, stored as one directory each."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping

from pydantic import Field

from whence.cli.options import EngineOptions, Invocation, StoreOptions, Verb
from whence.cli.output import FAILED, exit_code, print_json, print_lines, print_note, print_table, stderr
from whence.cli.progress import RunProgress
from whence.errors import UserError, not_allowed
from whence.experiments.options import metavar, positional
from whence.formatting import as_csv, duration, scored, scores
from whence.store.disk import CorruptFileError
from whence.store.lock import LockedError
from whence.store.records import EvaluationRecord, RunSummary
from whence.store.runs import RunFolder, Store, evaluation_rows, load_runs

STATES = ("finished", "running", "interrupted", "failed", "corrupt")


class FilterOptions(StoreOptions):
    state: str | None = Field(
        default=None, description="only runs in this state", json_schema_extra=metavar("{" + ",".join(STATES) + "}")
    )
    label: str = Field(default="", description="only runs whose title (task, encoding) contains this text")


class RunsExportOptions(FilterOptions):
    csv: bool = Field(default=False, description="comma-separated values (the default)")


class RunsShowOptions(StoreOptions):
    run: str = Field(description="first digits of its id", json_schema_extra=positional("RUN"))


class VerifyOptions(StoreOptions):
    runs: tuple[str, ...] = Field(
        default=(), description="first digits of their ids; none: everything", json_schema_extra=positional("RUN")
    )


class ResumeOptions(EngineOptions):
    runs: tuple[str, ...] = Field(
        default=(), description="first digits of their ids; none: all interrupted", json_schema_extra=positional("RUN")
    )


class RemoveOptions(StoreOptions):
    runs: tuple[str, ...] = Field(
        default=(), description="first digits of their ids", json_schema_extra=positional("RUN")
    )
    yes: bool = Field(default=False, description="do not ask")


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
        print(f"no runs in {store.root}; 'whence arena compare' makes some")
        return 0
    print_lines(
        f"{len(rows)} runs in {store.root}",
        ["id", "state", "what", "seed", "step", "scores (% unless a unit is named)", "time", "when"],
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
    files = {path.name: path.stat().st_size for path in sorted(folder.path.iterdir())}
    if options.json_:
        metrics = [record.model_dump(mode="json") for record in records]
        document = {"path": str(folder.path), "status": status.to_json(), "config": config}
        print_json({**document, "metrics": metrics, "files": files})
        return 0
    print(f"{folder.id}  {status.state}  {status.title}  seed {status.seed}")
    speed = f"{status.tokens} tokens in {duration(status.seconds)}"
    print(f"step {status.step}/{status.steps} · {speed} · {folder.path}")
    if status.error:
        print(f"failed: {status.reason}")
    evaluations = [record for record in records if isinstance(record, EvaluationRecord)]
    if evaluations:
        names = list(evaluations[-1].headline)
        print()
        print_table(
            "evaluations (% unless a unit is named)",
            ["step", *names],
            [[str(e.step), *(scored(name, e.headline[name]) for name in names)] for e in evaluations],
        )
    print("\nconfig\n" + json.dumps(config, indent=1))
    return 0


def _export(invocation: Invocation) -> int:
    options = invocation.options(RunsExportOptions)
    store = options.open_store()
    if options.json_ and options.csv:
        raise UserError("csv: one form at a time. Allowed: --csv or --json.")
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
        print_json({"runs": {}}) if options.json_ else print(f"nothing to resume in {store.root}")
        return 0
    ends = execute_runs(runs, store, options, RunProgress)
    if options.json_:
        print_json({"runs": ends})
    return exit_code(ends, invocation.command)


def _verify(invocation: Invocation) -> int:
    options = invocation.options(VerifyOptions)
    store = options.open_store()
    from rich.progress import track

    from whence.store.verify import problems_of, verify_store

    folders = [store.find(word) for word in options.runs]
    checks = ((f.id, problems_of(f)) for f in folders) if folders else verify_store(store)
    total = len(folders) or len(store.ids())
    checked = dict(
        track(checks, "verifying", total=total, console=stderr, transient=True, disable=not stderr.is_terminal)
    )
    problems = {what: found for what, found in checked.items() if found}
    if options.json_:
        print_json({"checked": len(checked), "problems": problems})
    else:
        for what, found in problems.items():
            for problem in found:
                print(f"{what}: {problem}")
        others = len(checked) - total
        also = f" and {others} other files" if others else ""
        print(f"{total} run{'s' * (total != 1)}{also} checked, {len(problems)} with problems")
    return FAILED if problems else 0


def _rm(invocation: Invocation) -> int:
    options = invocation.options(RemoveOptions)
    store = options.open_store()
    folders = [store.folder(run_id) for run_id in dict.fromkeys(store.find(word).id for word in options.runs)]
    if not folders:
        raise UserError("run: name the runs to delete. See 'whence runs list'.")
    if not options.yes and not _agreed(folders):
        raise UserError("yes: nothing was deleted. Say --yes to delete without being asked.")
    for folder in folders:
        try:
            store.remove(folder)
        except LockedError:
            raise UserError(f"run: {folder.id} is being written by another process; stop it first.") from None
    if options.json_:
        print_json({"removed": [folder.id for folder in folders]})
    else:
        print(f"deleted {', '.join(folder.id for folder in folders)}")
    return 0


def _note_left_out(left_out: Mapping[str, Exception]) -> None:
    for run_id, problem in left_out.items():
        print_note(f"{run_id}: left out: {problem}")


def _agreed(folders: list[RunFolder]) -> bool:
    if not sys.stdin.isatty():
        return False
    stderr.print(f"Delete {len(folders)} runs for good? [y/N] ", end="")
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
        """Show one run: its configuration, state, evaluations and files

  whence runs show 7c1e""",
        _show,
    ),
    "export": Verb(
        """Export every evaluation of every run, as CSV or JSON

  whence runs export > runs.csv
  whence runs export --label rope --json""",
        _export,
    ),
    "resume": Verb(
        """Resume interrupted runs, all or those named

  whence runs resume
  whence runs resume 7c1e 88ab""",
        _resume,
    ),
    "verify": Verb(
        """Check every byte of every file against its checksum

  whence runs verify
  whence runs verify 7c1e""",
        _verify,
    ),
    "rm": Verb(
        """Delete runs for good

  whence runs rm 7c1e 88ab
  whence runs rm 7c1e --yes""",
        _rm,
    ),
}
