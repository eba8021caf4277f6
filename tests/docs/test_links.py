"""Links and pictures of README and docs lead to files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import GENERATED, PROJECT, pages

PAGES = [*pages(), *(PROJECT / page for page in GENERATED)]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LARGEST_PICTURE = 150_000
PLACEHOLDERS = {
    *(f"docs/tutorials/{name}.png" for name in ("arena", "features", "fields", "leak")),  # make docs-pictures
}
"""Pictures that are still to be made"""


def anchors(page: Path) -> set[str]:
    """Of every heading, as GitHub and the site make them."""
    headings = HEADING.findall(FENCED.sub("", page.read_text()))
    words = [re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings]
    return {re.sub(r"\s", "-", text) for text in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = CODE.sub("", FENCED.sub("", page.read_text()))
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        if re.match(r"https?:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        if str(target.relative_to(PROJECT)) in PLACEHOLDERS:
            continue
        assert target.is_file(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}; {sorted(anchors(target))}"


def test_placeholders_are_missing_pictures() -> None:
    for path in PLACEHOLDERS:
        assert not (PROJECT / path).exists(), f"{path} is there: remove it from PLACEHOLDERS"


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r": (\S+\.md)$", (PROJECT / "mkdocs.yml").read_text(), re.MULTILINE)
    written = [str(page.relative_to(PROJECT / "docs")) for page in (PROJECT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(written)


def test_pictures_of_tutorials_are_small() -> None:
    for picture in (PROJECT / "docs" / "tutorials").glob("*.*g"):
        assert picture.stat().st_size <= LARGEST_PICTURE, picture.name
