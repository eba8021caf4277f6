"""Finished runs, found again by the first digits of their ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from whence.errors import UserError
from whence.store.files import CorruptFileError
from whence.store.runs import RunFolder, Store
from whence.training.config import RunConfig, load_run_config


@contextmanager
def stored(store: Store, word: str) -> Iterator[tuple[RunFolder, RunConfig]]:
    """The folder and what was run. Damage, met here or while the caller reads on, is told as such."""
    folder = store.find(word)
    try:
        if folder.status()["state"] != "finished":
            raise UserError(f"run: {folder.id} has not finished. Allowed: finished runs.", field="run")
        yield folder, load_run_config(folder.spec_document())
    except (OSError, CorruptFileError) as damage:
        raise UserError(
            f"run: {folder.id} cannot be read: {damage}. See 'whence runs verify {folder.id}'.", field="run"
        ) from None
