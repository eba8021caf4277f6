"""`whence leak …` as a user types it, in small."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.calls import document, output
from tests.cli.test_bad_input import refused
from tests.conftest import TINY_FLAGS

pytestmark = pytest.mark.usefixtures("here", "in_process")

DOCS = Path(__file__).parents[2] / "docs" / "leak.md"
SMALL = ["leak", "cure", "--data", "planted:steps=48,channels=2", "--d-model", "8", "--steps", "4", "--batch-size", "8"]
SMALL += ["--test-rows", "16", "--evaluations", "1"]


def test_cures_compared_and_a_run_audited(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*SMALL, "--cures", "none", "zero_masked_positions", "all", "content_gated", "--seeds", "2"]
    found = document(arguments, capsys)
    rows = {row["cure"]: row for row in found["rows"]}
    assert list(rows) == ["none", "zero_masked_positions", "all", "content_gated"]
    assert rows["content_gated"]["outcomes"] == ["clean", "clean"]
    assert rows["content_gated"]["ratios"]["1"]["correlation"]["mean"] is None
    assert rows["none"]["verdict"].startswith("leaky")
    assert any("exploratory" in line for line in found["findings"])
    assert Path(found["report"]).is_file()

    text = output(arguments, capsys)
    assert "removes it" in text
    assert "undefined" in text
    audited = document(["leak", "audit", "--run", rows["none"]["runs"][0], "--ratios", "0.5", "1"], capsys)
    assert audited["verdict"]["outcome"] == "leaky"
    assert audited["untrained"]
    assert Path(audited["report"]).is_file()


def test_the_sources_configuration(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "source.yaml").write_text(
        "mask_ratio: 1.0\nprevent_position_only_learning: true\nposition_regularization_weight: 1.0\n"
        "shuffle_sequences_prob: 1.0\n"
    )
    found = document(["leak", "cure", "--config", "source.yaml", "--print-spec"], capsys)
    assert found["masking"]["mask_ratio"] == 1.0
    assert [c["name"] for c in found["cures"][1]["cures"]] == [
        "zero_masked_positions",
        "variance_penalty",
        "position_penalty",
        "permute_tokens",
    ]


def test_the_page_of_the_docs_audits_ones_own_model(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "mine.py").write_text(DOCS.read_text().split("```python\n")[1].split("```")[0])
    text = output(["leak", "audit", "--model", "mine.py:build", "--ratios", "0.5", "1"], capsys)
    assert "learned absolute positions" in text
    assert "Leaky" in text


def test_a_model_of_the_arena(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [*TINY_FLAGS, "--train-length", "16", "--test-lengths", "32", "--task", "k_back_recall:k=1,symbols=4"]
    trained = document(["train", *flags, "--encoding", "learned", "--steps", "4"], capsys)
    found = document(["leak", "audit", "--run", trained["id"], "--ratios", "0.5"], capsys)
    assert {source["name"] for source in found["sources"]} >= {"additive encoding (learned)", "causal order"}


def test_cures_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    names = {cure["name"] for cure in document(["leak", "cures"], capsys)}
    assert names == {
        "content_gated",
        "permute_tokens",
        "position_penalty",
        "position_prior",
        "variance_penalty",
        "zero_masked_positions",
    }
    page = DOCS.read_text()
    assert all(f"| {name} |" in page for name in names)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["leak", "audti"], ["action", "Did you mean 'audit'?"]),
        (["leak", "audit"], ["name a model or a stored run"]),
        (["leak", "audit", "--model", "minilm", "--run", "ab"], ["name a model or a stored run"]),
        (["leak", "audit", "--model", "nowhere"], ["'nowhere' is not known", "minilm, smollm2"]),
        (["leak", "audit", "--model", "no.py:build"], ["no.py", "is no Python file"]),
        (["leak", "audit", "--run", "abc"], ["no run 'abc'"]),
        (["leak", "audit", "--model", "minilm", "--ratios", "1.5"], ["ratios", "above 0, up to 1"]),
        (["leak", "audit", "--model", "minilm", "--text", "no.txt"], ["text", "'no.txt'"]),
        (["leak", "cure", "--cures", "nothing"], ["'nothing' is not known", "content_gated"]),
        (["leak", "cure", "--cures", "none", "none"], ["cures", "listed twice"]),
        (["leak", "cure", "--cures", "content_gated+content_gated"], ["named twice"]),
        (["leak", "cure", "--data", "nothing.npy"], ["'nothing.npy' is not a file"]),
        (["leak", "cure", "--window", "7"], ["window", "does not divide"]),
        (["leak", "cure", "--window", "80"], ["window", "fewer than the 5 parts"]),
        (["leak", "cure", "--backbone", "bimamba", "--temporal", "rope"], ["temporal", "enters through rotate"]),
        (["leak", "cure", "--backbone", "transformer", "--heads", "5"], ["heads", "does not divide"]),
    ],
)
def test_mistakes_are_named(arguments: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(arguments, capsys)
    for part in parts:
        assert part in message
