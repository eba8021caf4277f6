"""The pictures of the tutorials, from the blocks of the tutorials as a reader executes them: make docs-pictures

    python -m tests.docs.pictures            all of them (about half an hour on two cores)
    python -m tests.docs.pictures leak       one of them

A tutorial that makes its picture itself (fields.png) is copied; of the others, a figure of the latest report is drawn.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.docs.execute import execute_as_written, execute_python
from tests.docs.pages import PROJECT, blocks
from whence.report.export import browser

TUTORIALS = PROJECT / "docs" / "tutorials"
FIGURES = {"arena": "length", "leak": "layer", "features": "position"}
"""The tutorial and a word in the heading or the axes of the figure that it shows"""
WIDTH, LARGEST = 1000, 150_000
FIND = """words => {
  const figures = [...document.querySelectorAll('.figure')], headings = [...document.querySelectorAll('h1, h2, h3')];
  const above = node => headings.filter(h => h.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_FOLLOWING).pop();
  const parts = node => [above(node), ...node.querySelectorAll('svg text')];
  const text = node => parts(node).map(part => part?.textContent ?? '').join(' ');
  const found = figures.find(node => text(node).toLowerCase().includes(words)) ?? figures[0];
  if (found) found.dataset.picture = '';
  return Boolean(found);
}"""


def draw(name: str, folder: Path) -> None:
    """Execute the tutorial in the folder up to its picture, then make the picture."""
    page, namespace = TUTORIALS / f"{name}.md", dict[str, Any](__name__="__main__")
    before = page.read_text().split(f"]({name}.png)")[0].count("\n")
    os.chdir(folder)
    for block in blocks(page):
        if block.line > before:
            break
        if block.language == "python":
            execute_python(block, block.code, namespace)
        elif block.language == "bash":
            print(block.code, end="", flush=True)
            execute_as_written(block, folder)
    target = TUTORIALS / f"{name}.png"
    if (folder / target.name).exists():
        picture = Image.open(folder / target.name)
    else:
        pages = [*folder.glob("*.html"), *folder.glob("whence-runs/reports/*.html")]
        latest = max(pages, key=lambda path: path.stat().st_mtime_ns)
        picture = Image.open(io.BytesIO(figure_of(latest, FIGURES[name])))
    save(picture, target)


def figure_of(report: Path, words: str) -> bytes:
    with sync_playwright() as playwright:
        visitor = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        page = visitor.new_page(viewport={"width": WIDTH, "height": 1000})
        page.set_default_timeout(300_000)
        page.goto(report.as_uri())
        page.wait_for_timeout(1500)
        assert page.evaluate(FIND, words), f"{report}: no figure"
        picture = page.locator("[data-picture]").first.screenshot()
        visitor.close()
    return picture


def save(picture: Image.Image, target: Path) -> None:
    """As PNG of at most 150 KB: in full color, or with fewer colors where that is too large."""
    for colors in (None, 256, 64):
        image = picture.convert("RGB")
        image = image if colors is None else image.quantize(colors)
        image.save(target, optimize=True)
        if target.stat().st_size <= LARGEST:
            print(f"{target.relative_to(PROJECT)}: {target.stat().st_size // 1000} KB")
            return
    raise SystemExit(f"{target.name} is larger than {LARGEST // 1000} KB")


def main(names: list[str]) -> None:
    for name in names or [page.stem for page in sorted(TUTORIALS.glob("*.md"))]:
        with tempfile.TemporaryDirectory() as folder:
            draw(name, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
