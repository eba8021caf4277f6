"""The verbs that instruments share, made from their `Instrument` objects: compare, train, show, presets, actions.

The module of an instrument lists its verbs with their descriptions; what is printed after training or after an action
is its own.
"""

from __future__ import annotations

import os.path
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from whence.cli.options import EngineOptions, Invocation, OutputOptions, StoreOptions, Verb
from whence.cli.output import FAILED, exit_code, print_json, print_note, print_result, print_text
from whence.cli.progress import RunProgress, progress_line
from whence.errors import UserError
from whence.experiments.options import metavar, positional
from whence.experiments.saved import Presets
from whence.formatting import duration, scored
from whence.store.records import RunStatus
from whence.store.runs import RunFolder, Store

if TYPE_CHECKING:
    from whence.experiments.instrument import Instrument, OnProgress
    from whence.store.artifacts import Artifact

Adapt = Callable[[Any, Any], Any]
"""A config and options, into the config that options beside it have changed"""
Page = Callable[[Any, Store, str, "OnProgress"], bytes]
"""A run or an artifact, the store, the command and a callback for progress, into a page"""
PrintMetrics = Callable[[Any, Store], None]
"""Prints what the last evaluation of a run has computed"""


class ComparisonOptions(EngineOptions):
    minutes: float | None = Field(
        default=None, gt=0, le=1e9, description="add no more seeds to --until-decided after this long"
    )


class PresetOptions(OutputOptions):
    names: tuple[str, ...] = Field(
        default=(), description="those to describe; none: all", json_schema_extra=positional("NAME")
    )


class ShowOptions(StoreOptions):
    run: str = Field(
        description="first digits of the run's id ('whence runs list')", json_schema_extra=positional("RUN")
    )
    out: str | None = Field(
        default=None,
        description="page to write; none: among the reports of the store",
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
        config, options = invocation.parse(chosen.config, options_class, presets_of(chosen, chosen.config))
        config, store = adapt(config, options), Store(options.store)
        if options.print_config:
            check_plan(chosen, config, store)
            print_json(config.model_dump(mode="json"))
            return 0
        with progress_line() as on_progress:
            result = run_comparison(
                chosen,
                config,
                store,
                options,
                minutes=options.minutes,
                watch=RunProgress,
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
    """Of a finished run, print_metrics prints the results, and page is written among the reports."""

    def run(invocation: Invocation) -> int:
        from whence.experiments.comparison import execute_runs

        chosen = instrument(name)
        config, options = invocation.parse(chosen.run, options_class, presets_of(chosen, chosen.run))
        config, store = adapt(config, options), Store(options.store)
        if options.print_config:
            config.check()
            print_json({"id": config.id, **config.document()})
            return 0
        ends = execute_runs([config], store, options, RunProgress)
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
            with progress_line() as on_progress:
                report = write_page(config, store, invocation, page, on_progress)
            print_text(f"report  {report}")
        return exit_code(ends, invocation.command)

    return Verb(description, run)


def _status(folder: RunFolder) -> RunStatus | None:
    """None if it was stopped before it could begin, or if another process is about to."""
    try:
        return folder.status()
    except FileNotFoundError:
        return None


def print_run(folder: RunFolder, end: str = "") -> None:
    """In a line or two, how far a run has come. end: how it ended here."""
    status = _status(folder)
    state = status.state if status else end
    parts = [folder.id, "another process is running it; nothing was done here" if end == "busy" else state]
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

    description = f"""List the configurations that come with whence: what each is, costs and should give

  whence {name} presets                 all of them
  whence {name} presets NAME            one of them"""
    return Verb(description, run)


def presets_of(chosen: Instrument[Any, Any], config_class: type[Any]) -> Presets[Any] | None:
    """Those that describe this kind of config."""
    return chosen.presets if chosen.presets and chosen.presets.config is config_class else None


def action(
    name: str,
    verb: str,
    description: str,
    print_artifact: Callable[[Artifact[Any, Any]], None],
    page: Page | None = None,
) -> Verb:
    """What an instrument measures on request. page: also write one among the reports."""

    def run(invocation: Invocation) -> int:
        chosen = next(each for each in instrument(name).actions if each.verb == verb)
        config, options = invocation.parse(chosen.config, StoreOptions)
        store, report, begun = Store(options.store), None, time.time()
        with progress_line("loading") as on_progress:
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
            how = "; --force measures it again" if "force" in chosen.config.model_fields else ""
            print_text(f"from the store: {artifact.path.stem}, measured {measured}{how}")
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
        with open_finished_run(store, options.run) as (folder, run), progress_line("reading the run") as on_progress:
            if not isinstance(run, instrument(name).run):
                raise UserError(f"run: {folder.id} is a run of {run.kind}. Allowed: runs of {name}.")
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
    """Among the reports of the store, or where the user wants it."""
    from whence.report.shell import write
    from whence.store import disk

    if out and (Path(out).suffix != ".html" or not os.path.isdir(Path(out).absolute().parent)):
        raise UserError(f"out: {out!r}. Allowed: FILE.html in a directory that exists.")
    content = page(shown, store, invocation.command, on_progress)
    if out is None:
        store.prepare()
        return write("-".join(invocation.words), content, store.reports)
    disk.write_output(Path(out), content)
    return Path(out)
