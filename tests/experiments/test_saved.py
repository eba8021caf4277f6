"""Comparisons by name: presets, files, and what a store remembers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.arena.made import TASK, spec
from tests.calls import document
from tests.conftest import TINY_FLAGS
from whence.arena.config import ArenaConfig
from whence.arena.instrument import ARENA, PRESETS
from whence.cli.report import find
from whence.errors import UserError
from whence.experiments.saved import read_config, save_config, saved_configs
from whence.store.runs import Store

pytestmark = pytest.mark.usefixtures("here")


def test_a_comparison_is_saved_once_and_found_by_name_file_and_beginning(here: Path, store: Store) -> None:
    comparison = spec("rope", "alibi")
    path = save_config("arena", comparison, store)
    assert save_config("arena", comparison, store) == path
    assert saved_configs("arena", store) == [path]
    beginning = path.stem.removeprefix("arena-")[:6]
    for text in (path.stem, path.stem[:12], beginning, f"{path.stem}-0123abcd", str(path)):
        instrument, config, file = find(text, store)
        assert (instrument, config, file) == (ARENA, comparison, path)
    (here / "mine.yaml").write_text(f"tasks: {TASK!r}\nencodings: rope\n")
    assert [str(e) for e in find("mine.yaml", store)[1].encodings] == ["rope"]
    instrument, config, file = find("source_encodings", store)
    assert (instrument, file.stem) == (ARENA, "source_encodings")
    assert config == read_config(PRESETS.path("source_encodings"), ArenaConfig)


def test_names_that_are_ambiguous_or_unknown(store: Store) -> None:
    paths = [save_config("arena", spec("rope", seeds=n), store) for n in range(1, 20)]
    firsts = [path.stem.removeprefix("arena-")[0] for path in paths]
    twice = next(first for first in firsts if firsts.count(first) > 1)
    with pytest.raises(UserError, match=f"'{twice}' is ambiguous") as caught:
        find(twice, store)
    assert all((p.stem in str(caught.value)) == (f == twice) for p, f in zip(paths, firsts, strict=True))
    for text in ("", "arena", "zzz", "nowhere.yaml", "../source_encodings"):
        with pytest.raises(UserError, match=r"is ambiguous|is not known"):
            find(text, store)
    empty = Store(store.root / "nothing")
    with pytest.raises(UserError, match="none yet"):
        find("abc", empty)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{"),
        ("a.yaml", "a: ["),
        ("a.yaml", "seeds: 0"),
        ("a.json", "[1]"),
        ("a.yaml", "encodings: [rpoe]"),
        ("a.yaml", "!!python/object/apply:os.system ['touch pwned']"),
    ],
)
def test_files_that_are_no_comparison(name: str, text: str, here: Path, store: Store) -> None:
    (here / name).write_text(text)
    with pytest.raises(UserError):
        find(name, store)
    assert not (here / "pwned").exists()


def test_the_latest_comparison_comes_first(store: Store) -> None:
    old, new = (save_config("arena", spec("rope", seeds=n), store) for n in (1, 2))
    os.utime(old, (time.time() - 100,) * 2)
    assert saved_configs("arena", store) == [new, old]
    os.utime(old, (time.time() + 100,) * 2)
    assert saved_configs("arena", store) == [old, new]
    assert saved_configs("leak", store) == [], "each instrument has its own"


@pytest.mark.usefixtures("in_process")
def test_a_report_has_the_name_of_its_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    """Also beside a damaged one."""
    arguments = [
        "arena",
        "compare",
        "--tasks",
        TASK,
        *TINY_FLAGS,
        "--steps",
        "3",
        "--seeds",
        "1",
        "--encodings",
        "rope",
    ]
    found = document(arguments, capsys)
    (path,) = saved_configs("arena", Store())
    assert Path(found["report"]).stem.startswith(path.stem)
    (Store().reports / "arena-0123456789abcdef.json").write_text("{")
    assert find(Path(found["report"]).stem, Store())[2] == path
    again = document(["arena", "compare", "--config", str(path)], capsys)
    assert again["runs"] == dict.fromkeys(found["runs"], "skipped")
    assert again["command"] == found["command"]
    assert len(saved_configs("arena", Store())) == 2, "running it again makes no new comparison"
