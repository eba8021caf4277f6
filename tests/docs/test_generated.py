"""Generated pages are up to date, and modules that pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import reference
from tests.docs.pages import PROJECT, pages

MODULE = re.compile(r"`((?:src/whence/|tests/|bench/)?[\w/]+/\w+\.(?:py|json|yaml))`")


def test_the_python_reference_is_up_to_date() -> None:
    assert reference.API.read_text() == reference.api(), "make docs"


def test_the_configuration_reference_is_up_to_date() -> None:
    assert reference.CONFIGURATION.read_text() == reference.configuration(), "make docs"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(PROJECT)))
def test_modules_that_a_page_names_exist(page: Path) -> None:
    """Relative to the project or to src/whence; what a reader is asked to write is not there yet."""
    text = page.read_text()
    written = set(re.findall(r"Save this as\s+`([^`]+)`", text))
    for name in set(MODULE.findall(text)) - written:
        assert any((root / name).exists() for root in (PROJECT, PROJECT / "src", PROJECT / "src" / "whence")), name
