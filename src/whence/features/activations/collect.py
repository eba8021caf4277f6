"""Hidden states of a model on running text, part by part; a part that is there is never computed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save

from whence.errors import UserError
from whence.features.activations.sources import RUN, Collection, Source, of_run, of_text
from whence.features.activations.store import SHARD, folder, shard_path
from whence.store.files import CorruptFileError, read_sealed, write_atomically, write_sealed
from whence.store.runs import Store

Tell = Callable[[int, int], None]


def collect(spec: Collection, store: Store, name: str = "", tell: Tell = lambda done, of: None) -> Path:
    """Where they are. What a kill or Ctrl-C left is gone on with; other states under the same name are refused."""
    source = of_run(spec, store) if spec.model.startswith(RUN) else of_text(spec)
    asked = {**spec.model_dump(), **source.about}
    return collect_from(source, store, name or f"{source.name}-{spec.layer}", asked, spec.batch_size, tell)


def collect_from(
    source: Source,
    store: Store,
    name: str,
    asked: dict[str, Any],
    batch_size: int = 16,
    tell: Tell = lambda done, of: None,
) -> Path:
    """The same from anything, as `of_module`. asked: what tells these states from others, as JSON."""
    path = folder(store, name)
    asked = {**asked, "threads": torch.get_num_threads()}
    begun = _begun(path, asked)
    if begun is None:
        ids, held, flags = source.sequences()
        store.prepare(2 * ids.numel() * source.width)
        path.mkdir(parents=True, exist_ok=True)
        about = {"ids": ids.int(), "held": held, "flags": flags}
        write_atomically(path / "tokens.safetensors", save(about))
        begun = {**asked, "sequences": len(ids), "width": source.width, "context": ids.shape[1]}
        write_sealed(path / "spec.json", begun)
    else:
        ids = load_file(path / "tokens.safetensors")["ids"]
    parts = list(enumerate(ids.long().split(SHARD)))
    with torch.no_grad(), thread_count(begun["threads"]):
        for index, part in parts:
            tell(index, len(parts))
            if not shard_path(path, index).exists():
                states = torch.cat([source.states(some) for some in part.split(batch_size)])
                write_atomically(shard_path(path, index), save({"states": states}))
    tell(len(parts), len(parts))
    return path


def _begun(path: Path, asked: dict[str, Any]) -> dict[str, Any] | None:
    try:
        begun = read_sealed(path / "spec.json")
    except FileNotFoundError:
        return None
    except CorruptFileError as damage:
        raise UserError(
            f"name: {path.name!r} is damaged ({damage.reason}). Remove {str(path)!r}.", field="name"
        ) from None
    other = [key for key in asked if key != "threads" and begun.get(key) != asked[key]]
    if other:
        was = ", ".join(f"{key} {begun.get(key)!r}" for key in other)
        raise UserError(f"name: {path.name!r} holds other states ({was}). Choose another --name.", field="name")
    return begun


@contextmanager
def thread_count(count: int) -> Iterator[None]:
    """As many as it was begun with: another number would change the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
