"""A report in other forms: the page as a picture, the numbers as CSV, the words as Markdown."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from whence.errors import UserError
from whence.experiments.instrument import Instrument
from whence.experiments.page import comparison_page, page_title
from whence.experiments.table import Table
from whence.formatting import as_csv
from whence.store.files import write_atomically
from whence.store.runs import Store
from whence.training.config import FORMAT

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDTH = 1120


@dataclass(frozen=True)
class Report:
    """Tables to be written as a file of any kind."""

    instrument: Instrument[Any, Any]
    tables: Sequence[Table[Any]]
    config: Any
    command: str
    store: Store

    def html(self) -> bytes:
        return comparison_page(self.instrument, self.tables, self.config, self.command, self.store)


def write_html(report: Report, path: Path) -> None:
    write_atomically(path, report.html())


def write_json(report: Report, path: Path) -> None:
    tables = [table.to_json() for table in report.tables]
    body = {"tables": tables, "config": report.config, "command": report.command, "versions": versions()}
    write_atomically(path, (json.dumps(body, indent=1) + "\n").encode())


def versions() -> dict[str, str]:
    """Of what results depend on."""
    names = ("whence", "torch", "numpy", "scipy", "numba")
    known = {name: metadata.version(name) for name in names}
    return {**known, "python": platform.python_version(), "machine": platform.machine(), "format": str(FORMAT)}


def write_csv(report: Report, path: Path) -> None:
    lines = [line for table in report.tables for line in report.instrument.records(table)]
    write_atomically(path, as_csv(lines).encode())


def write_markdown(report: Report, path: Path) -> None:
    lines = [f"# {page_title(report.instrument, report.tables)}", ""]
    for table in report.tables:
        lines += [f"## {table.title}", "", f"{table.heading}.", "", *(f"- {line}" for line in table.findings), ""]
        columns = table.filled_columns
        lines += [_markdown_row(["variant", "seeds", *(column.title for column in columns)])]
        lines += ["|---" * (2 + len(columns)) + "|"]
        for row in table.rows:
            cells = [row.cell(column.key) for column in columns]
            texts = [" ".join(filter(None, (cell.text, cell.verdict))) for cell in cells]
            lines.append(_markdown_row([row.name, str(len(row.finished)), *texts]))
        lines += ["", f"{table.caption}.", ""] if table.caption else [""]
    write_atomically(path, "\n".join([*lines, f"Made by `{report.command}`.", ""]).encode())


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def write_png(report: Report, path: Path) -> None:
    write_atomically(path, picture_of(report.html()))


def browser() -> str | None:
    """The program that draws pages, where there is one."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def picture_of(page: bytes) -> bytes:
    """A page as a browser shows it, from top to bottom: PNG."""
    program = browser()
    if program is None:
        raise UserError(
            "out: a picture needs a browser to draw it, and none was found. Allowed: install Chromium, or choose "
            ".html, .csv, .md, .json.",
            field="out",
        )
    with tempfile.TemporaryDirectory() as folder:
        source, picture = Path(folder) / "page.html", Path(folder) / "page.png"
        measure = b"<script>document.documentElement.dataset.height = document.documentElement.scrollHeight</script>"
        source.write_bytes(page.replace(b"</body>", measure + b"</body>"))
        shown = _browse(program, folder, source, "--dump-dom", f"--window-size={WIDTH},1000").stdout
        height = re.search(r'data-height="(\d+)"', shown)
        tall = min(int(height[1]) if height else 2000, 16_000)
        _browse(program, folder, source, f"--screenshot={picture}", f"--window-size={WIDTH},{tall}")
        if not picture.is_file():
            raise UserError(f"out: {program} did not draw the page. Allowed: .html, .csv, .md, .json.", field="out")
        return picture.read_bytes()


def _browse(browser: str, profile: str, source: Path, *options: str) -> subprocess.CompletedProcess[str]:
    common = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
    command = [browser, *common, f"--user-data-dir={profile}/profile", "--virtual-time-budget=4000", *options]
    try:
        return subprocess.run(
            [*command, source.as_uri()], capture_output=True, text=True, errors="replace", timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"out: {browser} could not draw the page ({type(error).__name__}).", field="out") from None


WRITERS: dict[str, Callable[[Report, Path], None]] = {
    ".html": write_html,
    ".png": write_png,
    ".csv": write_csv,
    ".md": write_markdown,
    ".json": write_json,
}
