"""Reports as files: HTML, PNG, CSV, Markdown, and the JSON that is published in `results/`."""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, TypeVar

from whence.config import Config
from whence.errors import UserError
from whence.experiments.instrument import Instrument
from whence.experiments.options import store_flag
from whence.experiments.page import comparison_page, page_title
from whence.experiments.table import Table
from whence.experiments.tabulate import tabulate
from whence.formatting import as_csv, visible
from whence.parsing import check_depth, parse_json
from whence.report.export import picture_of
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.files import FORMAT, canonical, digest
from whence.store.records import parse_as
from whence.store.runs import Store
from whence.training.config import AnyRun

R = TypeVar("R", bound=AnyRun)
PUBLISHED_FORMAT = 1


class PublishedResults(Config):
    """The content of `whence report NAME --out results/NAME.json`: every number can be checked without the store."""

    format: int
    instrument: str
    config: Any
    """Configuration of the comparison, or of every run"""
    command: str
    versions: dict[str, str]
    """Versions of the packages, and `format`: the store format under which the runs have these ids"""
    tables: list[Any]
    """`Table.to_json`: scores of every seed, verdicts, run ids"""
    hash: str
    """SHA-256 of all other fields"""

    @classmethod
    def of(cls, **fields: Any) -> PublishedResults:
        return cls(**fields, hash=digest(canonical(fields)))

    @classmethod
    def load(cls, path: Path) -> PublishedResults:
        """Read a file. Raises CorruptFileError for another format and for an edited file."""
        raw = disk.read(path.resolve())
        try:
            check_depth(raw)
            document: dict[str, Any] = parse_json(raw)
            given = document.get("format")
        except (ValueError, AttributeError) as error:  # also of what is no mapping
            raise CorruptFileError(path, f"not published results: {error}") from None
        if given != PUBLISHED_FORMAT:
            raise CorruptFileError(path, f"format {given!r}; this version of whence reads format {PUBLISHED_FORMAT}")
        if document.pop("hash", None) != digest(canonical(document)):
            raise CorruptFileError(path, "hash does not match the content")
        return parse_as(cls, {**document, "hash": digest(canonical(document))}, path)


@dataclass(frozen=True)
class Report(Generic[R]):
    """Tables that can be written in several formats."""

    instrument: Instrument[Any, R]
    tables: Sequence[Table[R]]
    config: Any
    command: str
    store: Store

    @property
    def finished(self) -> bool:
        """Whether any run has finished."""
        return any(row.finished for table in self.tables for row in table.rows)

    def html(self) -> bytes:
        return comparison_page(self.instrument, self.tables, self.config, self.command, self.store)

    def png(self) -> bytes:
        return picture_of(self.html())

    def csv(self) -> bytes:
        return as_csv(line for table in self.tables for line in self.instrument.records(table)).encode()

    def json(self) -> bytes:
        published = PublishedResults.of(
            format=PUBLISHED_FORMAT,
            instrument=self.instrument.name,
            config=self.config,
            command=self.command,
            versions=versions(),
            tables=[table.to_json() for table in self.tables],
        )
        return (json.dumps(published.model_dump(), indent=1) + "\n").encode()

    def markdown(self) -> bytes:
        lines = [f"# {page_title(self.instrument, self.tables)}", ""]
        for table in self.tables:
            lines += [f"## {table.title}", "", table.conclusion, ""]
            columns = table.filled_columns
            lines += [_markdown_row(["variant", "seeds", *(column.title for column in columns)])]
            lines += ["|---" * (2 + len(columns)) + "|"]
            for row in table.rows:
                texts = [row.cell(column.key).words for column in columns]
                lines.append(_markdown_row([row.name, str(len(row.finished)), *texts]))
            lines += ["", f"{table.caption}.", ""] if table.caption else [""]
            lines += [*(f"- {line}" for line in table.findings), "", f"How we know: {table.heading}.", ""]
        return "\n".join([*lines, f"Reproduce: `{self.command}`", ""]).encode()


FORMATS: dict[str, Callable[[Report[Any]], bytes]] = {
    ".html": lambda report: report.html(),
    ".png": lambda report: report.png(),
    ".csv": lambda report: report.csv(),
    ".md": lambda report: report.markdown(),
    ".json": lambda report: report.json(),
}


def report_on_runs(
    runs: Sequence[AnyRun], store: Store, instrument_of: Callable[[str], Instrument[Any, Any]]
) -> Report[Any]:
    """A report on single runs of one instrument. Nothing is tested, because the runs may be chosen by their results.

    Args:
        instrument_of: returns an instrument by its name, which is the kind of its runs.
    """
    kinds = {run.kind for run in runs}
    if len(kinds) > 1:
        raise UserError(
            f"run: expected runs of one instrument, got {' and '.join(sorted(kinds))}. Write a report for each."
        )
    instrument, own = instrument_of(kinds.pop()), {run.id: run for run in runs}
    tables = tabulate(instrument, instrument.tables_of_runs(list(own.values())), store, tested=False)
    command = shlex.join(["whence", "report", *own, *store_flag(store)])
    return Report(instrument, tables, [run.document() for run in own.values()], command, store)


def versions() -> dict[str, str]:
    """Versions of the packages that results depend on."""
    names = ("whence", "torch", "numpy", "scipy", "numba")
    known = {name: metadata.version(name) for name in names}
    return {**known, "python": platform.python_version(), "machine": platform.machine(), "format": str(FORMAT)}


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(visible(cell).replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"
