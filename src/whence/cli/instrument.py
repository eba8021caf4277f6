"""The verbs that instruments share, made from their `Instrument` objects: compare, train, show, presets, actions.

The module of an instrument lists its verbs with their descriptions, and prints the results of training and of actions.
"""

from __future__ import annotations

import os.path
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from whence.cli.options import EngineOptions, Invocation, OutputOptions, StoreOptions, Verb
from whence.cli.output import FAILED, exit_code, print_json, print_note, print_result, print_text
from whence.cli.progress import progress_line, watch_runs
from whence.errors import UserError
from whence.experiments.options import metavar, positional
from whence.experiments.saved import Presets, config_path
from whence.formatting import duration, scored
from whence.store import disk
from whence.store.records import RunStatus
from whence.store.runs import RunFolder, Store

if TYPE_CHECKING:
    from whence.experiments.instrument import Instrument, OnProgress
    from whence.store.artifacts import Artifact

Adapt = Callable[[Any, Any], Any]
"""From a config and the options beside it, the config to use"""
Page = Callable[[Any, Store, str, "OnProgress"], bytes]
"""From a run or an artifact, the store, the command and a callback for progress, a page"""
PrintMetrics = Callable[[Any, Store], None]
"""Prints the metrics of the last evaluation of a run"""


class ComparisonOptions(EngineOptions):
    GROUP: ClassVar[str] = "Execution"

    minutes: float | None = Field(
        default=None,
        gt=0,
        le=1e9,
        description="with --until-decided: add no seeds after this many minutes; none: no limit",
        json_schema_extra=metavar("MINUTES"),
    )


class PresetOptions(OutputOptions):
    names: tuple[str, ...] = Field(
        default=(), description="presets to describe; none: all", json_schema_extra=positional("NAME")
    )


class ShowOptions(StoreOptions):
    run: str = Field(
        description="run id, or its first digits ('whence runs list')", json_schema_extra=positional("RUN")
    )
    out: str | None = Field(
        default=None,
        description="page to write; none: a new one in the folder 'reports' of the store",
        json_schema_extra=metavar("FILE.html"),
    )


def instrument(name: str) -> Instrument[Any, Any]:
    from whence import instruments  # which imports torch

    return instruments.instrument(name)


def compare(
    name: str,
    description: str,
    options_class: type[ComparisonOptions] = ComparisonOptions,
    adapt: Adapt = lambda config, options: config,
) -> Verb:
    def run(invocation: Invocation) -> int:
        from whence.experiments.comparison import check_plan, run_comparison

        chosen = instrument(name)
        presets = presets_of(chosen, chosen.config)
        config, options = invocation.parse(chosen.config, options_class, presets, "What to compare")
        config, store = adapt(config, options), Store(options.store)
        if options.print_config:
            check_plan(chosen, config, store)
            print_json(config.model_dump(mode="json"))
            return 0
        path = config_path(name, config, store)
        if disk.kind_of(path):
            print_note(f"Resuming comparison {path.stem}")
        with progress_line("Checking the plan") as on_progress:
            result = run_comparison(
                chosen,
                config,
                store,
                options,
                minutes=options.minutes,
                watch=watch_runs(store),
                on_progress=on_progress,
                on_note=print_note,
            )
        print_json(result.to_json()) if options.json_ else print_result(result)
        for problem in result.problems:
            print_note(problem)
        return max(exit_code(result.ends, invocation.command), FAILED if result.problems else 0)

    return Verb(description, run)


def train(
    name: str,
    description: str,
    options_class: type[EngineOptions] = EngineOptions,
    adapt: Adapt = lambda config, options: config,
    print_metrics: PrintMetrics | None = None,
    page: Page | None = None,
) -> Verb:
    """print_metrics: prints the results of a finished run. page: makes its page, which is written to the reports."""

    def run(invocation: Invocation) -> int:
        from whence.experiments.comparison import execute_runs

        chosen = instrument(name)
        config, options = invocation.parse(chosen.run, options_class, presets_of(chosen, chosen.run), "What to train")
        config, store = adapt(config, options), Store(options.store)
        if options.print_config:
            config.check()
            print_json(config.model_dump(mode="json"))
            return 0
        ends = execute_runs([config], store, options, watch_runs(store))
        folder = store.folder(config.id)
        if options.json_:
            status = _status(folder)
            known = status.to_json() if status else {"id": folder.id, "state": ends[config.id]}
            print_json({"path": str(folder.path), **known})
            return exit_code(ends, invocation.command)
        finished = ends[config.id] in ("finished", "skipped")
        if finished and print_metrics:
            print_metrics(config, store)
        print_run(folder, ends[config.id])
        if finished and page:
            with progress_line("Writing the report") as on_progress:
                report = write_page(config, store, invocation, page, on_progress)
            print_text(f"report  {report}")
        return exit_code(ends, invocation.command)

    return Verb(description, run)


def _status(folder: RunFolder) -> RunStatus | None:
    """None if the run was stopped before it began, or if another process is about to start it."""
    try:
        return folder.status()
    except FileNotFoundError:
        return None


def print_run(folder: RunFolder, end: str = "") -> None:
    """The state of a run in one or two lines. end: how it ended here."""
    status = _status(folder)
    state = status.state if status else end
    parts = [folder.id, "running in another process; nothing was done here" if end == "busy" else state]
    if status:
        parts.append(f"step {status.step}/{status.steps}")
        parts += [f"{name} {scored(name, value)}" for name, value in status.headline.items()]
        parts.append(duration(status.seconds))
    print_text("  ".join([*parts, str(folder.path)]))
    if status and status.error:
        print_text(f"  {status.reason}")


def presets(name: str) -> Verb:
    def run(invocation: Invocation) -> int:
        options = invocation.options(PresetOptions)
        known = instrument(name).presets
        assert known is not None
        configs = {each: known.load(each) for each in options.names or known.names()}
        if options.json_:
            documents = {each: config.model_dump(mode="json") for each, config in configs.items()}
            print_json([{"name": n, "about": known.about(n), "config": document} for n, document in documents.items()])
        else:
            print_text("\n\n".join("\n  ".join([each, *known.about(each).splitlines()]) for each in configs))
        return 0

    description = f"""List the presets: what each compares, how long it takes and what to expect

  whence {name} presets                 list all presets
  whence {name} presets NAME            describe one preset"""
    return Verb(description, run)


def presets_of(chosen: Instrument[Any, Any], config_class: type[Any]) -> Presets[Any] | None:
    """The presets of the instrument, if they set this kind of config."""
    return chosen.presets if chosen.presets and chosen.presets.config is config_class else None


def action(
    name: str,
    verb: str,
    description: str,
    print_artifact: Callable[[Artifact[Any, Any]], None],
    page: Page | None = None,
) -> Verb:
    """A verb for an `Action` of an instrument. page: makes a page, which is written to the reports."""

    def run(invocation: Invocation) -> int:
        chosen = next(each for each in instrument(name).actions if each.verb == verb)
        config, options = invocation.parse(chosen.config, StoreOptions, title="What to measure")
        store, report, begun = Store(options.store), None, time.time()
        with progress_line("Loading the model") as on_progress:
            artifact = chosen.run(config, store, on_progress)
            if page:
                report = write_page(artifact, store, invocation, page, on_progress)
        if options.json_:
            print_json(
                {
                    "artifact": artifact.path.stem,
                    "request": artifact.request.model_dump(mode="json"),
                    **artifact.result.model_dump(mode="json"),
                    "report": str(report) if report else None,
                    "command": invocation.command,
                }
            )
            return 0
        print_artifact(artifact)
        if artifact.created < begun:
            measured = datetime.fromtimestamp(artifact.created).strftime("%Y-%m-%d %H:%M")
            how = "; pass --force to measure again" if "force" in chosen.config.model_fields else ""
            print_text(f"cached   {artifact.path.stem}, measured {measured}{how}")
        if report:
            print_text(f"report  {report}")
        return 0

    return Verb(description, run)


def show(name: str, description: str, page: Page, print_metrics: PrintMetrics | None = None) -> Verb:
    """A page of one run."""

    def run(invocation: Invocation) -> int:
        from whence.store.runs import open_finished_run

        options = invocation.options(ShowOptions)
        store = options.open_store()
        with open_finished_run(store, options.run) as (folder, run), progress_line("Reading the run") as on_progress:
            if not isinstance(run, instrument(name).run):
                raise UserError(
                    f"run: expected a run of {name}, got {folder.id}, a run of {run.kind}. "
                    f"Use 'whence {run.kind} show {folder.id}'."
                )
            report = write_page(run, store, invocation, page, on_progress, options.out)
        if options.json_:
            metrics = folder.status().latest
            print_json({"run": folder.id, **metrics, "report": str(report), "command": invocation.command})
            return 0
        if print_metrics:
            print_metrics(run, store)
        print_run(folder)
        print_text(f"report  {report}")
        return 0

    return Verb(description, run)


def write_page(
    shown: Any, store: Store, invocation: Invocation, page: Page, on_progress: OnProgress, out: str | None = None
) -> Path:
    """Write to the reports of the store, or to `out`; return the path."""
    from whence.report.shell import write

    if out and (Path(out).suffix != ".html" or not os.path.isdir(Path(out).absolute().parent)):
        raise UserError(f"out: expected FILE.html in an existing directory, got {out!r}.")
    content = page(shown, store, invocation.command, on_progress)
    if out is None:
        store.prepare()
        return write("-".join(invocation.words), content, store.reports)
    disk.write_output(Path(out), content)
    return Path(out)
