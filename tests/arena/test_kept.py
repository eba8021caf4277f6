"""Comparisons by name: presets, files, and what a store remembers."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.arena.made import TASK, spec
from tests.calls import document
from tests.conftest import TINY_FLAGS
from whence import stats
from whence.arena.claims import CLAIMS
from whence.arena.kept import PRESETS, find, kept, read
from whence.arena.config import ArenaConfig
from whence.cli import run
from whence.errors import UserError
from whence.experiments.saved import save_config
from whence.runs.store import Store

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("name", PRESETS.names())
def test_every_preset_can_be_run_by_the_command_at_its_head(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    comparison = read(PRESETS.path(name))
    plan = comparison.plan()
    needed = stats.seeds_needed(comparison.comparisons())
    assert comparison.seeds >= needed, "a preset that cannot decide anything"
    assert len(plan) == len({run.id for run in plan})
    about = PRESETS.about(name)
    command = f"whence reproduce {name}" if name in CLAIMS else f"whence arena --preset {name}"
    assert command in about
    assert "minutes on" in about, "what it costs"
    shown = document(["arena", "--preset", name, "--print-spec"], capsys)
    assert ArenaConfig.read(shown) == comparison, "the command makes other runs"


def test_any_flag_wins_over_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--preset=claim_recall_needs_state", "--seeds", "2", "--encodings", "none", "--steps", "9"]
    shown = document(["arena", *flags, "--print-spec"], capsys)
    assert (shown["seeds"], shown["training"]["steps"], shown["lengths"]["test_lengths"]) == (2, 9, [])
    assert [c["encoding"]["name"] for c in shown["encodings"]] == ["none"]
    assert shown["sweep"] == read(PRESETS.path("claim_recall_needs_state")).sweep
    shown = document(["arena", *flags, "--test-lengths", "12", "16", "--print-spec"], capsys)
    assert shown["lengths"]["test_lengths"] == [12, 16]


def test_a_spec_that_is_printed_means_the_same_when_read(capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["--test-lengths", "0"], ["--train-length", "12"], ["--mixer", "mamba"], ["--sweep", "k=1,2"]):
        shown = document(["arena", "--tasks", "k_back_recall", *flags, "--print-spec"], capsys)
        Path("again.json").write_text(json.dumps(shown))
        assert document(["arena", "--config", "again.json", "--print-spec"], capsys) == shown


def test_a_comparison_is_kept_once_and_found_by_name_file_and_beginning(here: Path, store: Store) -> None:
    comparison = spec("rope", "alibi")
    path = save_config("arena", comparison, store)
    assert save_config("arena", comparison, store) == path
    assert kept(store) == [path]
    beginning = path.stem.removeprefix("arena-")[:6]
    for text in (path.stem, path.stem[:12], beginning, str(path)):
        assert find(text, store).spec == comparison
        assert find(text, store).name == path.stem
    (here / "mine.yaml").write_text(f"tasks: {TASK!r}\nencodings: rope\n")
    assert [str(e) for e in find("mine.yaml", store).spec.encodings] == ["rope"]
    assert find("source_encodings", store).name == "source_encodings"


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


TINY_ARENA = ["arena", "--tasks", TASK, *TINY_FLAGS, "--steps", "3", "--seeds", "1"]


@pytest.mark.usefixtures("in_process")
def test_resume_goes_on_with_the_latest_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    document([*TINY_ARENA, "--encodings", "rope"], capsys)
    old = kept(Store())[0]
    os.utime(old, (time.time() - 100,) * 2)
    found = document([*TINY_ARENA, "--encodings", "alibi", "t5"], capsys)
    latest = kept(Store())[0]
    assert latest != old
    removed = list(found["runs"])[1]
    document(["runs", "rm", removed, "--yes"], capsys)
    resumed = document(["arena", "--resume", "--workers", "1"], capsys)
    assert resumed["runs"] == {run_id: "finished" if run_id == removed else "skipped" for run_id in found["runs"]}
    assert resumed["again"] == found["again"]
    assert len(kept(Store())) == 2, "going on makes no new comparison"
    os.utime(old, (time.time() + 100,) * 2)
    shown = document(["arena", "--resume", "--print-spec"], capsys)
    assert [c["encoding"]["name"] for c in shown["encodings"]] == ["rope"]
    assert document(["arena", "--resume", "--store", "whence-runs", "--print-spec"], capsys) == shown
    assert document(["arena", "--resume", "--store=whence-runs", "--print-spec"], capsys) == shown
    assert run(["arena", "--resume", "--store", "elsewhere"]) == 2
    assert "elsewhere keeps no comparison yet" in capsys.readouterr().err


@pytest.mark.usefixtures("in_process")
def test_resume_passes_over_a_damaged_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    found = document([*TINY_ARENA, "--encodings", "rope"], capsys)
    (Store().reports / "arena-0123456789abcdef.json").write_text("{")
    resumed = document(["arena", "--resume", "--workers", "1"], capsys)
    assert resumed["again"] == found["again"]
    assert Path(found["report"]).stem.startswith(kept(Store())[0].stem), "a report bears its comparison's name"
    assert find(Path(found["report"]).stem, Store()).path == kept(Store())[0]
