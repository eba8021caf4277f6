"""Stored documents as somebody with bad intentions writes them: sealed correctly, and not what they should be."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from whence.store.data import ANY_FOLDER
from whence.store.disk import write_atomically
from whence.store.files import ChainWriter, addressed_name, read_chained, read_sealed, write_sealed
from whence.store.runs import STORE, Store

CONTROLS = "\x1b[31mred\x1b[0m \x07\r\x9b2J ‮evil‬ [bold]x[/bold] ` <b>"
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    2**62,
    2**63,
    10**30,
    1e300,
    -1e300,
    1e-300,
    0.5,
    "",
    "x",
    "nan",
    "inf",
    "1",
    CONTROLS,
    "../../../etc/passwd",
    "=1+1",
    "a" * 1_000_000,
    [],
    {},
    [[]],
    [None] * 3,
    {"": None},
    {"a": {"b": [1, {"c": "d"}]}},
    {CONTROLS: 1.0},
    list(range(100)),
)
LONE = "lone surrogates cannot be sealed by canonical JSON, but by hand"


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inside:
        yield from places(value, (*path, key))


def changed(document: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None], whole: Any) -> Any:
    """A copy in which one place is another; `change` gets what holds it and its key."""
    if not path:
        return whole
    document = copy.deepcopy(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    change(inner, path[-1])
    return document


@st.composite
def mutated(draw: st.DrawFn, document: Any) -> Any:
    """One to three places replaced, deleted or doubled."""
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(document))))
        value = copy.deepcopy(draw(st.sampled_from(VALUES)))
        kind = draw(st.sampled_from(("replace", "replace", "delete", "add")))

        def change(inner: Any, key: Any, value: Any = value, kind: str = kind) -> None:
            if kind == "delete":
                del inner[key]
            elif kind == "add" and isinstance(inner, dict):
                inner[f"{key}x"] = value
            elif kind == "add":
                inner.append(value)
            else:
                inner[key] = value

        document = changed(document, path, change, value)
    return document


class Sealed:
    """One sealed document, which can be exchanged for another body."""

    def __init__(self, path: Path, owner: str | None = None) -> None:
        self.path, self.owner, self.body = path, owner, read_sealed(path, owner)

    def write(self, body: Any) -> None:
        write_sealed(self.path, body, owner=self.owner)


class Chained:
    def __init__(self, path: Path) -> None:
        self.path, self.body = path, read_chained(path)[0]

    def write(self, body: Any) -> None:
        self.path.unlink(missing_ok=True)
        writer = ChainWriter(self.path)
        for record in body if isinstance(body, list) else [body]:
            writer.append(record)
        writer.sync()
        writer.close()


class Addressed:
    """Plain JSON whose name holds its checksum: saved configurations and looks."""

    def __init__(self, path: Path) -> None:
        self.path, self.body, self.stem = path, json.loads(path.read_bytes()), path.stem.rsplit("-", 1)[0]

    def write(self, body: Any) -> None:
        self.path.unlink()
        data = json.dumps(body).encode()
        self.path = self.path.with_name(addressed_name(self.stem, data, ".json"))
        write_atomically(self.path, data)


Stored = Sealed | Chained | Addressed


def documents(store: Store) -> list[Stored]:
    """Everything in a store that is JSON."""
    found: list[Stored] = []
    for run in store.ids():
        folder = store.folder(run).path
        found += [Sealed(folder / name) for name in ("status.json", "config.json")]
        found += [Chained(folder / name) for name in ("metrics.jsonl", "log.jsonl")]
    found += [Addressed(path) for path in sorted(store.reports.glob("*.json"))]
    found += [Sealed(path) for path in sorted(store.artifacts.glob("*.json"))]
    found += [Sealed(path) for path in sorted(store.root.glob("jobs/*/*.json"))]
    if (index := store.root / "index.json").exists():
        found.append(Sealed(index, STORE))
    for path in sorted([*store.root.glob("activations/*/config.json"), *store.root.glob("labelled/*/config.json")]):
        found.append(Sealed(path, ANY_FOLDER))
    return found
