"""Every verb, as a user types it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.calls import document, output
from tests.conftest import TINY_FLAGS
from whence.cli.main import COMMANDS, INSTRUMENTS, run, verbs_of

ARENA = [
    "arena",
    "compare",
    "--tasks",
    "k_back_recall:k=1,symbols=4",
    "--encodings",
    "rope",
    "randomized:span=64+alibi",
    *TINY_FLAGS,
]


pytestmark = pytest.mark.usefixtures("here")


def test_help_names_every_command_and_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(["--help"], capsys)
    assert all(f"\n  {name} " in text for name in INSTRUMENTS | COMMANDS)
    assert output([], capsys) == text
    for name in INSTRUMENTS | COMMANDS:
        verbs = verbs_of(name)
        if name not in verbs:
            listed = output([name], capsys)
            assert output([name, "--help"], capsys) == listed
            assert all(f"\n  {verb} " in listed for verb in verbs)
        for verb in verbs:
            assert "--json" in output([name, "--help"] if verb == name else [name, verb, "--help"], capsys)


def test_shared_verbs_are_the_same_in_every_instrument() -> None:
    for name in INSTRUMENTS:
        assert {"compare", "train", "show", "report"} <= set(verbs_of(name)), name


def test_encodings(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(["encodings"], capsys)
    names = {encoding["name"] for encoding in found["encodings"]}
    assert names >= {"none", "sinusoidal", "learned", "rope", "xpos", "alibi", "t5", "kerple", "fire", "cope"}
    assert len(names) >= 11
    assert {transform["name"] for transform in found["transforms"]} >= {"randomized"}
    rope = next(encoding for encoding in found["encodings"] if encoding["name"] == "rope")
    assert rope["enters"] == ["rotate"]
    assert rope["options"]["scaling"]["enum"] == ["none", "linear", "ntk", "dynamic_ntk", "yarn"]
    table = output(["encodings"], capsys)
    assert all(name in table for name in names)


def test_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(["tasks"], capsys)
    assert {task["name"] for task in found["tasks"]} >= {"k_back_recall", "modular_sum", "long_range_match"}
    for task in found["tasks"]:
        assert str(task["train_length"]) in task["baselines"]
        for baseline in task["baselines"].values():
            assert 0 < baseline["interval"][0] <= baseline["accuracy"] <= baseline["interval"][1] <= 1
            assert not baseline["expresses_skill"]
        assert task["skill"]
    assert [task["name"] for task in found["tasks"] if not task["ranked"]] == ["reversed_pattern"]
    one = output(["tasks", "long_range_match"], capsys)
    assert "Compare the first symbol with the last." in one
    assert "expresses the skill" in one
    assert "k_back_recall" in output(["tasks"], capsys)


def test_a_comparison_from_end_to_end(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    arguments = [*ARENA, "--seeds", "2", "--steps", "400", "--lr", "0.01", "--dropout", "0"]
    found = document(arguments, capsys)
    (table,) = found["tables"]
    assert [row["name"] for row in table["rows"]] == ["rope", "randomized:span=64+alibi"]
    rope = table["rows"][0]
    assert rope["seeds"] == [0, 1]
    accuracy = rope["cells"]["id"]
    assert accuracy["mean"] > 0.9
    assert accuracy["verdict"] in ("learning", "solved")
    assert list(accuracy["per_seed"]) == ["0", "1"]
    assert accuracy["interval"][0] <= accuracy["mean"] <= accuracy["interval"][1]
    assert "exploratory" in table["heading"]
    assert all(pair["winner"] is None for pair in table["comparisons"]), "two seeds decide nothing"
    assert set(found["runs"].values()) == {"finished"}
    page = Path(found["report"]).read_text()
    assert "rope" in page
    assert found["command"].split()[-1].removeprefix(str(here)) in page
    assert "http://" not in page.split("<script")[0]

    again = document(arguments, capsys)
    assert set(again["runs"].values()) == {"skipped"}
    assert again["tables"] == found["tables"]
    assert again["report"] == found["report"], "the same results make the same page"

    more = document([*arguments, "--seeds", "3"], capsys)
    assert sorted(more["runs"].values()) == ["finished"] * 2 + ["skipped"] * 4

    from_file = document(found["command"].split()[1:], capsys)
    assert from_file["tables"] == found["tables"]

    printed = output(arguments, capsys)
    assert "●●" in printed
    assert "report   whence-runs/reports/arena-" in printed

    rows = document(["runs", "list"], capsys)
    assert len(rows) == 6
    assert {row["state"] for row in rows} == {"finished"}
    text = output(["runs", "list"], capsys)
    assert all(row["id"] in text for row in rows)
    assert len(document(["runs", "list", "--label", "alibi"], capsys)) == 3
    assert document(["runs", "list", "--state", "failed"], capsys) == []

    run_id = rows[0]["id"]
    shown = document(["runs", "show", run_id[:8]], capsys)
    assert shown["status"]["id"] == run_id
    assert shown["config"]["kind"] == "arena"
    assert run_id in output(["runs", "show", run_id], capsys)

    table_rows = list(csv.DictReader(io.StringIO(output(["runs", "export", "--csv"], capsys))))
    assert len(table_rows) == 6 * 7
    assert float(table_rows[-1]["headline.id"]) >= 0
    assert document(["runs", "export"], capsys)[0]["id"] == run_id

    assert document(["runs", "verify"], capsys)["problems"] == {}
    target = Path("whence-runs/runs") / run_id / "metrics.jsonl"
    data = bytearray(target.read_bytes())
    data[len(data) // 2] ^= 4
    target.write_bytes(bytes(data))
    problems = document(["runs", "verify"], capsys, code=1)["problems"]
    assert list(problems) == [run_id]
    assert "metrics.jsonl" in problems[run_id][0]
    assert run_id in output(["runs", "verify", run_id], capsys, code=1)
    assert len(document(["runs", "export"], capsys, code=1)) == 5 * 7, "a damaged run is left out, and said to be"

    assert document(["runs", "rm", run_id, "--yes"], capsys) == {"removed": [run_id]}
    assert len(document(["runs", "list"], capsys)) == 5
    assert run(["runs", "rm", rows[1]["id"]]) == 2  # not a terminal: nobody could be asked
    assert len(document(["runs", "list"], capsys)) == 5


def test_one_run_interrupted_and_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.conftest import TINY
    from whence.arena.run import ArenaRun
    from whence.execution.execute import execute
    from whence.execution.options import ExecutionOptions
    from whence.store.runs import Store

    spec = ArenaRun.read(TINY)
    count: list[int] = []
    execute(spec, Store(), ExecutionOptions(threads=1), should_stop=lambda: count.append(0) or len(count) > 9)
    assert document(["runs", "list", "--state", "interrupted"], capsys)[0]["step"] == 9
    assert document(["runs", "resume"], capsys) == {"runs": {spec.id: "finished"}}
    assert document(["runs", "resume"], capsys) == {"runs": {}}
    status = document(["runs", "show", spec.id], capsys)["status"]
    assert (status["state"], status["step"]) == ("finished", 60)


def test_train(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["arena", "train", *TINY_FLAGS, "--task", "modular_sum:base=3", "--encoding", "rope", "--steps", "5"]
    found = document(flags, capsys)
    assert found["state"] == "finished"
    assert found["title"] == "modular_sum:base=3 · attention · rope"
    assert found["id"] in output(flags, capsys)


def test_a_failed_run_is_shown_as_failed_and_enters_no_average(capsys: pytest.CaptureFixture[str]) -> None:
    broken = [*ARENA, "--steps", "5", "--seeds", "1", "--lr", "1e38", "--clip", "1e30", "--warmup", "0"]
    found = document([*broken, "--schedule", "constant"], capsys, code=1)
    rows = found["tables"][0]["rows"]
    assert [row["seeds"] for row in rows] == [[], []]
    assert [row["cells"]["id"].get("mean") for row in rows] == [None, None]
    assert [row["cells"]["id"]["verdict"] for row in rows] == ["failed", "failed"]
    assert all("non-finite" in message for row in rows for message in row["failed"].values())
    assert found["report"] is None
    assert "✕" in output([*broken, "--schedule", "constant"], capsys, code=1)


def test_specs_from_files_and_flags(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    Path("a.yaml").write_text("seeds: 2\nencodings: [rope:base=500, t5]\ntraining: {steps: 7, lr: 0.1}\n")
    spec = document(["arena", "compare", "--config", "a.yaml", "--print-config"], capsys)
    assert (spec["seeds"], spec["training"]["steps"], spec["training"]["lr"]) == (2, 7, 0.1)
    assert spec["encodings"][0]["encoding"]["base"] == 500
    spec = document(
        ["arena", "compare", "--config=a.yaml", "--steps", "9", "--encodings", "none", "--print-config"], capsys
    )
    assert (spec["seeds"], spec["training"]["steps"]) == (2, 9)
    assert [arm["encoding"]["name"] for arm in spec["encodings"]] == ["none"]
    Path("b.json").write_text(json.dumps(spec))  # what is printed can be read back
    assert document(["arena", "compare", "--config", "b.json", "--print-config"], capsys) == spec
    assert not (here / "whence-runs").exists()
    for name in INSTRUMENTS:
        printed = document([name, "train", "--print-config"], capsys)
        Path("run.json").write_text(json.dumps(printed))
        assert document([name, "train", "--config", "run.json", "--print-config"], capsys) == printed


def test_the_environment_names_the_store(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    monkeypatch.setenv("WHENCE_STORE", str(here / "elsewhere"))
    document(["arena", "train", *TINY_FLAGS, "--steps", "2"], capsys)
    assert len(list((here / "elsewhere" / "runs").iterdir())) == 1
    assert not (here / "whence-runs").exists()


def test_a_reader_that_leaves_early_is_no_error() -> None:
    script = f"{sys.executable} -m whence encodings | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Encodings")
    assert done.stderr == ""


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize("words", ["runs export", "encodings", "arena compar"])
def test_closed_streams_are_no_traceback(words: str, closed: str) -> None:
    script = f"{sys.executable} -m whence {words} {closed}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == (2 if words.endswith("compar") else 0)
    assert "Traceback" not in done.stderr


def test_a_run_that_another_process_is_running(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.conftest import TINY
    from whence.arena.run import ArenaRun
    from whence.store.runs import Store

    document_of = ArenaRun.read(TINY)
    folder = Store().folder(document_of.id)
    folder.path.mkdir(parents=True)
    Path("run.json").write_text(json.dumps({k: v for k, v in document_of.document().items() if k != "kind"}))
    with folder.lock():
        text = output(["arena", "train", "--config", "run.json"], capsys, code=1)
    assert "another process" in text
    assert document(["arena", "train", "--config", "run.json"], capsys)["state"] == "finished"


def test_one_broken_run_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    document(["arena", "train", *TINY_FLAGS, "--steps", "2"], capsys)
    Path("whence-runs/runs/0123456789ab").mkdir()
    Path("whence-runs/runs/0123456789ac").write_text("a file")
    assert document(["runs", "resume"], capsys) == {"runs": {}}
    states = {row["id"]: row["state"] for row in document(["runs", "list"], capsys)}
    assert len(states) == 3
    assert (states["0123456789ab"], states["0123456789ac"]) == ("interrupted", "corrupt")
    assert list(document(["runs", "verify"], capsys, code=1)["problems"]) == ["0123456789ab", "0123456789ac"]
    assert document(["runs", "rm", "0123456789ab", "0123456789ab", "--yes"], capsys) == {"removed": ["0123456789ab"]}
