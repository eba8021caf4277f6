"""Presets of the arena, and flags on top of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.arena.made import planned
from tests.calls import document
from whence import stats
from whence.arena.claims import CLAIMS
from whence.arena.config import ArenaConfig
from whence.arena.instrument import ARENA, PRESETS
from whence.experiments.comparison import count_comparisons
from whence.experiments.saved import read_config
from whence.store.runs import Store

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("name", PRESETS.names())
def test_every_preset_can_be_run_by_the_command_at_its_head(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    comparison = read_config(PRESETS.path(name), ArenaConfig)
    plan = planned(comparison)
    needed = stats.seeds_needed(count_comparisons(ARENA, comparison, Store("nowhere")))
    assert comparison.seeds >= needed, "a preset that cannot decide anything"
    assert len(plan) == len({run.id for run in plan})
    about = PRESETS.about(name)
    command = f"whence reproduce {name}" if name in CLAIMS else f"whence arena compare --preset {name}"
    assert command in about
    assert "minutes on" in about, "what it costs"
    shown = document(["arena", "compare", "--preset", name, "--print-config"], capsys)
    assert ArenaConfig.read(shown) == comparison, "the command makes other runs"


def test_any_flag_wins_over_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--preset=claim_recall_needs_state", "--seeds", "2", "--encodings", "none", "--steps", "9"]
    shown = document(["arena", "compare", *flags, "--print-config"], capsys)
    assert (shown["seeds"], shown["training"]["steps"], shown["lengths"]["test_lengths"]) == (2, 9, [])
    assert [c["encoding"]["name"] for c in shown["encodings"]] == ["none"]
    assert shown["sweep"] == read_config(PRESETS.path("claim_recall_needs_state"), ArenaConfig).sweep
    shown = document(["arena", "compare", *flags, "--test-lengths", "12", "16", "--print-config"], capsys)
    assert shown["lengths"]["test_lengths"] == [12, 16]


def test_a_spec_that_is_printed_means_the_same_when_read(capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["--test-lengths", "0"], ["--train-length", "12"], ["--mixer", "mamba"], ["--sweep", "k=1,2"]):
        shown = document(["arena", "compare", "--tasks", "k_back_recall", *flags, "--print-config"], capsys)
        Path("again.json").write_text(json.dumps(shown))
        assert document(["arena", "compare", "--config", "again.json", "--print-config"], capsys) == shown
