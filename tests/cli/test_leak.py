"""`whence leak …` as a user types it, in small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.calls import document, output
from tests.cli.test_bad_input import refused
from tests.conftest import TINY_FLAGS

pytestmark = pytest.mark.usefixtures("here", "in_process")

WORDS = [f"{first}{second}" for first in "abcdefgh" for second in "ijklmnop"]
DOCS = Path(__file__).parents[2] / "docs" / "howto" / "audit-your-model.md"
SMALL = [
    "leak",
    "compare",
    "--data",
    "synthetic:steps=48,channels=2",
    "--d-model",
    "8",
    "--steps",
    "4",
    "--batch-size",
    "8",
]
SMALL += ["--batch-size", "8", "--test-rows", "16", "--evaluations", "1"]


def test_mitigations_compared_and_a_run_audited(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*SMALL, "--mitigations", "none", "zero_masked_positions", "all", "content_gated", "--seeds", "2"]
    found = document(arguments, capsys)
    (table,) = found["tables"]
    rows = {row["name"]: row for row in table["rows"]}
    verdicts = {name: row["cells"]["verdict"]["verdict"].split(", ") for name, row in rows.items()}
    assert list(rows) == ["none", "zero_masked_positions", "all", "content_gated"]
    assert rows["content_gated"]["seeds"] == [0, 1]
    assert verdicts["content_gated"][0] == "clean"
    assert "seeds disagree" not in verdicts["content_gated"]
    assert rows["content_gated"]["cells"]["correlation@1"] == {"text": "undefined"}
    assert verdicts["none"][0] == "leaky"
    assert "exploratory" in table["heading"]
    page = Path(found["report"]).read_text()
    assert "undefined" in page
    assert "Shift test: " in page

    text = output(arguments, capsys)
    assert "removes the leak" in text
    audited = document(["leak", "audit", "--run", rows["none"]["runs"][0], "--ratios", "0.5", "1"], capsys)
    assert audited["verdict"]["outcome"] == "reconstructs nothing", "four steps teach nothing"
    assert audited["verdict"]["leak"] == "leaky"
    assert audited["untrained"]
    assert Path(audited["report"]).is_file()


def test_the_configuration_of_the_root_cause_analysis(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "source.yaml").write_text(
        "mask_ratio: 1.0\nprevent_position_only_learning: true\nposition_regularization_weight: 1.0\n"
        "shuffle_sequences_prob: 1.0\n"
    )
    found = document(["leak", "compare", "--config", "source.yaml", "--print-config"], capsys)
    assert found["masking"]["mask_ratio"] == 1.0
    assert [c["name"] for c in found["mitigations"][1]["mitigations"]] == [
        "zero_masked_positions",
        "variance_penalty",
        "position_penalty",
        "permute_tokens",
    ]


def test_the_page_of_the_docs_audits_ones_own_model(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "mine.py").write_text(DOCS.read_text().split("```python\n")[1].split("```")[0])
    text = output(["leak", "audit", "--model", "mine.py:build", "--ratios", "0.5", "1"], capsys)
    assert "Reconstructs nothing" in text, "it was not trained"
    assert "Position enters through learned absolute positions" in text
    assert "Masked tokens are set to 0." in text


def test_a_model_of_the_arena(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [*TINY_FLAGS, "--train-length", "16", "--test-lengths", "32", "--task", "k_back_recall:k=1,symbols=4"]
    trained = document(["arena", "train", *flags, "--encoding", "learned", "--steps", "4"], capsys)
    found = document(["leak", "audit", "--run", trained["id"], "--ratios", "0.5"], capsys)
    assert {source["name"] for source in found["pathways"]} >= {"additive encoding (learned)", "causal order"}


def test_mitigations_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    names = {mitigation["name"] for mitigation in document(["leak", "mitigations"], capsys)}
    assert names == {
        "content_gated",
        "permute_tokens",
        "position_penalty",
        "position_prior",
        "variance_penalty",
        "zero_masked_positions",
    }
    page = (DOCS.parents[1] / "leak.md").read_text()
    assert all(f"| {name} |" in page for name in names)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["leak", "audti"], ["verb", "Did you mean 'audit'?"]),
        (["leak", "audit"], ["expected either --model or --run, got neither"]),
        (["leak", "audit", "--model", "minilm", "--run", "ab"], ["expected either --model or --run, got both"]),
        (["leak", "audit", "--model", "nowhere"], ["'nowhere' is not known", "minilm, smollm2"]),
        (["leak", "audit", "--model", "no.py:build"], ["no.py", "expected FILE.py:FUNCTION with a Python file"]),
        (["leak", "audit", "--run", "abc"], ["no run 'abc'"]),
        (["leak", "audit", "--model", "minilm", "--ratios", "1.5"], ["ratios", "above 0 and up to 1, got"]),
        (["leak", "audit", "--model", "minilm", "--text", "no.txt"], ["text", "'no.txt'"]),
        (["leak", "compare", "--mitigations", "nothing"], ["'nothing' is not known", "content_gated"]),
        (["leak", "compare", "--mitigations", "none", "none"], ["mitigations", "expected each once"]),
        (["leak", "compare", "--mitigations", "content_gated+content_gated"], ["expected each once"]),
        (["leak", "compare", "--data", "nothing.npy"], ["'nothing.npy' is not an existing .npy file"]),
        (["leak", "compare", "--window", "7"], ["window", "does not divide"]),
        (["leak", "compare", "--window", "80"], ["window", "at least 5 windows per example", "got 1"]),
        (["leak", "compare", "--backbone", "bimamba", "--temporal", "rope"], ["temporal", "enters through rotate"]),
        (["leak", "compare", "--backbone", "transformer", "--heads", "5"], ["heads", "does not divide"]),
    ],
)
def test_mistakes_are_named(arguments: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(arguments, capsys)
    for part in parts:
        assert part in message


def bert(folder: Path, *, tokenizer: bool = True, positions: int = 48) -> Any:
    """A small BERT with random weights, saved as transformers saves it."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    config = transformers.BertConfig(**sizes, vocab_size=5 + len(WORDS), max_position_embeddings=positions)
    model = transformers.BertModel(config)
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    if tokenizer:
        (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    return model


def text_of(words: int) -> str:
    order = torch.randint(len(WORDS), (words,), generator=torch.Generator().manual_seed(0))
    return " ".join(WORDS[index] for index in order.tolist())


AUDIT = ["leak", "audit", "--model", "bert", "--ratios", "0.5", "--length", "24"]


@pytest.fixture
def words(here: Path) -> Path:
    (here / "words.txt").write_text(text_of(2000))
    return here


def test_a_directory_with_its_tokenizer_is_audited(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bert(words / "bert")
    text = output([*AUDIT, "--text", "words.txt"], capsys)
    assert "No different from untrained" in text
    assert "Masked tokens are replaced by [MASK] (id 4)." in text


def test_a_directory_without_tokenizer_files_is_refused(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bert(words / "bert", tokenizer=False)
    assert refused([*AUDIT, "--text", "words.txt"], capsys) == (
        "whence: --model bert: no tokenizer files found, so text cannot be encoded. Add the tokenizer to the directory "
        "or pass --token-ids FILE.npy.\n"
    )
    (words / "bert" / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    assert "no tokenizer files found" in refused([*AUDIT, "--text", "words.txt"], capsys), "it has special tokens only"


def test_text_that_is_all_unknown_is_refused(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bert(words / "bert")
    (words / "other.txt").write_text("zz yy xx ww " * 600)
    assert refused([*AUDIT, "--text", "other.txt"], capsys) == (
        "whence: text: expected tokens that vary, got id 1 ([UNK]) for 100 % of 528 tokens. Pass a text that the "
        "tokenizer can encode, or add the tokenizer that belongs to the model.\n"
    )


def test_measures_that_are_not_finite_are_refused(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = bert(words / "bert")
    with torch.no_grad():
        model.encoder.layer[0].output.dense.weight.fill_(3e38)
    model.save_pretrained(words / "bert")
    assert refused([*AUDIT, "--text", "words.txt"], capsys) == (
        "whence: model: expected finite outputs, got values that are infinite or not a number with nothing masked. "
        "Check the weights of the model.\n"
    )


def test_outputs_that_do_not_vary_are_refused(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once called clean, with errors that were not numbers."""
    model = bert(words / "bert")
    with torch.no_grad():
        model.encoder.layer[0].output.LayerNorm.weight.zero_()
    model.save_pretrained(words / "bert")
    assert "expected targets that vary, got constant ones" in refused([*AUDIT, "--text", "words.txt"], capsys)


def test_a_length_beyond_the_position_table_is_refused(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bert(words / "bert")
    arguments = ["leak", "audit", "--model", "bert", "--text", "words.txt"]
    assert refused([*arguments, "--length", "4000"], capsys) == (
        "whence: --length 4000: expected at most 48 tokens, since bert has 48 positions. Pass --length 48 or less.\n"
    )
    found = document([*arguments, "--ratios", "0.5"], capsys)
    assert found["tokens"] == 48
    assert "Examples have 48 tokens instead of 64, since the model has only 48 positions." in found["facts"]


def test_fewer_rows_than_requested_are_reported(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bert(words / "bert")
    (words / "short.txt").write_text(text_of(200))
    found = document([*AUDIT, "--text", "short.txt", "--rows", "12"], capsys)
    assert found["rows"] == 9
    assert "The audit uses 9 examples instead of 12, since the text is too short for more." in found["facts"]
    found = document([*AUDIT, "--text", "words.txt", "--rows", "40"], capsys)
    assert "The shift test uses the first 24 of 40 examples." in found["facts"]


def test_token_ids_need_no_tokenizer(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bert(words / "bert", tokenizer=False)
    np.save("ids.npy", np.random.default_rng(0).integers(5, 60, (12, 24)))
    arguments = ["leak", "audit", "--model", "bert", "--ratios", "0.5", "--token-ids"]
    assert "Masked tokens are replaced by the token id 4." in output(
        [*arguments, "ids.npy", "--mask-token-id", "4"], capsys
    )
    assert "mean of all token embeddings" in output([*arguments, "ids.npy"], capsys)
    np.save("floats.npy", np.zeros((12, 24)))
    np.save("large.npy", np.full((12, 24), 999))
    np.save("long.npy", np.zeros((12, 99), dtype=int))
    np.save("same.npy", np.full((12, 24), 7))
    for file, part in {
        "floats.npy": "expected integers of shape (rows, tokens), got float64 of shape (12, 24)",
        "large.npy": "expected ids from 0 to 68, got 999 to 999",
        "long.npy": "expected rows of at most 48 tokens",
        "same.npy": "expected tokens that vary, got id 7 for 100 % of 288 tokens",
        "no.npy": "cannot be read",
    }.items():
        assert part in refused([*arguments, file], capsys)
    assert "requires --token-ids" in refused([*AUDIT, "--mask-token-id", "4"], capsys)
    assert "Pass one of them" in refused([*arguments, "ids.npy", "--length", "24"], capsys)


def test_an_audit_is_stored_and_shown_again(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Identified by the bytes of the model and of the text, not by their names alone."""
    bert(words / "bert")
    arguments = [*AUDIT, "--text", "words.txt"]
    first = document(arguments, capsys)
    assert "cached   audit-" in output(arguments, capsys)
    assert "from the store" not in output([*arguments, "--force"], capsys)
    again = document(arguments, capsys)
    assert again["artifact"] == first["artifact"]
    assert again["ratios"] == first["ratios"]
    assert "No different from untrained" in output(["leak", "show", first["artifact"][-12:]], capsys)
    (words / "words.txt").write_text(text_of(2000) + " ai")
    assert document(arguments, capsys)["artifact"] != first["artifact"]
    changed = bert(words / "bert")
    with torch.no_grad():
        changed.embeddings.word_embeddings.weight.add_(1)
    changed.save_pretrained(words / "bert")
    (words / "words.txt").write_text(text_of(2000))
    assert document(arguments, capsys)["artifact"] != first["artifact"]


def test_a_model_that_is_code_is_measured_anew(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "mine.py").write_text(DOCS.read_text().split("```python\n")[1].split("```")[0])
    arguments = ["leak", "audit", "--model", "mine.py:build", "--ratios", "0.5"]
    first = document(arguments, capsys)["artifact"]
    assert "from the store" not in output(arguments, capsys)
    assert "mine.py:build: 32 examples" in output(["leak", "show", first], capsys)
