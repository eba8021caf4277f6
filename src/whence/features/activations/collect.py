"""Collecting activations of a model, in parts. Parts that are stored are not computed again."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from pydantic import JsonValue
from torch import Tensor

from whence.errors import UserError
from whence.features.activations.sources import RUN, ActivationSource, of_run, of_text
from whence.features.activations.store import (
    SHARD,
    TOKENS,
    ActivationSite,
    Collection,
    CollectionConfig,
    folder,
)
from whence.features.config import CollectConfig
from whence.store import disk
from whence.store.data import CONFIG, DataFolder
from whence.store.disk import CorruptFileError
from whence.store.files import digest
from whence.store.lock import LockedError, lock_folder
from whence.store.records import parse_as
from whence.store.runs import Store
from whence.store.tensors import tensor_bytes

ShardProgress = Callable[[int, int], None]
"""Called with the number of completed parts and of all parts"""
Part = Mapping[str, Tensor]


def collect(config: CollectConfig, store: Store, on_progress: ShardProgress = lambda done, of: None) -> Collection:
    """Collect activations, or resume an interrupted collection. Raises UserError if the name is used by another one."""
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
    """Collect from any source, such as `of_module`. about: further identity of the activations, as JSON."""
    path = folder(store, name)
    identity = {**source.about, **(about or {})}
    with writing(path, store):
        data = begun(path, store)
        if data is None:
            tokens = _tokens(source)
            sequences, context_size = tokens["ids"].shape
            store.prepare(2 * tokens["ids"].numel() * source.d_in)
            config = CollectionConfig(
                site=source.site,
                text=source.text,
                about=identity,
                sequences=sequences,
                d_in=source.d_in,
                context_size=context_size,
                tokens=content(tokens),
                threads=torch.get_num_threads(),
            )
            data = DataFolder.begin(path, config.model_dump(mode="json"), config.parts)
            data.write(TOKENS, tokens)
        config = parse_as(CollectionConfig, data.config.request, path / CONFIG)
        _check_same(path, config, source, identity)

        @functools.cache
        def ids() -> tuple[Tensor, ...]:
            return data.read(TOKENS)["ids"].long().split(SHARD)

        def compute(part: str) -> Part:
            if part == TOKENS:
                return checked(_tokens(source), config.tokens, path)
            some = ids()[config.parts.index(part) - 1]
            return {"activations": torch.cat([source.activations(few) for few in some.split(batch_size)])}

        size = 2 * config.sequences * config.context_size * config.d_in
        fill(data, store, compute, size, config.threads, on_progress)
    return Collection.at(path)


def _tokens(source: ActivationSource) -> dict[str, Tensor]:
    ids, held, flags = source.sequences()
    return {"ids": ids.int(), "held": held, "flags": flags}


def _check_same(path: Path, begun: CollectionConfig, source: ActivationSource, about: dict[str, JsonValue]) -> None:
    before, requested = _identity(begun.site, begun.text, begun.about), _identity(source.site, source.text, about)
    other = [key for key in requested if before.get(key) != requested[key]]
    if other:
        was = ", ".join(f"{key} {before.get(key)!r}" for key in other)
        raise UserError(f"name: the collection {path.name!r} holds other activations ({was}). Pass another --name.")


def _identity(site: ActivationSite | None, text: str, about: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {**(site.model_dump() if site else {}), "text": text, **about}


# --- for any data of activations


def content(tensors: Part) -> str:
    """A checksum."""
    return digest(tensor_bytes(tensors, of=""))[:16]


def checked(tensors: Part, checksum: str, path: Path) -> Part:
    """The same tensors. Raises UserError if they differ from those that stored activations belong to."""
    if content(tensors) != checksum:
        raise UserError(
            f"activations: the tokens of {path.name!r} differ from those that it was begun with, so that it cannot be "
            f"resumed. Remove {str(path)!r} and collect again."
        )
    return tensors


@contextmanager
def writing(path: Path, store: Store) -> Generator[None]:
    """The folder, to be written by this process alone."""
    try:
        if disk.kind_of(path) not in ("", "a directory"):
            _report(path, f"expected a directory (moved to {store.set_aside(path)})")
        disk.make_directory(path)
        with lock_folder(path):
            yield
    except LockedError:
        raise UserError(
            f"activations: another process is computing {path.name!r}. Wait until it has finished, and repeat the "
            "command."
        ) from None
    except (OSError, CorruptFileError) as damage:
        raise UserError(f"activations: {path.name!r} cannot be computed: {disk.explain(damage)}.") from None


def begun(path: Path, store: Store) -> DataFolder | None:
    """None if there is no configuration. A damaged one is set aside."""
    data = DataFolder(path)
    try:
        _ = data.config
    except FileNotFoundError:
        return None
    except CorruptFileError as damage:
        _report(path, f"{damage.reason} (moved to {store.set_aside(path / CONFIG)})")
        return None
    return data


def fill(
    data: DataFolder,
    store: Store,
    compute: Callable[[str], Part],
    size: int,
    threads: int,
    on_progress: ShardProgress,
) -> None:
    """Compute missing and damaged parts. Damaged files are moved away and reported.

    size: bytes of all parts. threads: number of threads; another one would change rounding.
    """
    for line in data.clear(store):
        _report(data.path, line)
    parts, missing, before = data.config.parts, data.missing(), torch.get_num_threads()
    store.prepare(size * len(missing) // len(parts))
    torch.set_num_threads(threads)
    try:
        for index, part in enumerate(parts):
            on_progress(index, len(parts))
            if part in missing:
                with torch.no_grad():
                    data.write(part, compute(part))
    finally:
        torch.set_num_threads(before)
    on_progress(len(parts), len(parts))
    data.finish()


def _report(path: Path, line: str) -> None:
    print(f"activations {path.name}: {line}", file=sys.stderr, flush=True)
