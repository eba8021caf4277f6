"""Collecting activations of a model on running text, part by part; a part that is there is never computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from pydantic import JsonValue
from safetensors.torch import load_file, save
from torch import Tensor

from whence.errors import UserError
from whence.features.activations.sources import RUN, ActivationSource, of_run, of_text
from whence.features.activations.store import (
    CONFIG,
    SHARD,
    TOKENS,
    ActivationSite,
    Collection,
    CollectionConfig,
    folder,
    shard_path,
)
from whence.features.config import CollectConfig
from whence.store.disk import CorruptFileError, write_atomically
from whence.store.files import read_sealed, write_sealed
from whence.store.runs import Store

P = TypeVar("P")
ShardProgress = Callable[[int, int], None]
"""Parts that are done, and how many there are"""


def collect(config: CollectConfig, store: Store, on_progress: ShardProgress = lambda done, of: None) -> Collection:
    """What a kill or Ctrl-C left is resumed; other activations under the same name are refused."""
    source = of_run(config, store) if config.model.startswith(RUN) else of_text(config)
    name = config.name or f"{source.name}-{config.layer}"
    return collect_from(source, store, name, batch_size=config.batch_size, on_progress=on_progress)


def collect_from(
    source: ActivationSource,
    store: Store,
    name: str,
    about: dict[str, JsonValue] | None = None,
    *,
    batch_size: int = 16,
    on_progress: ShardProgress = lambda done, of: None,
) -> Collection:
    """The same from anything, as `of_module`. about: what tells these activations from others, as JSON."""
    path = folder(store, name)
    identity = {**source.about, **(about or {})}
    config = _begun(path, source, identity)
    if config is None:
        ids, held, flags = source.sequences()
        store.prepare(2 * ids.numel() * source.d_in)
        path.mkdir(parents=True, exist_ok=True)
        write_atomically(path / TOKENS, save({"ids": ids.int(), "held": held, "flags": flags}))
        config = CollectionConfig(
            site=source.site,
            text=source.text,
            about=identity,
            sequences=len(ids),
            d_in=source.d_in,
            context_size=ids.shape[1],
            threads=torch.get_num_threads(),
        )
        write_sealed(path / CONFIG, config.model_dump(mode="json"))
    else:
        ids = load_file(path / TOKENS)["ids"]

    def activations(part: Tensor) -> Tensor:
        return torch.cat([source.activations(some) for some in part.split(batch_size)])

    write_shards(path, ids.long().split(SHARD), activations, config.threads, on_progress)
    return Collection(path, config)


def write_shards(
    path: Path, parts: Sequence[P], activations: Callable[[P], Tensor], threads: int, on_progress: ShardProgress
) -> None:
    """One per part; those that are there are kept. threads: another number would change the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for index, part in enumerate(parts):
            on_progress(index, len(parts))
            if not shard_path(path, index).exists():
                with torch.no_grad():
                    write_atomically(shard_path(path, index), save({"activations": activations(part)}))
    finally:
        torch.set_num_threads(before)
    on_progress(len(parts), len(parts))


def _begun(path: Path, source: ActivationSource, about: dict[str, JsonValue]) -> CollectionConfig | None:
    """What is there already, which must be the same."""
    try:
        begun = CollectionConfig.model_validate(read_sealed(path / CONFIG))
    except FileNotFoundError:
        return None
    except (CorruptFileError, ValueError) as damage:
        raise UserError(f"name: {path.name!r} is damaged ({damage}). Remove {str(path)!r}.") from None
    before, requested = _identity(begun.site, begun.text, begun.about), _identity(source.site, source.text, about)
    other = [key for key in requested if before.get(key) != requested[key]]
    if other:
        was = ", ".join(f"{key} {before.get(key)!r}" for key in other)
        raise UserError(f"name: {path.name!r} holds other activations ({was}). Choose another --name.")
    return begun


def _identity(site: ActivationSite | None, text: str, about: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {**(site.model_dump() if site else {}), "text": text, **about}
