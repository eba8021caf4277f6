"""Every number that a user can set has an upper limit, every list a longest, every comparison a largest size."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import annotated_types
import pytest
from pydantic import BaseModel

import whence
from tests.test_parsing import BOMB
from whence.arena.config import ArenaConfig
from whence.errors import UserError
from whence.execution.options import ExecutionOptions
from whence.experiments.comparison import check_resources
from whence.experiments.instrument import MOST_RUNS
from whence.instruments import instrument, instruments
from whence.registry import registries_in
from whence.store.runs import Store

VALUES = ",".join(str(number / 10_000) for number in range(1, 100))
SWEEP = f"lr={VALUES};weight_decay={VALUES};clip={VALUES}"
MEMORY = 6 * 2**30


def configs() -> list[type[BaseModel]]:
    known = [ExecutionOptions]
    for each in instruments().values():
        known += [each.config, each.run, *(action.config for action in each.actions)]
    return known


def models(kind: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    """The config itself, its groups, and the options of everything that it can choose."""
    if kind in seen:
        return
    seen.add(kind)
    yield kind
    for field in kind.model_fields.values():
        inner = [
            choice for registry in registries_in(field.rebuild_annotation()) for choice in registry.choices.values()
        ]
        for part in [*inner, *parts(field.annotation)]:
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from models(part, seen)


def parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from parts(part)


def limits(metadata: Any) -> set[str]:
    """Of the kinds that annotated_types knows: `le`, `lt`, `max_length`."""
    names = ("le", "lt", "max_length")
    return {name for item in metadata for name in names if getattr(item, name, None) is not None}


def test_every_number_has_a_limit_and_every_list_a_longest() -> None:
    seen: set[type[BaseModel]] = set()
    without: list[str] = []
    count = 0
    for kind in (each for config in configs() for each in models(config, seen)):
        for name, field in kind.model_fields.items():
            inside = list(parts(field.annotation))
            listed = any(getattr(part, "__origin__", None) is tuple for part in inside)
            count += 1
            bounds = limits(field.metadata) | limits(item for part in inside for item in getattr(part, "metadata", ()))
            number = int in inside or float in inside
            if number and not listed and not bounds & {"le", "lt"}:
                without.append(f"{kind.__name__}.{name}")
            if listed and "max_length" not in bounds:
                without.append(f"{kind.__name__}.{name} (a list)")
    assert count > 200
    assert without == []
    assert annotated_types.Le(1).le == 1  # the attribute that `limits` reads


@pytest.mark.parametrize("fields", [{"sweep": SWEEP}, {"tune": SWEEP}, {"seeds": 1000, "sweep": f"lr={VALUES}"}])
def test_a_comparison_that_is_too_large_is_refused_before_it_is_planned(fields: dict[str, Any]) -> None:
    started = time.process_time()
    with pytest.raises(UserError, match="runs") as refusal:
        whence.compare("arena", **fields)
    assert f"{MOST_RUNS:,}" in str(refusal.value)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("name", ["leak", "features", "fields"])
def test_other_comparisons_count_their_runs(name: str, store: Store) -> None:
    chosen = instrument(name)
    config = chosen.config.read({})
    assert config.variants * config.seeds >= sum(
        len(runs) for t in chosen.plan(config, store) for runs in t.variants.values()
    )


def test_counted_runs_are_the_planned_ones(store: Store) -> None:
    config = ArenaConfig.read(
        {
            "tasks": ["k_back_recall", "parity"],
            "encodings": ["rope", "none"],
            "sweep": "k=1,2;lr=0.1,0.2",
            "tune": "clip=1,2",
        }
    )
    assert config.variants * config.seeds == len(config.reported_runs())
    assert config.further_runs == len(config.tuning_runs())


LARGE: dict[str, list[dict[str, Any]]] = {
    "arena": [
        {"model": {"d_model": 65536, "layers": 1000}},
        {"training": {"batch_size": 2**20}, "model": {"d_model": 1024}},
        {"lengths": {"train_length": 2**20, "test_lengths": 0}},
        {"lengths": {"train_length": 2**20, "test_lengths": 0}, "model": {"encoding": "alibi"}},
        {
            "lengths": {"train_length": 2**20, "test_lengths": 0},
            "model": {"encoding": "none", "mixer": "mamba", "layers": 1000},
        },
        {"task": "own_position:places=1048576", "lengths": {"train_length": 2**20, "test_lengths": 0}},
    ],
    "leak": [
        {"data": "synthetic", "model": {"d_model": 65536, "layers": 1000}},
        {"data": "synthetic", "training": {"batch_size": 2**20}, "model": {"d_model": 4096}},
        {"data": "synthetic:smoothness=1000000,channels=100"},
    ],
    "features": [
        {"model": {"d_sae": 2**20}, "data": "synthetic:d_in=65536,features=2"},
        {"training": {"batch_size": 2**20}, "model": {"d_sae": 2**16}},
    ],
    "fields": [
        {"data": "digits", "model": {"d_model": 65536, "layers": 1000}},
        {"data": "digits", "training": {"batch_size": 2**20, "pixels": 2**20}, "model": {"lps": 16384}},
    ],
}


@pytest.mark.parametrize(("name", "fields"), [(name, fields) for name, those in LARGE.items() for fields in those])
def test_what_does_not_fit_into_memory_is_refused_before_it_is_built(
    name: str, fields: dict[str, Any], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whence.experiments.comparison.memory_bytes", lambda: 2**34)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = instrument(name).run.read(fields)
    started = time.process_time()
    with pytest.raises(UserError, match="GiB of memory") as refusal:
        check_resources([run], store, ExecutionOptions(workers=1))
    assert "16.0 GiB" in str(refusal.value)
    assert time.process_time() - started < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 2**20  # in KiB


def test_what_fits_is_not_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate is a lower bound."""
    monkeypatch.setattr("whence.experiments.comparison.memory_bytes", lambda: 2**30)
    for name in LARGE:
        check_resources(
            [instrument(name).run.read({"data": "digits"} if name == "fields" else {})],
            store,
            ExecutionOptions(workers=1),
        )


def test_layers_are_counted_as_if_all_were_built() -> None:
    from whence.models.sequence import count_parameters

    for name, data in (("arena", {}), ("leak", {"data": "synthetic"}), ("fields", {"data": "digits"})):
        run = instrument(name).run.read({**data, "model": {"layers": 5}})
        assert run.check() == count_parameters(run.build_model("meta"))


def test_a_process_of_little_memory_refuses_configurations(tmp_path: Path) -> None:
    texts = {
        "model": "model: {d_model: 4000000000}",
        "layers": "model: {layers: 10000000}",
        "length": "lengths: {train_length: 1000000000}",
        "bomb": BOMB,
        "nested": "a: " + "[" * 1_000_000,
        "long": "seeds: " + "9" * 1_000_000,
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * 2**21)
    code = f"""
import pathlib, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
from whence.cli.main import run
run(["arena", "compare", "--print-config"])
for path in sorted(pathlib.Path({str(tmp_path)!r}).iterdir()):
    started = time.process_time()
    assert run(["arena", "compare", "--print-config", "--config", str(path)]) == 2, path
    assert time.process_time() - started < 2, path
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 11
    assert all(line.startswith("whence: ") for line in lines)
