"""`whence features show`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from whence.cli.options import Invocation, StoreOptions
from whence.cli.output import print_json, stderr
from whence.errors import UserError
from whence.experiments.options import positional

SHOW = """Look at a trained autoencoder: where each feature speaks, how much of that its position explains, and in which
text it speaks loudest.

  whence features show 7c1e                           a page among the reports of the store
  whence features show 7c1e --out features.html       the same page elsewhere
  whence features show 7c1e --json                    numbers: bound features with their peaks, fidelity, contexts

RUN is the first digits of a run's id ('whence runs list'). Everything is measured on states of documents never trained
on, with masks as trained and with masks lifted: under a mask, a feature speaks at its places whatever it has learned.
On the page, features are sorted as you choose; a click on one shows its profile and its text."""


class Showing(StoreOptions):
    """Where runs are kept and results go."""

    run: str = Field(description="first digits of a run's id", json_schema_extra=positional("RUN"))
    out: str = Field(default="", description="where to write the page, as FILE.html; none: the reports of the store")


def show(invocation: Invocation) -> int:
    options = invocation.options(Showing)
    if options.out and (Path(options.out).suffix != ".html" or not Path(options.out).absolute().parent.is_dir()):
        raise UserError(f"out: {options.out!r}. Allowed: FILE.html in a directory that exists.", field="out")
    from whence.features.page import run_page, seen
    from whence.features.stored import load
    from whence.features.view import view
    from whence.report.shell import write
    from whence.store.files import write_atomically
    from whence.store.runs import Store

    store = Store(options.store)
    store.must_exist()
    again = invocation.command
    with stderr.status("loading …") as status:
        model, run = load(store, options.run)
        found = view(model, run.data.build(), lambda told: status.update(f"{told} …"))
        page = run_page(run, found, store.folder(run.id).metrics(), again)
    if options.out:
        report = Path(options.out)
        write_atomically(report, page)
    else:
        report = write("features", page, store.reports)
    if options.json_:
        print_json({"run": run.id, **found.to_json(), "report": str(report), "again": again})
        return 0
    for line in seen(found):
        print(f"  {line}")
    print(f"report  {report}")
    return 0
