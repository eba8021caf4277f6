"""`whence runs repair` on a store of everything: each kind damaged, repaired, and whole again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.calls import document, output
from tests.conftest import TINY, TINY_FLAGS, train_in_process
from tests.features.stored import flip
from whence.app.jobs import ResumeRequest, Submission, job_id
from whence.cli.main import run
from whence.features.activations.store import Collection
from whence.store import disk
from whence.store.data import DataFolder
from whence.store.lock import lock_folder
from whence.store.records import write_as
from whence.store.runs import Store
from whence.store.verify import verify_store

TRAIN = ["--steps", "2", "--evaluations", "1", "--batch-size", "16"]
LABELLED = "0123456789abcdef"


def only(path: Path, pattern: str) -> Path:
    return next(iter(sorted(path.glob(pattern))))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A comparison with its page, activations of one of its runs, an autoencoder on them, an artifact, a job, an
    index."""
    store = Store(tmp_path_factory.mktemp("original"))
    where = ["--store", str(store.root)]
    compare = ["arena", "compare", "--tasks", TINY["task"], "--encodings", "rope", "none", "--seeds", "1"]
    with pytest.MonkeyPatch.context() as patched:
        train_in_process(patched)
        assert run([*compare, "--steps", "3", *TINY_FLAGS, *where]) == 0
        first = store.ids()[0]
        collect = ["features", "collect", "--model", f"run:{first}", "--layer", "1", "--tokens", "1000"]
        assert run([*collect, "--name", "some", *where]) == 0
        assert run(["features", "train", "--activations", "some", "--d-sae", "16", *TRAIN, *where]) == 0
    data = DataFolder.begin(store.place("labelled") / LABELLED, {}, ["rows", "shard-00000"])
    for part in data.config.parts:
        data.write(part, {"values": torch.arange(9)})
    data.finish()
    request = ResumeRequest(runs=("beef" * 3,))
    job = store.place("jobs") / job_id(request)
    disk.make_directory(job)
    write_as(job / "job.json", Submission(request=request, title="a job", link={}, exclusive=True))
    store.summaries()
    assert (store.root / "index.json").exists()
    return store


@pytest.fixture
def store(original: Store, tmp_path: Path) -> Store:
    return Store(shutil.copytree(original.root, tmp_path / "store"))


def damaged(store: Store) -> list[str]:
    return [what for what, problems in verify_store(store) if problems]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def arena_run(store: Store) -> Path:
    return next(store.folder(row.id).path for row in store.summaries() if row.kind == "arena")


KINDS: dict[str, tuple[Callable[[Store], Path], bool]] = {
    "activations, tokens": (lambda store: only(store.root, "activations/some/tokens-*"), False),
    "activations, shard": (lambda store: only(store.root, "activations/some/shard-*"), False),
    "activations, list": (lambda store: store.root / "activations/some/parts.json", False),
    "activations, configuration": (lambda store: store.root / "activations/some/config.json", False),
    "labelled, part": (lambda store: only(store.root, f"labelled/{LABELLED}/shard-*"), False),
    "labelled, list": (lambda store: store.root / f"labelled/{LABELLED}/parts.json", False),
    "labelled, configuration": (lambda store: store.root / f"labelled/{LABELLED}/config.json", False),
    "artifact": (lambda store: only(store.artifacts, "*.json"), False),
    "page": (lambda store: only(store.reports, "*.html"), False),
    "saved configuration": (lambda store: only(store.reports, "*.json"), False),
    "job": (lambda store: only(store.root, "jobs/*/job.json"), False),
    "index": (lambda store: store.root / "index.json", False),
    "log of a run": (lambda store: arena_run(store) / "log.jsonl", False),
    "weights of a run": (lambda store: arena_run(store) / "model.safetensors", True),
    "metrics of a run": (lambda store: arena_run(store) / "metrics.jsonl", True),
    "status of a run": (lambda store: arena_run(store) / "status.json", True),
    "configuration of a run": (lambda store: arena_run(store) / "config.json", False),
}


@pytest.mark.parametrize("how", ["flipped", "deleted", "directory"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_damage_is_repaired(
    kind: str, how: str, store: Store, capsys: pytest.CaptureFixture[str], in_process: None
) -> None:
    find, needs_training = KINDS[kind]
    path, where = find(store), ["--store", str(store.root)]
    what = path.parent if path.parent.parent in (store.runs, *map(store.place, ("activations", "labelled"))) else path
    before = contents(what) if what.is_dir() else {}
    if how == "flipped":
        flip(path, 1)
    else:
        path.unlink()
    if how == "directory":
        (path / "inside").mkdir(parents=True)
    if not damaged(store):
        assert how == "deleted"  # nothing refers to it
        return
    (name,) = damaged(store)

    assert run(["runs", "repair", "--print-config", *where]) == 1
    planned = capsys.readouterr().out
    assert f"{name}: " in planned
    assert not disk.entries(store.damaged), "only a plan"
    if needs_training:
        assert "need --retrain" in output(["runs", "repair", "--yes", *where], capsys, code=1)
        assert damaged(store) == [name]
    else:
        assert "nothing was changed" in _stderr_of(["runs", "repair", *where], capsys)
        assert damaged(store) == [name]
    lost = kind == "configuration of a run"
    code = int(lost)
    done = document(["runs", "repair", "--yes", *needs_training * ["--retrain"], *where], capsys, code=code)["done"]
    assert done[name].startswith("lost: ") == lost, "its configuration is nowhere else"
    assert damaged(store) == []
    assert run(["runs", "verify", *where]) == 0
    if what.parent.name == "activations":
        assert contents(what) == before
        Collection.at(what).check()
    if needs_training:
        assert (what / "metrics.jsonl").read_bytes() == before["metrics.jsonl"]
        assert (what / "model.safetensors").read_bytes() == before["model.safetensors"]
    if what.parent.name == "labelled" and "configuration" not in kind:
        assert DataFolder(what).missing() == (["shard-00000"] if "part" in kind else []), "other parts are kept"


def _stderr_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(arguments) == 2
    return capsys.readouterr().err


def test_everything_at_once(store: Store, capsys: pytest.CaptureFixture[str], in_process: None) -> None:
    where = ["--store", str(store.root)]
    paths = [find(store) for kind, (find, _) in KINDS.items() if "configuration of" not in kind]
    for path in paths:
        flip(path, 2)
    everything = damaged(store)
    assert run(["runs", "verify", *where]) == 1
    for _ in range(2):  # activations of a run that is trained again can be collected once it is
        run(["runs", "repair", "--yes", "--retrain", *where])
    assert "Traceback" not in "".join(capsys.readouterr())
    assert damaged(store) == []
    assert len(everything) >= 8


def test_a_repair_that_was_interrupted_is_finished_by_the_next(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, folder = ["--store", str(store.root)], store.root / "activations" / "some"
    before = contents(folder)
    for path in (only(folder, "shard-00000*"), only(folder, "tokens-*")):
        flip(path, 3)
    write, calls = DataFolder.write, iter(range(9))

    def killed(data: DataFolder, part: str, tensors: Any) -> None:
        if next(calls) == 1:
            raise KeyboardInterrupt
        write(data, part, tensors)

    monkeypatch.setattr(DataFolder, "write", killed)
    assert run(["runs", "repair", "--yes", *where]) == 130
    assert damaged(store) == ["activations/some"]
    assert run(["runs", "repair", "--yes", *where]) == 0
    assert contents(folder) == before
    assert len(disk.entries(store.damaged)) == 2
    capsys.readouterr()


def test_what_cannot_be_collected_again_is_left_and_named(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    where, folder = ["--store", str(store.root)], store.root / "activations" / "some"
    for path in (*store.artifacts.glob("*"), folder / "config.json"):
        path.unlink()
    printed = output(["runs", "repair", "--yes", *where], capsys, code=1)
    assert "not possible: name: the store has no record of what 'some' was collected from" in printed
    assert only(folder, "shard-*").exists()


def test_what_is_being_written_is_left_alone(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    where, job = ["--store", str(store.root)], only(store.root, "jobs/*/job.json")
    flip(job, 1)
    with lock_folder(job.parent):
        assert f"jobs/{job.parent.name}: busy" in output(["runs", "repair", "--yes", *where], capsys, code=1)
    with lock_folder(store.root / "activations" / "some"):
        (store.root / "activations" / "some" / "config.json").unlink()
        assert "activations/some" not in damaged(store)


def test_what_was_set_aside_is_shown_and_deleted(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--store", str(store.root)]
    assert "No damaged files were set aside" in output(["runs", "gc", *where], capsys)
    flip(only(store.root, "activations/some/shard-*"), 1)
    flip(store.root / "index.json", 1)
    output(["runs", "repair", "--yes", *where], capsys)
    kept = [path.name for path in disk.entries(store.damaged)]
    assert len(kept) == 2
    assert "nothing was deleted" in _stderr_of(["runs", "gc", *where], capsys)
    assert [path.name for path in disk.entries(store.damaged)] == kept
    printed = output(["runs", "gc", "--yes", *where], capsys)
    assert all(name in printed for name in kept)
    assert disk.entries(store.damaged) == []
    assert damaged(store) == []
