"""docs/cli.md is what `--help` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from whence.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_reference_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "43")
    assert reference() == PAGE.read_text(), "make docs"
