"""Hidden states with their positions: the right ones, held out by document, and resumed bit by bit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from whence.cli.main import run
from whence.errors import UserError
from whence.execution.execute import execute
from whence.features.activations.collect import collect, collect_from
from whence.features.activations.sources import of_module
from whence.features.activations.store import CONTENT, FIRST, SPECIAL, Collection
from whence.features.activations.text import documents, held_out, labelled, sets
from whence.features.config import CollectConfig
from whence.models.capture import capture
from whence.models.pretrained import default_text, pretrained
from whence.store.data import PARTS, DataFolder
from whence.store.runs import Store
from whence.training.checkpoint import weights_of
from whence.training.config import load_run_config


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text(default_text())
    return str(path)


def small(book: str, **changes: object) -> CollectConfig:
    return CollectConfig.read({"tokens": 2400, "context_size": 16, "text": book, "layer": 2, **changes})


@pytest.fixture(scope="module")
def kept(book: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Collection]:
    store = Store(tmp_path_factory.mktemp("store"))
    store.prepare()
    return store, collect(small(book, name="some"), store)


def test_states_are_those_of_the_whole_model(kept: tuple[Store, Collection]) -> None:
    """transformers' own hidden_states, computed without stopping, are the oracle."""
    _, found = kept
    model, _ = pretrained("minilm")
    with torch.no_grad():
        whole = model(input_ids=found.tokens[:5].long(), output_hidden_states=True).hidden_states[2]
    places = torch.cartesian_prod(torch.arange(5), torch.arange(16))
    activations = found.activations(places).view(5, 16, -1)
    torch.testing.assert_close(activations, whole, atol=0.03, rtol=0.01)  # bfloat16
    shuffled = places[torch.randperm(80)]
    assert torch.equal(found.activations(shuffled), activations[shuffled[:, 0], shuffled[:, 1]])


@pytest.mark.parametrize("layer", [0, 6])
def test_the_ends_of_the_model(book: str, tmp_path: Path, layer: int) -> None:
    store = Store(tmp_path)
    store.prepare()
    found = collect(small(book, layer=layer, tokens=100), store)
    model, _ = pretrained("minilm")
    with torch.no_grad():
        whole = model(input_ids=found.tokens[:2].long(), output_hidden_states=True).hidden_states[layer]
    activations = found.activations(torch.cartesian_prod(torch.arange(2), torch.arange(16))).view(2, 16, -1)
    torch.testing.assert_close(activations, whole, atol=0.03, rtol=0.01)


def test_special_and_first_tokens_are_flagged_and_documents_held_out(kept: tuple[Store, Collection]) -> None:
    _, found = kept
    assert found.flags.tolist() == [FIRST, *[CONTENT] * 14, SPECIAL]
    _, tokenizer = pretrained("minilm")
    assert set(found.tokens[:, 0].tolist()) == {tokenizer.cls_token_id}
    assert set(found.tokens[:, -1].tolist()) == {tokenizer.sep_token_id}
    train, held = found.places("train"), found.places("held out")
    assert len(train) >= 2400
    assert not set(train[:, 0].tolist()) & set(held[:, 0].tolist())
    assert set(train[:, 1].tolist()) == set(range(1, 15))
    assert len(found.places("train", (CONTENT, SPECIAL, FIRST))) == len(found.sequences("train")) * 16


def test_held_out_text_is_nowhere_in_training(kept: tuple[Store, Collection], book: str) -> None:
    _, found = kept
    _, tokenizer = pretrained("minilm")
    words = {
        split: tokenizer.decode(found.tokens[found.sequences(split)][:, 1:-1].flatten())
        for split in ("train", "held out")
    }
    apart = [text for text in documents(book) if held_out(text) and len(text) > 100]
    shown = [tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"])[:80] for text in apart]
    assert any(text in words["held out"] for text in shown)
    assert not any(text in words["train"] for text in shown)


def test_packaged_sets_are_deduplicated() -> None:
    assert len(sets()) > 100
    name = next(name for name in sets() if "agnews" in name)
    rows = labelled(name)
    assert len(rows) > 1000
    assert {label for _, label in rows} == {"0", "1"}
    with pytest.raises(UserError, match="set"):
        labelled("no_such_set")


def test_a_killed_collection_ends_as_if_it_had_not_been(book: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "whence",
        "features",
        "collect",
        "--text",
        book,
        "--context-size",
        "16",
        "--layer",
        "2",
    ]
    command += ["--tokens", "6000", "--json", "--name", "some", "--store"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole = subprocess.run([*command, str(tmp_path / "whole")], env=environment, capture_output=True, check=True)
    assert json.loads(whole.stdout)["activations"] >= 6000
    first = tmp_path / "parts" / "activations" / "some"
    process = subprocess.Popen([*command, str(tmp_path / "parts")], env=environment, stderr=subprocess.DEVNULL)
    while not list(first.glob("shard-00001-*")) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = len(list(first.glob("shard-*")))
    subprocess.run([*command, str(tmp_path / "parts")], env=environment, capture_output=True, check=True)
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in (tmp_path / "whole" / "activations" / "some").iterdir())
    assert before < len(names) - 3, "it was killed in the middle"
    for name in names:
        assert (first / name).read_bytes() == (tmp_path / "whole" / "activations" / "some" / name).read_bytes()


def test_what_cannot_be_collected(book: str, tmp_path: Path, kept: tuple[Store, Collection]) -> None:
    store, _ = kept

    def refuse(words: str, **changes: object) -> None:
        with pytest.raises(UserError, match=words):
            collect(small(book, **changes), store)

    refuse("too deep", layer=9)
    refuse("takes up to", context_size=4096)
    refuse("holds other activations", name="some", layer=3)
    changed = tmp_path / "mine.txt"
    changed.write_text(Path(book).read_text())
    collect(small(book, text=str(changed), tokens=200, name="mine"), store)
    changed.write_text(Path(book).read_text() + "more")
    with pytest.raises(UserError, match="other activations"):
        collect(small(book, text=str(changed), tokens=200, name="mine"), store)
    refuse("name: expected at most 64 letters", name="../out")
    refuse("a text file that exists, got", text=str(tmp_path / "missing.txt"), name="other")
    refuse("tokens in .* got", tokens=10_000_000, name="other")
    refuse("nowhere", model="nowhere", name="other")
    with pytest.raises(UserError, match="some"):
        Collection.open(store, "nowhere")
    collect(small(book, tokens=1000, name="gap"), store)
    (list_of_parts,) = (store.root / "activations" / "gap").glob("parts.json")
    list_of_parts.unlink()
    with pytest.raises(UserError, match="expected a complete collection"):
        Collection.open(store, "gap")


@pytest.mark.parametrize("change", ["width", "dtype", "sequences"])
def test_a_shard_not_as_its_collection_says(kept: tuple[Store, Collection], tmp_path: Path, change: str) -> None:
    """Well sealed, by somebody else."""
    folder = tmp_path / "collection"
    shutil.copytree(kept[1].path, folder)
    data = DataFolder(folder)
    shard = data.read("shard-00000")["activations"]
    for path in (folder / PARTS, folder / data.files["shard-00000"]):
        path.unlink()
    other = {"width": shard[..., :-1], "dtype": shard.float(), "sequences": shard[:-1]}[change]
    data.write("shard-00000", {"activations": other})
    DataFolder(folder).finish()
    with pytest.raises(UserError, match="shapes"):
        Collection.at(folder).activations(torch.tensor([[0, 1]]))


def test_the_command_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["features"]) == 0
    assert "collect" in capsys.readouterr().out


def test_states_of_a_run_of_the_arena(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--store", str(tmp_path)]
    arena = ["arena", "train", "--task", "k_back_recall", "--encoding", "learned", "--d-model", "16", "--layers", "2"]
    assert run([*arena, "--steps", "3", "--train-length", "12", "--threads", "1", "--json", *where]) == 0
    trained = json.loads(capsys.readouterr().out)["id"]
    asked = [
        "features",
        "collect",
        "--model",
        f"run:{trained[:6]}",
        "--layer",
        "2",
        "--tokens",
        "700",
        "--json",
        *where,
    ]
    assert run(asked) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["d_in"], facts["context_size"]) == (16, 12)
    assert facts["activations"] >= 700
    found = Collection.open(Store(tmp_path), facts["name"])
    assert found.flags.tolist() == [FIRST] + [CONTENT] * 11
    model = load_run_config(Store(tmp_path).folder(trained).config_document()).build_model("cpu").eval()  # type: ignore[attr-defined]
    model.load_state_dict(weights_of(Store(tmp_path).folder(trained)))
    with torch.no_grad(), capture(model, "blocks.1") as cache:
        model(found.tokens[:4].long(), torch.arange(12)[None])
    places = torch.cartesian_prod(torch.arange(4), torch.arange(12))
    torch.testing.assert_close(
        found.activations(places).view(4, 12, 16), cache.hidden["blocks.1"], atol=0.03, rtol=0.01
    )
    assert run([*asked[:4], "--layer", "3", *where]) == 2


def test_a_task_may_be_longer_than_what_it_was_trained_at(
    tiny: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The task `copy` appends the answer to the sequence."""
    run_config, store = tiny(task="copy", training={"steps": 1}), Store(tmp_path)
    execute(run_config, store)
    length = run_config.task.build().sample(torch.Generator(), 1, run_config.train_length).inputs.shape[1]
    assert length > run_config.train_length
    words = ["features", "collect", "--model", f"run:{run_config.id}", "--layer", "1", "--tokens", "500", "--json"]
    assert run([*words, "--store", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["context_size"] == length
    assert found["activations"] >= 500
    assert len(Collection.open(store, found["name"]).flags) == length


def test_states_of_any_module(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 3))
    ids = torch.randint(50, (30, 10))
    store = Store(tmp_path)
    store.prepare()
    found = collect_from(of_module(model, "1", ids, d_in=8), store, "mine", {"seed": 0})
    assert (len(found.sequences("train")), len(found.sequences("held out"))) == (27, 3)
    places = torch.cartesian_prod(torch.arange(30), torch.arange(10))
    with torch.no_grad():
        torch.testing.assert_close(found.activations(places).view(30, 10, 8), model[:2](ids), atol=0.03, rtol=0.01)
    with pytest.raises(UserError, match="layer"):
        of_module(model, "7", ids, d_in=8)
