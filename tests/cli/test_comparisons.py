"""Verbs about whole comparisons, as a user types them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.arena.made import TASK
from tests.calls import document, output
from tests.conftest import TINY_FLAGS
from whence.arena.claims import CLAIMS
from whence.arena.instrument import PRESETS
from whence.cli.main import COMMANDS, INSTRUMENTS, run, verbs_of

pytestmark = pytest.mark.usefixtures("here")


def test_presets_tell_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(["arena", "presets"], capsys)
    assert all(f"{name}\n" in text for name in PRESETS.names())
    one = output(["arena", "presets", "source_encodings"], capsys)
    assert "whence arena compare --preset source_encodings" in one
    assert "claim_copy" not in one
    found = document(["arena", "presets", "claim_parity", "source_encodings"], capsys)
    assert [preset["name"] for preset in found] == ["claim_parity", "source_encodings"]
    assert found[1]["config"]["first_seed"] == 1337
    assert "Delétang" in found[0]["about"]


def test_reproduce_lists_claims_and_runs_nothing(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    found = document(["reproduce"], capsys)
    assert [claim["claim"] for claim in found] == list(CLAIMS)
    assert {claim["outcome"] for claim in found} == {"not run"}
    assert all("finished" in claim["reason"] for claim in found)
    text = output(["reproduce"], capsys)
    assert all(name in text for name in CLAIMS)
    assert list(here.iterdir()) == [], "not even a store was made"


def test_reproduce_shows_what_it_would_run_and_stops(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    shown = document(["reproduce", "claim_parity", "--print-config"], capsys)
    assert list(shown) == ["claim_parity"]
    assert shown["claim_parity"]["tasks"] == [{"name": "parity"}]
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "encodings"),
    [
        ([], ["sinusoidal", "learned", "rope", "alibi"]),
        (["--mixer", "mamba"], ["none", "sinusoidal", "learned"]),
        (["--mixer", "bimamba"], ["none", "sinusoidal", "learned"]),
        (["--mixer", "mamba", "--encodings", "learned"], ["learned"]),
        (["--attention", "bidirectional"], ["sinusoidal", "learned", "rope", "alibi"]),
    ],
)
def test_defaults_fit_the_mixer(flags: list[str], encodings: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    shown = document(["arena", "compare", *flags, "--print-config"], capsys)
    assert [c["encoding"]["name"] for c in shown["encodings"]] == encodings
    assert len(shown["tasks"]) == 4


def test_what_a_user_names_is_never_replaced_by_what_would_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """Not even if it is what the default would have been for another mixer."""
    named = ["--encodings", "sinusoidal", "learned", "rope", "alibi"]
    assert run(["arena", "compare", "--mixer", "bimamba", *named, "--print-config"]) == 2
    assert "rope enters through rotate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "lengths"),
    [
        (["--task", "copy"], (16, [32, 64])),
        (["--task", "copy", "--train-length", "32"], (32, [64, 128])),
        (["--task", "copy", "--test-lengths", "0"], (16, [])),
        (["--task", "copy", "--test-lengths", "none"], (16, [32, 64])),
        (["--task", "own_position"], (32, [])),
        (["--task", "k_back_recall", "--test-lengths", "48"], (32, [48])),
    ],
)
def test_lengths_come_from_the_task_that_was_chosen(
    flags: list[str], lengths: tuple[int, list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Not from the task that would have been the default."""
    shown = document(["arena", "train", *flags, "--print-config"], capsys)["lengths"]
    assert (shown["train_length"], shown["test_lengths"]) == lengths


def commands() -> list[tuple[str, ...]]:
    names = [*INSTRUMENTS, *COMMANDS]
    return [(name,) if verb == name else (name, verb) for name in names for verb in verbs_of(name)]


@pytest.mark.parametrize("words", [words for words in commands() if words != ("encodings",)], ids=" ".join)  # a list
def test_help_teaches_by_examples(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    text = output([*words, "--help"], capsys)
    examples = re.findall(rf"whence {' '.join(words)}\b[^\n]*", text)
    assert len(examples) >= 2, "usage, and at least one example"
    assert len(text.splitlines()[2]) <= 120, "a line for lists"


def examples_in_help() -> list[list[str]]:
    lines = verbs_of("arena")["compare"].description.splitlines()
    lines = [line.split("  (")[0] for line in lines if line.startswith("  whence arena compare")]
    words = [shlex.split(re.split(r"\s{3,}", line.strip())[0]) for line in lines]
    return [arguments[1:] for arguments in words]


@pytest.mark.parametrize("arguments", examples_in_help(), ids=" ".join)
def test_every_example_of_arena_help_is_accepted(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert document([*arguments, "--print-config"], capsys)["seeds"] >= 1


@pytest.mark.usefixtures("in_process")
def test_a_tuned_sweep_from_end_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [
        "arena",
        "compare",
        "--tasks",
        TASK,
        "--encodings",
        "rope",
        "t5",
        *TINY_FLAGS,
        "--steps",
        "12",
        "--seeds",
        "1",
    ]
    found = document([*flags, "--sweep", "k=1,2", "--tune", "dropout=0,0.1"], capsys)
    assert len(found["runs"]) == 2 * 2 * 2 * 2 + 2 * 2, "tuning over two seeds of its own, then what it chose"
    assert [table["title"] for table in found["tables"]] == [
        "k_back_recall:k=1,symbols=4 · attention",
        "k_back_recall:k=2,symbols=4 · attention",
    ]
    for table in found["tables"]:
        for row in table["rows"]:
            assert row["cells"]["chosen"]["text"] in ("dropout=0.0", "dropout=0.1")
            assert len(row["runs"]) == 1
    assert Path(found["report"]).is_file()
    name = Path(found["command"].split("--config ")[1]).stem
    assert document(["report", name], capsys)["tables"] == found["tables"]
    text = output(["report", name, "--out", "a.md"], capsys)
    assert text.strip() == "a.md"
    assert "| dropout=0." in Path("a.md").read_text()
