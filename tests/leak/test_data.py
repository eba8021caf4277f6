"""Recordings: what is there, and that nothing of the test is seen in training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.hostile import hostile_arrays, not_files, refusal
from whence.errors import UserError
from whence.leak.data import DATA
from whence.leak.run import LeakRun
from whence.random import generator
from whence.recordings import read_array, read_npy


def test_basic_motions_is_all_there() -> None:
    data = DATA.choose("basic_motions").build()
    counts = {split: len(data.recordings(split)) for split in ("train", "validation", "test")}
    assert counts == {"train": 32, "validation": 8, "test": 40}
    assert all(recording.shape == (100, 6) for recording in data.recordings("test"))
    training = torch.cat(data.recordings("train"))
    assert torch.allclose(training.mean(0), torch.zeros(6), atol=1e-4)
    assert torch.allclose(training.std(0), torch.ones(6), atol=1e-3)


def test_daphnet_is_all_there_and_cut_in_time() -> None:
    data = DATA.choose("daphnet").build()
    parts = [data.recordings(split)[0] for split in ("train", "validation", "test")]
    assert sum(map(len, parts)) == 7040
    assert {part.shape[1] for part in parts} == {9}


@pytest.mark.parametrize("name", ["basic_motions", "daphnet", "synthetic"])
def test_examples_are_pieces_of_their_split(name: str) -> None:
    data = DATA.choose(name).build()
    drawn = data.draw(generator(0), 20, "test")
    assert drawn.shape == (20, data.steps, data.channels)
    assert torch.equal(drawn, data.draw(generator(0), 20, "test"))
    if name != "synthetic":
        pieces = {tuple(row.tolist()) for recording in data.recordings("test") for row in recording}
        assert all(tuple(row.tolist()) in pieces for row in drawn.flatten(0, 1)[:50])
        one, two = (data.draw(generator(0), 50, "train", half).flatten(0, 1) for half in (0, 1))
        assert not {tuple(r.tolist()) for r in one} & {tuple(r.tolist()) for r in two} or name == "basic_motions"


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_synthetic_data_hold_the_share_it_says(share: float) -> None:
    data = DATA.choose(f"synthetic:position={share}").build()
    drawn = data.draw(generator(0), 3000, "train")
    total = drawn.var(0).mean() + drawn.mean(0).var(0, correction=0).mean()
    assert float(total) == pytest.approx(1, abs=0.05)
    assert float(drawn.mean(0).var(0, correction=0).mean()) == pytest.approx(share, abs=0.02)


def test_options_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.npy"
    np.save(path, np.random.default_rng(0).normal(size=(900, 3)))
    for text in (f"{path}:steps=32", f"file:path={path},steps=32", f"file:steps=32,path={path}"):
        assert LeakRun.read({"data": text}).data.build().steps == 32


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.npy"
    np.save(path, np.random.default_rng(0).normal(size=(900, 3)))
    run = LeakRun.read({"data": str(path)})
    assert run.data.options()["checksum"]
    assert run.data.build().channels == 3
    np.save(path, np.random.default_rng(1).normal(size=(900, 3)))
    with pytest.raises(UserError, match="has changed"):
        run.data.build()
    assert LeakRun.read({"data": str(path)}).id != run.id


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.ones((900, 3)), "expected channels that vary"),
        (np.zeros(5), "shape"),
        (np.full((900, 3), np.nan), "has NaN or larger ones"),
        (np.full((900, 3), 1e300) * np.arange(3), "up to 1e"),
        (np.random.default_rng(0).normal(size=(30, 3)), "longer recording"),
        (np.random.default_rng(0).normal(size=(3, 900, 3)), "6 or more"),
        (np.array([["a", "b"], ["c", "d"]]), "expected numbers, got <U1"),
    ],
)
def test_bad_files_are_named(values: np.ndarray, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.npy"
    np.save(path, values)
    with pytest.raises(UserError, match=words):
        LeakRun.read({"data": str(path)})


def test_hostile_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.npy"
    for name, data in hostile_arrays():
        path.write_bytes(data)
        assert refusal(lambda: read_npy(path, {2: "(rows, columns)"}), mebibytes=100), name
        refused = refusal(lambda: read_array(path, "token_ids"), mebibytes=100)
        assert refused.startswith("token_ids: ") or name in ("no numbers", "no axes")
    for name, make in not_files():
        make(tmp_path / f"{name}.npy")
        assert name in refusal(lambda name=name: read_npy(tmp_path / f"{name}.npy", {2: ""}), mebibytes=100)


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<f2", "|u1", ">i8"])
def test_arrays_of_every_kind_of_number_by_rows_and_by_columns(tmp_path: Path, dtype: str) -> None:
    values = np.arange(12).reshape(3, 4).astype(dtype)
    for order in (values, np.asfortranarray(values), values[:, ::2]):
        np.save(tmp_path / "mine.npy", order)
        found = read_npy(tmp_path / "mine.npy", {2: "(rows, columns)"})
        assert found.tolist() == order.tolist()
        assert found.is_contiguous()


def test_large_arrays_are_refused_by_their_size(tmp_path: Path) -> None:
    path = tmp_path / "mine.npy"
    np.lib.format.open_memmap(path, "w+", np.int8, (2**27 + 1, 1)).flush()
    assert "up to 134,217,728 numbers" in refusal(lambda: read_npy(path, {2: "(rows, columns)"}), mebibytes=200)
    with path.open("r+b") as file:
        file.truncate(2**40)
    assert "Expected at most 1.0 GiB" in refusal(lambda: read_npy(path, {2: "(rows, columns)"}), mebibytes=50)


def test_a_file_is_never_executed(tmp_path: Path) -> None:
    path = tmp_path / "evil.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="cannot be read"):
        LeakRun.read({"data": str(path)})
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(UserError, match="cannot be read"):
        LeakRun.read({"data": str(tmp_path / "torn.npy")})
