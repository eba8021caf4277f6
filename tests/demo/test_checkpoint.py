"""The field model that comes with whence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whence.demo import fields
from whence.errors import UserError
from whence.fields.data import PHOTOS
from whence.store import disk
from whence.store.runs import Store
from whence.store.verify import problems_of


def test_it_is_a_whole_run_of_this_version(store: Store) -> None:
    run_id = fields.install_checkpoint(store)
    folder = store.folder(run_id)
    assert problems_of(folder) == []
    assert folder.status().state == "finished"
    assert folder.config().id == run_id
    assert disk.size_of(fields.CHECKPOINT) < 2 * 2**20
    assert not [
        path for path in fields.CHECKPOINT.rglob("*") if path.suffix not in ("", ".json", ".jsonl", ".safetensors")
    ]


def test_it_is_copied_once_and_mended(store: Store) -> None:
    run_id = fields.install_checkpoint(store)
    status = store.folder(run_id).path / "status.json"
    written = status.stat().st_mtime_ns
    assert fields.install_checkpoint(store) == run_id
    assert status.stat().st_mtime_ns == written
    status.unlink()
    (store.folder(run_id).path / "model.safetensors").write_bytes(b"torn")
    fields.install_checkpoint(store)
    assert problems_of(store.folder(run_id)) == []


def test_the_photograph_is_held_out(store: Store) -> None:
    run: Any = store.folder(fields.install_checkpoint(store)).config()
    assert run.data.name == "photos"
    seen = {name for split in ("train", "validation") for names in PHOTOS[split].values() for name in names}
    assert fields.PHOTOGRAPH not in seen


def test_without_a_checkpoint_the_message_says_how_to_train_one(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fields, "CHECKPOINT", tmp_path / "none")
    with pytest.raises(UserError, match="whence fields train"):
        fields.install_checkpoint(store)


@pytest.mark.parametrize(("whence", "word"), [(30.0, "above"), (28.0, "below")])
def test_the_verdict_follows_the_numbers(whence: float, word: str) -> None:
    assert f"1.00 dB {word} it" in fields.verdict({"whence": whence, "bicubic": 29.0})
