"""The README tells the truth: its Python runs, and what it lists is there."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
import torch
import transformers

from whence.cli.main import COMMANDS, INSTRUMENTS
from whence.encodings import ENCODINGS
from whence.encodings.transforms import TRANSFORMS
from whence.mixers import MIXERS
from whence.models.sequence import ModelConfig
from whence.tasks import TASKS

PROJECT = Path(__file__).parents[1]
README = (PROJECT / "README.md").read_text()


def test_its_tables_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make publish` would change nothing, and the results hold what is needed to check them."""
    monkeypatch.syspath_prepend(str(PROJECT / "bench"))
    publish = importlib.import_module("publish")
    assert publish.written(README) == README
    assert "<!-- results: encodings -->" in README
    for path in (publish.FIXED, publish.TUNED):
        results = json.loads(path.read_text())
        assert {"torch", "whence", "python", "format"} <= set(results["versions"])
        assert results["config"]["seeds"] >= 10
        for table in results["tables"]:
            assert all(len(row["cells"]["id"]["per_seed"]) == len(row["runs"]) >= 10 for row in table["rows"])
            assert table["heading"]
            assert table["design"] == "fixed"


def test_its_python_runs(here: Path) -> None:
    model = ModelConfig(d_model=16, heads=2).build(5, 5)
    tokens, positions = torch.randint(5, (2, 7)), torch.arange(7)[None]
    q, k = torch.randn(2, 2, 4, 7, 64)
    names = {"q": q, "k": k, "positions": positions, "any_model": lambda: model(tokens, positions)}
    names |= {"u": torch.randn(1, 5, 8), "delta": torch.rand(1, 5, 8), "A": -torch.rand(8, 3)}
    names |= {"B": torch.randn(1, 5, 3), "C": torch.randn(1, 5, 3)}
    config = transformers.MambaConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, pad_token_id=0)
    transformers.MambaForCausalLM(config).save_pretrained(here / "mamba")
    names |= {"masked_model": torch.nn.Linear(3, 3), "batch": torch.randn(8, 16, 3)}
    code = README.split("```python\n")[1].split("```")[0]
    code = code.replace("any_model(batch)", "any_model()").replace("capture(any_model)", "capture(model)")
    code = code.replace("mamba-130m-hf", "mamba")
    small = 'seeds=1, training={"steps": 1}, model={"d_model": 8}, lengths={"train_length": 8}'
    assert 'seeds=7, training={"steps": 600}' in code
    code = code.replace('seeds=7, training={"steps": 600}', small)
    scope = {**names, "model": model}
    exec(code, scope)
    assert [row.name for row in scope["result"].tables[0].rows] == ["rope", "alibi"]
    assert scope["result"].report.is_file()
    assert scope["cache"].attention["blocks.0.mixer"].shape == (2, 2, 7, 7)
    assert scope["q"].shape == q.shape
    assert not torch.equal(scope["q"], q)
    assert scope["y"].shape == (1, 5, 8)
    assert scope["mamba"](tokens).shape == (2, 7, 9)


def test_it_lists_what_is_there() -> None:
    encodings = re.search(r"one file per encoding: (.*)", README)
    transforms = re.search(r"before the encoding sees them: (.*)", README)
    tasks = re.search(r"one file per task: (.*)", README)
    mixers = re.search(r"one file per mixer: (.*)", README)
    assert encodings
    assert mixers
    assert transforms
    assert tasks
    assert sorted(encodings[1].split()) == sorted(ENCODINGS.names())
    assert sorted(transforms[1].split()) == sorted(TRANSFORMS.names())
    assert sorted(mixers[1].split()) == sorted(MIXERS.names())
    assert sorted(tasks[1].split()) == sorted(TASKS.names())
    assert f"{len(ENCODINGS)} encodings, {len(TRANSFORMS)} transforms" in README
    for verb in INSTRUMENTS | COMMANDS:
        assert f"whence {verb}" in README


def test_every_folder_and_target_it_names_exists() -> None:
    for folder in re.findall(r"^  (\w+)/ ", README.split("src/whence/\n")[1], re.MULTILINE):
        assert (PROJECT / "src" / "whence" / folder).is_dir(), folder
    makefile = (PROJECT / "Makefile").read_text()
    for target in set(re.findall(r"`?make ([a-z-]+)", README)):
        assert f"\n{target}:" in makefile, target
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert (PROJECT / link).exists(), link
