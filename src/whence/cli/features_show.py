"""`whence features show`."""

from __future__ import annotations

import shlex
from pathlib import Path

from pydantic import Field

from whence.cli.options import Stored, parse_options
from whence.cli.output import print_json, stderr
from whence.errors import UserError

SHOW = """Look at a trained autoencoder: where each feature speaks, how much of that its position explains, and in which
text it speaks loudest.

  whence features show 7c1e                           a page among the reports of the store
  whence features show 7c1e --out features.html       the same page elsewhere
  whence features show 7c1e --json                    numbers: bound features with their peaks, fidelity, contexts

RUN is the first digits of a run's id ('whence runs list'). Everything is measured on states of documents never trained
on, with masks as trained and with masks lifted: under a mask, a feature speaks at its places whatever it has learned.
On the page, features are sorted as you choose; a click on one shows its profile and its text."""


class Showing(Stored):
    """Where runs are kept and results go."""

    out: str = Field(default="", description="where to write the page, as FILE.html; none: the reports of the store")


def show(arguments: list[str]) -> int:
    options, words = parse_options(Showing, arguments, prog="whence features show RUN", description=SHOW, words=True)
    if len(words) != 1:
        raise UserError("run: name one run. See 'whence runs list'.", field="run")
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
    again = shlex.join(["whence", "features", "show", *arguments])
    with stderr.status("loading …") as status:
        model, run = load(store, words[0])
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
