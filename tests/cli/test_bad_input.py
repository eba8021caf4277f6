"""A user's mistake ends before any work: exit code 2, one message, no traceback, nothing left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import TINY_FLAGS
from whence.cli.main import run

ARENA = ["arena", "compare", "--tasks", "k_back_recall", *TINY_FLAGS, "--steps", "3", "--seeds", "1"]


pytestmark = pytest.mark.usefixtures("here")


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The message, once it is known to be the only thing that happened."""
    code = run(arguments)
    captured = capsys.readouterr()
    assert code == 2, captured.err
    assert captured.out == "" or "--json" in arguments
    assert captured.err.startswith("whence: ")
    assert "Traceback" not in captured.err
    assert len(captured.err.strip().splitlines()) == 1, captured.err
    assert not list(Path().glob("whence-runs/runs/*")), "work had begun"
    return captured.err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ["arena", "compare", "--encodings", "rpoe"],
            ["encodings", "'rpoe'", "Allowed:", "alibi", "sinusoidal", "Did you mean 'rope'?"],
        ),
        (
            ["arena", "train", "--encoding", "alibbi"],
            ["model.encoding", "'alibbi'", "Allowed:", "Did you mean 'alibi'?"],
        ),
        (
            ["arena", "compare", "--encodings", "randomised+rope"],
            ["'randomised'", "Allowed:", "Did you mean 'randomized'?"],
        ),
        (
            ["arena", "compare", "--encodings", "rope:scaling=yran"],
            ["scaling", "'yran'", "Allowed: none, linear", "Did you mean 'yarn'?"],
        ),
        (
            ["arena", "compare", "--encodings", "rope:bsae=3"],
            ["bsae", "no such field", "Allowed:", "Did you mean 'base'?"],
        ),
        (["arena", "compare", "--encodings", "rope:base"], ["'rope:base'", "name:option=value"]),
        (["arena", "compare", "--tasks", "k_bak_recall"], ["tasks", "'k_bak_recall'", "Did you mean 'k_back_recall'?"]),
        (["arena", "compare", "--heads", "3"], ["heads: 3", "d_model=64", "Nearest allowed: 2 or 4"]),
        (
            ["arena", "compare", "--d-model", "12", "--heads", "4", "--encodings", "rope"],
            ["head_dim: 3", "Allowed: a multiple of 2", "nearest 2 or 4"],
        ),
        (
            ["arena", "compare", "--steps", "-5"],
            ["training.steps", "'-5'", "expected a value greater than or equal to 1"],
        ),
        (["arena", "compare", "--steps", "many"], ["training.steps", "'many'", "integer"]),
        (["arena", "compare", "--lr", "0"], ["training.lr", "greater than 0"]),
        (["arena", "compare", "--schedule", "cosin"], ["training.schedule", "'cosin'", "Did you mean 'cosine'?"]),
        (["arena", "compare", "--attention", "causla"], ["model.attention", "Did you mean 'causal'?"]),
        (
            ["arena", "compare", "--encodings", "xpos", "--attention", "bidirectional"],
            ["attention", "xpos", "Allowed: causal"],
        ),
        (["arena", "compare", "--encodings", "randomized+none"], ["positions", "no effect", "none"]),
        (["arena", "compare", "--encodings", "randomized:span=50+rope"], ["span=50", "128"]),
        (["arena", "compare", "--encodings", "rope", "rope"], ["encodings", "listed twice"]),
        (["arena", "compare", "--attention", "prefix"], ["attention", "'prefix'", "Allowed: causal, bidirectional"]),
        (["arena", "compare", "--train-length", "3"], ["train_length: 3", "4 or more"]),
        (
            ["arena", "compare", "--min-length", "64", "--train-length", "8"],
            ["min_length: 64", "at most train_length=8"],
        ),
        (["arena", "compare", "--encodings", "rope:layout=axial"], ["reads 2 position axes"]),
        (["arena", "compare", "--encodings", "learned:out_of_range=error"], ["room for 32 positions", "128"]),
        (["arena", "compare", "--clip", "inf"], ["training.clip", "finite"]),
        (["arena", "compare", "--encodings", "rope:base=nan"], ["base", "expected a"]),
        (["arena", "compare", "--encodings", "+rope"], ["'+rope'", "TRANSFORM+ENCODING"]),
        (["arena", "compare", "--encodings", "rope+"], ["'rope+'", "TRANSFORM+ENCODING"]),
        (["arena", "compare", "--test-lengths", "64", "64"], ["test_lengths: 64", "each length once"]),
        (["arena", "compare", "--test-lengths", "16"], ["test_lengths: 16", "more than train_length=32"]),
        (["arena", "compare", "--seeds", "0"], ["seeds", "greater than or equal to 1"]),
        (["arena", "compare", "--workers", "0"], ["workers", "greater than or equal to 1"]),
        (["arena", "compare", "--device", "tpu"], ["device", "'tpu'", "Allowed: auto, cpu, cuda, mps"]),
        (["arena", "compare", "--step", "5"], ["--step", "no such option", "Did you mean '--steps'?"]),
        (["arena", "compare", "extra"], ["'extra'", "not expected"]),
        (["arena", "compare", "--sweep", "d_modle=64,128"], ["sweep", "'d_modle'", "Did you mean 'd_model'?"]),
        (["arena", "compare", "--sweep", "d_model"], ["sweep", "'d_model'", "FIELD=VALUE"]),
        (["arena", "compare", "--tune", "train_length=8,16"], ["tune", "'train_length'", "Allowed:", "lr"]),
        (["arena", "compare", "--tune", "lr=1e-3,fast"], ["training.lr", "'fast'"]),
        (
            ["arena", "compare", "--preset", "source_encodngs"],
            ["preset", "'source_encodngs'", "Did you mean 'source_encodings'?"],
        ),
        (["arena", "compare", "--preset"], ["--preset", "expected a value, got none"]),
        (
            ["arena", "compare", "--preset", "claim_copy", "--config", "a.yaml"],
            ["preset", "got both"],
        ),
        (["arena", "compare", "--tasks", "copy", "--mixer", "bimamba"], ["task", "earlier answers", "answers=blank"]),
        (["arena", "presets", "claim_copi"], ["preset", "Did you mean 'claim_copy'?"]),
        (["reproduce", "claim_copi"], ["claim", "Did you mean 'claim_copy'?"]),
        (["report", "one", "--diff"], ["name", "compares two"]),
        (["report", "one", "two", "--diff"], ["'one' is not known", "source_encodings", "none yet"]),
        (["report", "a", "b", "--store", "nowhere", "--diff"], ["store: 'nowhere'", "not a directory"]),
        (["report", "nonsense"], ["'nonsense' is not known", "a config file"]),
        (["report", "claim_copy", "--out", "a.pdf"], ["out", "'a.pdf'", ".html, .png, .csv, .md, .json"]),
        (["report", "claim_copy"], ["none of the runs of claim_copy has finished"]),
        (["arna"], ["command", "'arna'", "Did you mean 'arena'?"]),
        (["arena", "compar"], ["verb", "'compar'", "Did you mean 'compare'?"]),
        (["arena", "report", "--dif"], ["--dif", "Did you mean '--diff'?"]),
        (["runs", "show"], ["run", "must be given"]),
        (["runs", "lst"], ["verb", "'lst'", "Did you mean 'list'?"]),
        (["runs", "list", "--state", "finshed"], ["state", "Did you mean 'finished'?"]),
        (["runs", "show", "abc"], ["run", "no run 'abc'"]),
        (["runs", "show", "../../etc"], ["run", "no run"]),
        (["runs", "rm"], ["run", "expected one run or more"]),
        (["arena", "train", "--task"], ["--task", "expected a value, got none"]),
        (["runs", "list", "--store", "nowhere"], ["store: 'nowhere'", "not a directory"]),
        (["runs", "verify", "--store", "nowhere"], ["store: 'nowhere'", "not a directory"]),
        (["runs", "export", "--csv", "--json"], ["csv", "expected --csv or --json, got both"]),
        (["arena", "compare", "--encodings", "rope:base=1,base=2"], ["'base' is given twice"]),
        (["arena", "compare", "--test-sequences", "1000000000"], ["test_sequences", "less than or equal to 100000"]),
        (["arena", "compare", "--d-model", "65536"], ["parameters", "GiB of memory"]),
        (["arena", "compare", "--tasks"], ["tasks: expected at least 1 value, got 0"]),
        (["arena", "compare", "--tasks", "copy", "copy"], ["tasks", "listed twice"]),
        (
            ["arena", "compare", "--until-decided", "--seeds", "9", "--max-seeds", "7"],
            ["max_seeds", "less than seeds=9"],
        ),
        (["tasks", "nope"], ["task: 'nope' is not known"]),
        (["report", "--out", "a.html"], ["name what to report on"]),
        (["encodings", "--jsno"], ["--jsno", "Did you mean '--json'?"]),
    ],
)
def test_mistakes_are_named(arguments: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(arguments, capsys)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("a.yaml", "training:\n  stepz: 5\n", ["training.stepz", "no such field", "Did you mean 'steps'?"]),
        ("a.yaml", "trainin: {}\n", ["trainin", "Did you mean 'training'?"]),
        ("a.json", '{"encodings": ["rpoe"]}', ["'rpoe'", "Did you mean 'rope'?"]),
        ("a.yaml", "model: {encoding: rope}\n", ["model.encoding", "no such field"]),
        ("a.json", '{"seeds": 0}', ["seeds", "greater than or equal to 1"]),
        ("a.json", "{", ["'a.json'", "not valid JSON"]),
        ("a.yaml", "a: [", ["'a.yaml'", "not valid YAML"]),
        ("a.yaml", "!!python/object/apply:os.system ['touch pwned']", ["'a.yaml'", "not valid YAML"]),
        ("a.yaml", "- 1\n", ["'a.yaml'", "not a list"]),
        ("a.toml", "", ["'a.toml'", "Allowed: FILE.yaml, FILE.json"]),
        (None, "", ["'a.yaml'", "No such file"]),
    ],
)
def test_config_mistakes_are_named(
    name: str | None, text: str, parts: list[str], capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    if name:
        Path(name).write_text(text)
    message = refused(["arena", "compare", "--config", name or "a.yaml"], capsys).replace("\n", " ")
    for part in parts:
        assert part in message
    assert not (here / "pwned").exists()


def test_an_unwritable_store(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "file").write_text("not a directory")
    message = refused([*ARENA, "--store", str(here / "file" / "store")], capsys)
    assert "store: " in message
    assert "cannot be written" in message
    assert "--store" in message


def test_a_full_disk(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=1000))
    message = refused(ARENA, capsys)
    assert "0 MiB free" in message

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "the disk is full" in refused(ARENA, capsys)


def test_an_absent_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert "'cuda' is not available" in refused([*ARENA, "--device", "cuda"], capsys)


def test_errors_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["arena", "compare", "--encodings", "rpoe", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["field"].startswith("encodings")
    assert "Did you mean 'rope'?" in error["message"]
    assert run(["arena", "train", "--task", "--json"]) == 2
    assert "error" in json.loads(capsys.readouterr().out)


def test_verbs_print_through_the_one_place_that_escapes(source: Path) -> None:
    bare = re.compile(r"^\s*print\(| else print\(", re.MULTILINE)
    own = {"main.py", "options.py", "reference.py", "output.py"}  # what whence says itself, and the place
    for path in (source / "whence" / "cli").glob("*.py"):
        assert path.name in own or not bare.search(path.read_text()), path
