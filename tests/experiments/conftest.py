"""A comparison with all that a page can show."""

from __future__ import annotations

import pytest

from tests.arena.made_report import made_report
from whence.experiments.export import Report
from whence.store.runs import Store


@pytest.fixture
def report(store: Store, monkeypatch: pytest.MonkeyPatch) -> Report:
    return made_report(store, monkeypatch)
