"""Texts that stand for more: choices with options, sweeps, sizes, names of comparisons; and published results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import guard, mutation, samples
from tests.fuzz.guard import Case, Run
from tests.fuzz.targets import target
from tests.fuzz.targets.words import STORED, in_folder

PIECES = (
    *[
        ":",
        ",",
        "=",
        "+",
        ";",
        ".",
        "-",
        "0",
        "1",
        "2",
        "1e5",
        "+3",
        "nan",
        "inf",
        "none",
        "true",
        "base=1e4",
        "scaling=yarn",
        "factor=4",
        "randomized:span=512+rope",
        "k=3",
    ],
    *[
        "symbols=4",
        "lr=1e-3,3e-3",
        "d_model=8,16",
        "k=1,2,3",
        "path=x.npy",
        "size=16",
        "factor=2",
        "__class__",
        "name=rope",
    ],
    *(" ", "\n", "x" * 300, "9" * 400, "\x1b[2J", "\u0661", "\ud800", "\0"),
)


def spelled(random: Random, known: list[str]) -> str:
    parts = [random.choice(known)]
    for _ in range(random.choice((0, 1, 1, 2, 3, 6))):
        parts.append(random.choice((*PIECES, random.choice(known))))
    text = "".join(parts)
    if random.random() < 0.2:
        text = mutation.spoil(random, mutation.encoded(text)).decode(errors="replace")
    return text


@target(cases=20_000)
def spellings(prepared: Path) -> Run:
    """Encodings, tasks, mixers, data, masks, sweeps, sizes as they are written on the command line."""
    from whence.arena.config import ArenaConfig
    from whence.arena.run import ArenaRun
    from whence.features.run import FeaturesRun
    from whence.fields.config import FieldsConfig
    from whence.fields.decode import parse_size
    from whence.fields.run import FieldsRun
    from whence.leak.config import AuditConfig, LeakConfig
    from whence.leak.run import LeakRun
    from whence.registry import registries_in

    fields: list[tuple[type[Any], tuple[str, ...], list[str], bool]] = []
    for config in (ArenaConfig, LeakConfig, FieldsConfig, ArenaRun, LeakRun, FeaturesRun, FieldsRun, AuditConfig):
        fields += _fields(config, registries_in)
    grids = ["lr=1e-3", "d_model=64,128", "k=1,3,7", "warmup=0,5", "schedule=cosine,constant", "heads=2"]
    fields += [(ArenaConfig, (name,), grids, False) for name in ("sweep", "tune")]

    def run(case: Case) -> str:
        random = case.random
        if random.random() < 0.05:
            text = spelled(random, ["1024", "640x480", "x", "1×1", "99999x9"])
            case.note(f"size {text!r}")
            return guard.read(lambda: parse_size(text, 20, 24))
        config, path, known, several = random.choice(fields)
        document: Any = (
            [spelled(random, known) for _ in range(random.choice((1, 2)))] if several else spelled(random, known)
        )
        for name in reversed(path):
            document = {name: document}
        case.note(f"{config.__name__} {document!r}")
        return in_folder(case, lambda: guard.read(lambda: config.read(document)))

    return run


def _fields(config: type[Any], registries_in: Any, path: tuple[str, ...] = ()) -> list[Any]:
    """Those whose values are written as a choice, with the names that are known."""
    from whence.experiments.options import options_of

    found = []
    for option in options_of(config):
        if option.variants:
            found.append((config, option.path, list(option.variants), isinstance(option.value, tuple)))
    return found


@target(cases=6_000)
def results(prepared: Path) -> Run:
    """Published results, and names that reports are asked for by."""
    from whence.experiments.export import PublishedResults

    project = Path(__file__).parents[3]
    published = [json.loads(path.read_bytes()) for path in sorted((project / "results").glob("*.json"))]
    store = samples.small_store(prepared / STORED)
    names = [
        *store.ids(),
        *(path.stem for path in store.reports.iterdir()),
        "source_encodings",
        "claim_copy",
        "mine.yaml",
    ]

    def run(case: Case) -> str:
        random = case.random
        if random.random() < 0.5:
            path = case.folder / "results.json"
            path.write_bytes(mutation.spoil_text(random, _part(random, random.choice(published)), published))
            return guard.read(lambda: PublishedResults.load(path))
        shutil.copytree(store.root, case.folder / STORED)
        asked = [spelled(random, names).replace("\0", "") for _ in range(random.choice((1, 1, 2, 3)))]
        asked = [name for name in asked if not name.startswith(("/", "-"))]
        more = random.choice((["--diff"], ["--out", "a.md"], ["--out", "a.csv"], ["--out", "a.json"], ["--json"], []))
        return in_folder(case, lambda: guard.command(case, ["report", *asked, *more, "--store", STORED]))

    return run


def _part(random: Random, document: Any) -> Any:
    """With one of its tables: changes are spread over less."""
    return {**document, "tables": [random.choice(document["tables"])]}
