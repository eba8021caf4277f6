"""Screenshots of pages, made by a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from whence.errors import UserError
from whence.report.shell import with_script

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDTH = 1120
MEASURE = """
addEventListener('load', () => {
  document.documentElement.dataset.height = document.documentElement.scrollHeight;
});
"""


def browser() -> str | None:
    """Path of an installed browser; None without one."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def picture_of(page: bytes) -> bytes:
    """A screenshot of the whole page as PNG. Raises UserError if no browser is installed."""
    program = browser()
    if program is None:
        raise UserError(
            "out: PNG output needs a browser, and none was found. Install Chromium, or choose .html, .csv, .md "
            "or .json."
        )
    with tempfile.TemporaryDirectory() as folder:
        source, picture = Path(folder) / "page.html", Path(folder) / "page.png"
        source.write_bytes(with_script(page, MEASURE))
        shown = _browse(program, folder, source, "--dump-dom", f"--window-size={WIDTH},1000").stdout
        height = re.search(r'data-height="(\d+)"', shown)
        tall = min(int(height[1]) if height else 2000, 16_000)
        _browse(program, folder, source, f"--screenshot={picture}", f"--window-size={WIDTH},{tall}")
        if not picture.is_file():
            raise UserError(f"out: {program} made no screenshot of the page. Choose .html, .csv, .md or .json.")
        return picture.read_bytes()


def _browse(browser: str, profile: str, source: Path, *options: str) -> subprocess.CompletedProcess[str]:
    common = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
    command = [browser, *common, f"--user-data-dir={profile}/profile", "--virtual-time-budget=4000", *options]
    try:
        return subprocess.run(
            [*command, source.as_uri()], capture_output=True, text=True, errors="replace", timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(
            f"out: {browser} could not render the page ({type(error).__name__}). Choose .html, .csv, .md or .json."
        ) from None
