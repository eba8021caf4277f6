"""A report in other forms: the page as a picture, the numbers as CSV, the words as Markdown."""

from __future__ import annotations

import csv
import io
import json
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from whence.arena.table import Table
from whence.errors import UserError
from whence.report.page import Page
from whence.runs.files import write_atomically
from whence.runs.spec import FORMAT

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDTH = 1120


def write_html(page: Page, path: Path) -> None:
    write_atomically(path, page.render())


def write_json(page: Page, path: Path) -> None:
    tables = [table.to_json() for table in page.tables]
    body = {"tables": tables, "spec": page.document, "again": page.again, "versions": versions()}
    write_atomically(path, (json.dumps(body, indent=1) + "\n").encode())


def versions() -> dict[str, str]:
    """Of what results depend on."""
    names = ("whence", "torch", "numpy", "scipy", "numba")
    known = {name: metadata.version(name) for name in names}
    return {**known, "python": platform.python_version(), "machine": platform.machine(), "format": str(FORMAT)}


def write_csv(page: Page, path: Path) -> None:
    """One line per run and length."""
    lines = [line for table in page.tables for line in _lines(table)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]) if lines else ["table"])
    writer.writeheader()
    writer.writerows(lines)
    write_atomically(path, text.getvalue().encode())


def _lines(table: Table) -> Iterator[dict[str, Any]]:
    run = table.run
    floors = {n: max(run.floors(n).values()) for n in (run.train_length, *run.test_lengths)}
    for row in table.rows:
        for member in row.members:
            for length, floor in floors.items():
                counts = member.metrics["lengths"][str(length)]
                yield {
                    "table": table.title,
                    "task": table.task,
                    "mixer": str(run.model.mixer),
                    "encoding": row.encoding,
                    "seed": member.run.seed,
                    "length": length,
                    "part": "id" if length == run.train_length else "ood",
                    "correct": counts["correct"],
                    "total": counts["total"],
                    "accuracy": counts["correct"] / counts["total"],
                    "floor": floor,
                    "exact": counts["exact"] / counts["sequences"],
                    "loss": counts["loss"],
                    "run": member.run.id,
                    "seconds": member.status["seconds"],
                    "tokens": member.status["tokens"],
                }


def write_markdown(page: Page, path: Path) -> None:
    lines = [f"# {page.title}", ""]
    for table in page.tables:
        lines += [f"## {table.title}", "", table.heading + ".", "", *(f"- {line}" for line in table.findings), ""]
        lines += ["| encoding | seeds | within % | verdict | beyond % | verdict |", "|---|---|---|---|---|---|"]
        for row in table.rows:
            within, beyond = (" ".join(s.percents) if s else "" for s in (row.within, row.shown_beyond))
            cells = [row.name, row.finished, within, row.verdict, beyond, row.beyond_verdict]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
        lines += ["", f"{table.floors()}.", ""]
    write_atomically(path, "\n".join([*lines, f"Made by `{page.again}`.", ""]).encode())


def write_png(page: Page, path: Path) -> None:
    write_atomically(path, picture_of(page.render()))


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


WRITERS: dict[str, Callable[[Page, Path], None]] = {
    ".html": write_html,
    ".png": write_png,
    ".csv": write_csv,
    ".md": write_markdown,
    ".json": write_json,
}
