"""From a configuration to its tables, from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import whence
from tests.arena.made import planned
from tests.conftest import TINY
from whence.arena.config import ArenaConfig
from whence.errors import UserError
from whence.execution.options import ExecutionOptions
from whence.experiments.saved import read_config, saved_configs
from whence.store.runs import Store


def test_compare_trains_what_is_missing_and_keeps_the_comparison(tmp_path: Path) -> None:
    fields = {"model": {"d_model": 16, "heads": 2, "layers": 1}, "lengths": TINY["lengths"], "training": {"steps": 5}}
    fields |= {"tasks": [TINY["task"]], "encodings": ["rope", "alibi"], "seeds": 2}
    result = whence.compare("arena", store=tmp_path, options=ExecutionOptions(workers=2), **fields)
    (table,) = result.tables
    assert [(row.name, len(row.finished)) for row in table.rows] == [("rope", 2), ("alibi", 2)]
    assert table.findings
    assert result.report is not None
    assert result.report.is_file()
    store = Store(tmp_path)
    (path,) = saved_configs("arena", store)
    assert path.stem == result.name
    assert {run.id for run in planned(read_config(path, ArenaConfig))} == set(store.ids())

    before = {run: store.folder(run).status() for run in store.ids()}
    again = whence.compare("arena", store=tmp_path, **fields)
    assert {run: store.folder(run).status() for run in store.ids()} == before, "nothing was trained twice"
    assert set(again.ends.values()) == {"skipped"}
    assert [table.rows for table in again.tables] == [table.rows]


def test_what_is_impossible_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="train_length"):
        whence.compare("arena", store=tmp_path / "store", tasks=["k_back_recall:k=9"], lengths={"train_length": 4})
    assert not (tmp_path / "store").exists()
    with pytest.raises(UserError, match="instrument"):
        whence.compare("arean", store=tmp_path / "store")
