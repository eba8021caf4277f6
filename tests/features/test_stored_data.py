"""Activations that were changed, exchanged or lost: nothing is trained on them, `verify` reports them, and they are
collected again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.cli.test_bad_input import refused
from tests.features.stored import flip
from whence.cli.main import run
from whence.errors import UserError
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.features.actions import run_evaluate
from whence.features.activations.collect import collect_from
from whence.features.activations.sources import of_module
from whence.features.activations.store import SHARD, Collection
from whence.features.config import EvaluateConfig
from whence.features.data import StoredActivations
from whence.features.run import FeaturesRun
from whence.store.lock import lock_folder
from whence.store.runs import Store
from whence.store.verify import verify_store

SEQUENCES, CONTEXT, WIDTH = 2 * SHARD + 10, 8, 4
FLIPPED = 399


def gather(store: Store, name: str, seed: int = 0) -> Collection:
    """Three shards of states of a small network."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Embedding(20, WIDTH), torch.nn.Linear(WIDTH, WIDTH))
        ids = torch.randint(20, (SEQUENCES, CONTEXT))
    return collect_from(of_module(model, "1", ids, d_in=WIDTH), store, name)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """ "one" and "other"."""
    store = Store(tmp_path_factory.mktemp("store"))
    for seed, name in enumerate(("one", "other")):
        gather(store, name, seed)
    return store


@pytest.fixture
def store(two: Store, tmp_path: Path) -> Store:
    return Store(shutil.copytree(two.root, tmp_path / "store"))


def part(folder: Path, name: str) -> Path:
    (path,) = folder.glob(f"{name}*")
    return path


def exchange(one: Path, other: Path) -> None:
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])


def swap_names(one: Path, other: Path) -> None:
    """Each is whole, and not what its name says."""
    first, second = ("-".join(path.stem.split("-")[:-1]) for path in (one, other))
    one.rename(one.with_name(other.name.replace(second, first)).with_suffix(".aside"))
    other.rename(other.with_name(one.name.replace(first, second)))
    aside = part(one.parent, "*.aside")
    aside.rename(aside.with_suffix(".safetensors"))


def replace_tokens(one: Path, other: Path) -> None:
    data = part(other, "tokens").read_bytes()
    part(one, "tokens").write_bytes(data)


def copy_all_but(*kept: str) -> Callable[[Path, Path], None]:
    def copy(one: Path, other: Path) -> None:
        for path in one.iterdir():
            path.unlink() if path.name not in kept else None
        for path in other.iterdir():
            shutil.copy(path, one) if path.name not in kept else None

    return copy


def copy_one(name: str) -> Callable[[Path, Path], object]:
    return lambda one, other: shutil.copy(part(other, name), one / part(other, name).name)


DAMAGE: dict[str, Callable[[Path, Path], object]] = {
    "flipped bit in a shard": lambda one, other: flip(part(one, "shard-00001"), 1),
    "flipped bit in the tokens": lambda one, other: flip(part(one, "tokens"), 2),
    "flipped bit in the list": lambda one, other: flip(one / "parts.json", 3),
    "flipped bit in the configuration": lambda one, other: flip(one / "config.json", 4),
    "contents of shards exchanged": lambda one, other: exchange(part(one, "shard-00000"), part(one, "shard-00001")),
    "names of shards exchanged": lambda one, other: swap_names(part(one, "shard-00000"), part(one, "shard-00001")),
    "a shard of the other, under its own name": lambda one, other: (
        part(one, "shard-00000").unlink(),
        copy_one("shard-00000")(one, other),
    ),
    "a shard of the other, under this name": lambda one, other: part(one, "shard-00000").write_bytes(
        part(other, "shard-00000").read_bytes()
    ),
    "tokens of the other": replace_tokens,
    "tokens deleted": lambda one, other: part(one, "tokens").unlink(),
    "a shard deleted": lambda one, other: part(one, "shard-00002").unlink(),
    "the list deleted": lambda one, other: (one / "parts.json").unlink(),
    "the configuration deleted": lambda one, other: (one / "config.json").unlink(),
    "the list of the other": copy_one("parts.json"),
    "the configuration of the other": copy_one("config.json"),
    "configuration and list of the other": lambda one, other: [
        copy_one(name)(one, other) for name in ("config.json", "parts.json")
    ],
    "everything of the other but the configuration": copy_all_but("config.json"),
    "a shard that is a directory": lambda one, other: (
        (path := part(one, "shard-00000")).unlink(),
        path.mkdir(),
    ),
    "a shard that is a link": lambda one, other: (
        (path := part(one, "shard-00000")).rename(one.parent / "elsewhere.bin"),
        path.symlink_to(one.parent / "elsewhere.bin"),
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_refused_reported_and_collected_again(
    kind: str, store: Store, two: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, where = store.root / "activations" / "one", ["--store", str(store.root)]
    DAMAGE[kind](folder, folder.with_name("other"))
    refused(["features", "train", "--activations", "one", "--steps", "2", *where], capsys)
    assert not list(store.runs.iterdir())
    verified = run(["runs", "verify", *where])
    printed = "".join(capsys.readouterr())
    assert "Traceback" not in printed
    assert (verified, "activations/one" in printed) == (1, True)
    assert "activations/other" not in printed
    if "the other" in kind and "configuration" in kind and "but" not in kind:
        with pytest.raises(UserError, match="holds other activations"):
            gather(store, "one", 0)
        return
    whole = {path.name: path for path in folder.iterdir() if path.is_file() and not path.is_symlink()}
    before = {name: path.stat().st_mtime_ns for name, path in whole.items()}
    collected = gather(store, "one", 0)
    original = two.root / "activations" / "one"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in original.iterdir()
    }
    assert collected.checksum == Collection.at(original).checksum
    assert [name for name, problems in verify_store(store) if problems and name == "activations/one"] == []
    again = [name for name in before if (folder / name).exists() and before[name] != whole[name].stat().st_mtime_ns]
    assert len(again) <= 2, "what was whole is kept"
    assert "activations one: " in capsys.readouterr().err or "deleted" in kind


def test_no_flipped_bit_is_trained_on(store: Store) -> None:
    folder, where = store.root / "activations" / "one", StoredActivations(path=str(store.root / "activations/one"))
    where.verify()
    for seed in range(FLIPPED):
        path = sorted(folder.glob("shard-*"))[seed % 3]
        before = path.read_bytes()
        flip(path, seed)
        with pytest.raises(UserError, match=path.name):
            StoredActivations(path=str(folder)).verify()
        with pytest.raises(UserError, match=path.name):
            _ = StoredActivations(path=str(folder)).places
        assert dict(verify_store(store))["activations/one"]
        path.write_bytes(before)
    StoredActivations(path=str(folder)).verify()


def test_a_run_is_identified_by_the_content_of_its_activations(store: Store) -> None:
    """The same request with another result, as another machine computes it, is other data."""
    path = store.root / "activations" / "one"

    def on_it() -> FeaturesRun:
        return FeaturesRun.read({"data": f"stored:path={path}", "training": {"steps": 2}})

    before = on_it()
    data = Collection.at(path).data
    shard = data.read("shard-00001")["activations"] * 2
    (path / data.files["shard-00001"]).unlink()
    data.write("shard-00001", {"activations": shard})
    type(data)(path).finish()
    assert on_it().id != before.id
    with pytest.raises(UserError, match="has changed"):
        before.check()
    assert dict(verify_store(store))["activations/one"] == [], "it is whole, and it is something else"


def test_exchanged_collections_are_not_taken_for_each_other(store: Store) -> None:
    one, other = store.root / "activations" / "one", store.root / "activations" / "other"
    trained = FeaturesRun.read({"data": f"stored:path={one}", "training": {"steps": 2}})
    for source, target in ((one, "aside"), (other, "one"), (one.with_name("aside"), "other")):
        source.rename(source.with_name(target))
    with pytest.raises(UserError, match="has changed"):
        trained.check()


def test_one_process_collects_at_a_time(store: Store) -> None:
    with lock_folder(store.root / "activations" / "one"), pytest.raises(UserError, match="another process"):
        gather(store, "one", 0)


def test_an_evaluation_is_identified_by_the_content_of_its_activations(store: Store) -> None:
    path = store.root / "activations" / "one"
    training, model = {"steps": 2, "batch_size": 16, "evaluations": 1}, {"d_sae": 16, "sparsity": "topk:k=4"}
    trained = FeaturesRun.read({"data": f"stored:path={path}", "model": model, "training": training})
    assert execute(trained, store, ExecutionOptions(threads=1, device="cpu")).state == "finished"

    def evaluate() -> str:
        config = EvaluateConfig(target=trained.id, activations="other")
        return run_evaluate(config, store, lambda message: None).id

    before = evaluate()
    assert evaluate() == before
    shutil.rmtree(store.root / "activations" / "other")
    gather(store, "other", 7)
    assert evaluate() != before
