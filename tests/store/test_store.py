"""Listing, finding, removing; the index is a cache and nothing more."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whence.config import Config
from whence.errors import UserError
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.store.artifacts import ArtifactKind
from whence.store.disk import CorruptFileError
from whence.store.lock import LockedError
from whence.store.runs import Store
from whence.store.verify import verify_store


@pytest.fixture
def store(tiny: Callable[..., Any], tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    for seed in range(3):
        execute(tiny(seed=seed, training={"steps": 3}), store, ExecutionOptions(threads=1))
    return store


def test_the_index_can_be_deleted_and_rebuilt(store: Store) -> None:
    before = store.summaries()
    assert [row.seed for row in before] == [0, 1, 2]
    index = store.root / "index.json"
    for damage in (index.unlink, lambda: index.write_bytes(b"{"), lambda: index.write_bytes(index.read_bytes()[:-9])):
        damage()
        assert store.summaries() == before
        assert index.exists()


def test_the_index_notices_changes(store: Store, tiny: Callable[..., Any]) -> None:
    store.summaries()
    execute(tiny(seed=9, training={"steps": 3}), store, ExecutionOptions(threads=1))
    assert [row.seed for row in store.summaries()] == [0, 1, 2, 9]
    shutil.rmtree(store.folder(store.summaries()[0].id).path)
    assert [row.seed for row in store.summaries()] == [1, 2, 9]
    (store.folder(store.summaries()[0].id).path / "status.json").write_text("{}")
    assert [row.state for row in store.summaries()].count("corrupt") == 1


def test_an_unfinished_run_without_a_process_reads_as_interrupted(store: Store, tiny: Callable[..., Any]) -> None:
    spec = tiny(seed=5)

    def die(event: dict[str, Any]) -> None:
        if event.kind == "progress":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(spec, store, ExecutionOptions(threads=1, checkpoint_interval=0), die)
    assert store.folder(spec.id).status().state == "interrupted"
    assert {row.id: row.state for row in store.summaries()}[spec.id] == "interrupted"
    with store.folder(spec.id).lock():
        assert {row.id: row.state for row in store.summaries()}[spec.id] == "running"


def test_runs_are_found_by_their_first_digits(store: Store) -> None:
    run_id = store.ids()[0]
    assert store.find(run_id[:6]).id == run_id
    for text in ("", "zzz", "../..", "/etc"):
        with pytest.raises(UserError):
            store.find(text)
    with pytest.raises(UserError):
        store.folder("../../etc/pwd")


def test_removing(store: Store) -> None:
    victim = store.folder(store.ids()[0])
    with victim.lock(), pytest.raises(LockedError):
        store.remove(victim)
    store.remove(victim)
    assert not victim.path.exists()
    assert len(store.summaries()) == 2
    assert not list(store.damaged.iterdir())


def test_where_the_store_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WHENCE_STORE", raising=False)
    assert Store().root == Path("whence-runs")
    monkeypatch.setenv("WHENCE_STORE", str(tmp_path))
    assert Store().root == tmp_path
    assert Store(tmp_path / "other").root == tmp_path / "other"
    assert Store(tmp_path / "empty").summaries() == []
    assert not (tmp_path / "empty").exists(), "reading must not create a store"


def test_artifacts_are_verified(tmp_path: Path) -> None:
    store = Store(tmp_path / "artifacts only")

    class Number(Config):
        value: int

    path = ArtifactKind("number", Number, Number).save(Number(value=2), Number(value=4), store).path
    assert dict(verify_store(store)) == {f"artifacts/{path.name}": []}
    path.write_bytes(path.read_bytes().replace(b"4", b"5", 1))
    assert [bool(problems) for _, problems in verify_store(store)] == [True]
    other = path.with_name(path.name.replace("number", "other"))
    path.rename(other)
    assert [bool(problems) for _, problems in verify_store(store)] == [True]


def test_an_artifact_of_another_shape_is_refused_in_one_line(tmp_path: Path) -> None:
    class Number(Config):
        value: int

    class Numbers(Config):
        values: tuple[int, ...]

    store, request = Store(tmp_path / "store"), Number(value=2)
    path = ArtifactKind("number", Number, Number).save(request, Number(value=4), store).path
    changed = ArtifactKind("number", Number, Numbers)
    with pytest.raises(CorruptFileError, match="not a Numbers") as refused:
        changed.read(path)
    assert len(str(refused.value).splitlines()) == 1
    assert changed.find(request, store) is None
    assert list(changed.all(store)) == []
    with pytest.raises(UserError, match="cannot be read"):
        changed.open(path.stem, store)
    with pytest.raises(UserError, match="is not in the store"):
        changed.open("f00", store)
