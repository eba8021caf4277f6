"""The arena from Python, as its own docstring shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

import whence.arena
from tests.conftest import TINY
from whence.arena.kept import kept, read
from whence.errors import UserError
from whence.runs.store import Store


def test_compare_trains_what_is_missing_and_keeps_the_comparison(tmp_path: Path) -> None:
    fields = {"model": {"d_model": 16, "heads": 2, "layers": 1}, "lengths": TINY["lengths"], "training": {"steps": 5}}
    fields |= {"tasks": [TINY["task"]], "encodings": ["rope", "alibi"], "seeds": 2}
    (table,) = whence.arena.compare(store=tmp_path, workers=2, **fields)
    assert [(row.encoding, row.finished) for row in table.rows] == [("rope", 2), ("alibi", 2)]
    assert table.findings
    store = Store(tmp_path)
    (path,) = kept(store)
    assert {run.id for run in read(path).plan()} == set(store.ids())

    before = [member.status for row in table.rows for member in row.members]
    (again,) = whence.arena.compare(store=tmp_path, **fields)
    assert [member.status for row in again.rows for member in row.members] == before, "nothing was trained twice"


def test_what_cannot_be_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="train_length"):
        whence.arena.compare(store=tmp_path / "store", tasks=["k_back_recall:k=9"], lengths={"train_length": 4})
    assert not (tmp_path / "store").exists()
