"""Comparisons by name: presets that come with whence, those that a store remembers, and files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from whence.arena.run import Run
from whence.arena.spec import ArenaSpec
from whence.arena.table import Table, tabulate
from whence.arena.tuning import Key, choose, trials
from whence.errors import UserError
from whence.runs.kept import kept as all_kept
from whence.runs.presets import Presets
from whence.runs.store import Store

PRESETS = Presets("whence.arena", "whence presets")
KIND = "arena"
CONFIGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Comparison:
    """A spec and what it is called."""

    name: str
    spec: ArenaSpec
    path: Path


def kept(store: Store) -> list[Path]:
    """Comparisons that were started in this store, the latest first."""
    return all_kept(KIND, store)


def find(text: str, store: Store) -> Comparison:
    """A comparison by preset, by file, or by the beginning of the name under which the store keeps it."""
    if text in PRESETS.names():
        path = PRESETS.path(text)
    elif Path(text).suffix in CONFIGS and Path(text).is_file():
        path = Path(text)
    else:
        matches = [
            path
            for path in kept(store)
            # by its beginning, or by the name of a report of it, which goes on where its own ends
            if text
            and (path.stem.removeprefix("arena-").startswith(text.removeprefix("arena-")) or text.startswith(path.stem))
        ]
        if len(matches) != 1:
            known = [path.stem for path in matches or kept(store)]
            what = "is ambiguous" if matches else "is not known"
            raise UserError(
                f"comparison: {text!r} {what}. Allowed: a preset ({', '.join(PRESETS.names())}), a config file, or one "
                f"that {store.root} keeps ({', '.join(known) or 'none yet'}).",
                field="comparison",
            )
        path = matches[0]
    return Comparison(text if text in PRESETS.names() else path.stem, read(path), path)


def stored_runs(spec: ArenaSpec, store: Store) -> list[Run]:
    """The runs that its tables report, with what tuning chose; and the seeds that were added until decided."""
    values = chosen(spec, store)
    runs = spec.reported_runs(values)
    if spec.until_decided:
        most = spec.model_copy(update={"seeds": max(spec.seeds, spec.max_seeds)}).reported_runs(values)
        there = {*store.ids(), *(run.id for run in runs)}
        runs = [run for run in most if run.id in there]
    return runs


def chosen(spec: ArenaSpec, store: Store) -> Mapping[Key, Mapping[str, Any]]:
    return choose(trials(spec.tuning_runs(), store, spec.tuned)) if spec.tune else {}


def tables_of(
    spec: ArenaSpec, store: Store, runs: Sequence[Run] | None = None, ends: Mapping[str, str] | None = None
) -> list[Table]:
    """What the store holds of a comparison, tested as it was asked for."""
    return tabulate(
        stored_runs(spec, store) if runs is None else runs,
        store,
        ends,
        tuned=spec.tuned,
        trials=trials(spec.tuning_runs(), store, spec.tuned) if spec.tune else None,
        inference=spec.inference,
    )


def read(path: Path) -> ArenaSpec:
    try:
        text = path.read_text()
        return ArenaSpec.read(json.loads(text) if path.suffix == ".json" else yaml.safe_load(text) or {})
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(
            f"comparison: {str(path)!r} cannot be read ({' '.join(str(error).split())}).", field="comparison"
        ) from None
