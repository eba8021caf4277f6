"""From a configuration to its tables, from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import whence
from tests.arena.made import finish_all, planned
from tests.conftest import TINY
from whence.arena.config import ArenaConfig
from whence.arena.instrument import ARENA
from whence.arena.run import ArenaRun
from whence.errors import UserError
from whence.experiments.comparison import plan_note, read_comparison, run_comparison
from whence.experiments.instrument import Instrument
from whence.experiments.saved import read_config, saved_configs
from whence.store.runs import Store

SHORT = {
    "tasks": [TINY["task"]],
    "encodings": ["rope", "alibi"],
    "model": {"d_model": 16, "heads": 2, "layers": 1},
    "lengths": TINY["lengths"],
    "training": {"steps": 5},
}


def test_compare_trains_what_is_missing_and_keeps_the_comparison(tmp_path: Path) -> None:
    fields = {**SHORT, "seeds": 2}
    result = whence.compare("arena", store=tmp_path, workers=2, **fields)
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


@pytest.mark.usefixtures("here")
def test_a_store_has_one_page_from_wherever_it_is_named() -> None:
    config = ArenaConfig.read({"tasks": [TINY["task"]], "encodings": ["rope"], "seeds": 1})
    Store().prepare()
    finish_all(Store(), planned(config), {"rope": [0.9]})
    stores = [Store(), Store("whence-runs"), Store(Path.cwd() / "whence-runs")]
    results = [read_comparison(ARENA, config, store) for store in stores]
    assert len({result.report.absolute() for result in results if result.report}) == 1
    assert len({result.command for result in results}) == 1


def test_notes_are_apart_from_progress(tmp_path: Path) -> None:
    notes: list[str] = []
    progress: list[str] = []
    config = ArenaConfig.read({**SHORT, "seeds": 1})
    result = run_comparison(ARENA, config, Store(tmp_path), on_progress=progress.append, on_note=notes.append)
    assert notes == [plan_note(ARENA, config, Store(tmp_path))]
    assert "Writing the report" in progress
    assert not set(notes) & set(progress)
    assert result.to_json()["summary"] is None, "of one task"


def test_an_instrument_that_lacks_a_method_is_refused() -> None:
    class Half(Instrument[ArenaConfig, ArenaRun]):
        name, config, run = "half", ArenaConfig, ArenaRun

    with pytest.raises(TypeError, match="abstract"):
        type("Half", (Half,), {})()
