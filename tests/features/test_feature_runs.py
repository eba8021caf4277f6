"""Every preset trains; a run that was killed ends as if it had not been; comparisons are what they say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.calls import document, output
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.features.config import FeaturesConfig
from whence.features.data import Synthetic
from whence.features.instrument import planned_runs
from whence.features.run import PRESETS, FeaturesRun, load_autoencoder
from whence.features.sae.centering import CENTERINGS
from whence.features.sae.encoders import ENCODERS
from whence.features.sae.inits import INITS
from whence.features.sae.masks import MASKS
from whence.features.sae.norms import NORMS
from whence.features.sae.schedules import SCHEDULES
from whence.features.sae.sparsity import SPARSITY
from whence.random import generator
from whence.store.runs import Store

SMALL = {"data": "synthetic:features=24,d_in=16,context_size=8", "d_sae": 64}


def test_planted_states_are_what_they_say() -> None:
    for regime, inside in (("rare", 0.04), ("equal", 0.16)):
        data = Synthetic(regime=regime, noise=0.0)
        activations, positions = data.draw(generator("x"), 200_000)
        # 64 numbers cannot hold 192 features, so rates are looked at before they are added up
        drawn = generator("x")
        torch.randint(32, (200_000,), generator=drawn)
        active = torch.rand(200_000, 192, generator=drawn) < data.rates[positions]
        strength = 0.5 + torch.rand(200_000, 192, generator=drawn)
        torch.testing.assert_close(activations, (active * strength) @ data.directions)
        free, position_specific = active[:, :96].float().mean(), active[:, 96:].float().mean()
        assert free == pytest.approx(0.04, rel=0.02)
        assert position_specific == pytest.approx(inside / 4, rel=0.02)
        window = positions * 4 // 32
        for w in range(4):
            outside = active[window != w][:, 96 + torch.arange(w, 96, 4)]
            assert not outside.any()
        assert data.shape.default_l0 == round(96 * 0.04 + 96 * inside / 4)
    free, position_specific = Synthetic().truth().values()
    assert len(free) == len(position_specific) == 96


def test_there_are_the_twenty_runs_and_four_baselines() -> None:
    names = PRESETS.names()
    for source in ("001", "002"):
        assert [name[:9] for name in names if name.startswith(source)] == [f"{source}_run{n:02d}" for n in range(1, 11)]
    assert {"plain_l1", "plain_topk", "static_slice", "position_mean_topk"} < set(names)
    assert {name for name in names if name.startswith("whence")} == {"whence_corrected", "whence_corrected_control"}
    assert len(names) == 26
    assert all(PRESETS.about(name) for name in names)


@pytest.mark.parametrize("name", PRESETS.names())
def test_every_preset_trains(name: str, tmp_path: Path) -> None:
    """As it is, to the end; and with a top-k, whose price is not steered, it leaves less and less unexplained."""
    store = Store(tmp_path)
    store.prepare()
    for sparsity, steps in (("own", 40), ("topk", 120)):
        training = {"steps": steps, "batch_size": 256, "lr": 2e-2, "evaluations": 1}
        asked = {"presets": [name], "seeds": 1, "training": training, "sparsity": sparsity, **SMALL}
        (run,) = planned_runs(FeaturesConfig.read(asked))[name]
        status = execute(run, store, ExecutionOptions(threads=1, device="cpu"))
        assert status.state == "finished"
        first, last = (record.metrics for record in store.folder(run.id).evaluations())
        assert last["l0"] > 0
    assert last["fvu"] < first["fvu"]


def test_presets_of_a_comparison_are_at_the_same_number_of_active_features() -> None:
    plan = planned_runs(FeaturesConfig.read({"seeds": 2, "l0": 7, **SMALL}))
    for name, runs in plan.items():
        assert [run.seed for run in runs] == [0, 1]
        sparsity = runs[0].model.sparsity.options()
        assert sparsity.get("k", sparsity.get("l0")) == 7, name
    with_k = planned_runs(FeaturesConfig.read({"sparsity": "topk", **SMALL}))
    assert {str(runs[0].model.sparsity.name) for runs in with_k.values()} == {"topk"}
    assert plan["001_run02_soft_mask"][0].id == plan["001_run03_more_sparsity"][0].id, (
        "they differ in the penalty alone"
    )


def test_controls_know_no_positions_or_have_as_many_parameters() -> None:
    wanted = ["002_run07_range_encoders", "001_run01_hard_mask", "plain_topk"]
    plan = planned_runs(FeaturesConfig.read({"presets": wanted, "controls": True, "seeds": 1, **SMALL}))
    larger = "002_run07_range_encoders, plain of the same size"
    assert plan[larger][0].training == plan["002_run07_range_encoders"][0].training
    assert set(plan) == {
        *wanted,
        larger,
        "002_run07_range_encoders, position ablated",
        "001_run01_hard_mask, position ablated",
    }
    assert plan["001_run01_hard_mask, position ablated"][0].model.position_ablated
    assert plan[larger][0].parameters() == pytest.approx(plan["002_run07_range_encoders"][0].parameters(), rel=0.02)


def tiny(store: Path) -> list[str]:
    made = ["--preset", "001_run02_soft_mask", "--sparsity", "l1:l0=3", "--d-sae", "64", "--data", SMALL["data"]]  # type: ignore[list-item]
    return [
        "features",
        "train",
        *made,
        "--steps",
        "150",
        "--batch-size",
        "256",
        "--threads",
        "1",
        "--store",
        str(store),
    ]


@pytest.mark.slow
def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGKILL in the middle; weights and metrics are then equal bit by bit."""
    whole = document(tiny(tmp_path / "whole"), capsys)
    command = [sys.executable, "-m", "whence", *tiny(tmp_path / "parts"), "--checkpoint-interval", "0"]
    process = subprocess.Popen(command, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = tmp_path / "parts" / "runs" / whole["id"]
    while not list(folder.glob("checkpoint-*")) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL, "killed in the middle"
    again = document(tiny(tmp_path / "parts"), capsys)
    assert again["latest"] == whole["latest"]
    one, two = (load_autoencoder(Store(tmp_path / name), whole["id"])[0].state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_comparison_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["--presets", "plain_topk", "position_mean_topk", "static_slice", "--seeds", "2", "--steps", "20"]
    where = ["--data", str(SMALL["data"]), "--d-sae", "64", "--store", str(tmp_path), "--workers", "1"]
    found: Any = document(["features", "compare", *wanted, *where], capsys)
    (table,) = found["tables"]
    assert [row["name"] for row in table["rows"]] == ["plain_topk", "position_mean_topk", "static_slice"]
    for row in table["rows"]:
        fvu = row["cells"]["fvu"]
        assert list(fvu["per_seed"]) == ["0", "1"]
        assert 0 < fvu["mean"] < 1
        assert fvu["mean"] == pytest.approx(sum(fvu["per_seed"].values()) / 2)
        assert -1 <= float(row["cells"]["stability"]["text"]) <= 1
    assert "exploratory" in table["heading"]
    assert {name for c in table["comparisons"] for name in (c["a"], c["b"])} <= {row["name"] for row in table["rows"]}
    told = output(["features", "compare", *wanted, *where], capsys)
    assert "static_slice" in told
    assert "exploratory" in told
    assert f"command  {found['command']}" in told.splitlines()
    assert found["command"].startswith("whence features compare --config ")
    page = Path(found["report"]).read_text()
    assert all(run in page for run in found["runs"])


def test_presets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "sigma = context / 8" in output(["features", "presets", "002_run02_gaussian_mask"], capsys)
    assert len(document(["features", "presets"], capsys)) == 26
    output(["features", "presets", "no_such"], capsys, code=2)


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--activations", "nothing"],
        ["train", "--data", "stored:path=nowhere"],
        ["train", "--mask", "hrd"],
        ["train", "--preset", "001_run99"],
        ["compare", "--presets", "plain"],
        ["compare", "--sparsity", "none"],
        ["compare", "--sparsity", "topk:bad=5"],
        ["compare", "--presets", "all", "typo"],
        ["train", "--mask", "gaussian:sigma=0"],
        ["train", "--data", "synthetic:windows=99"],
        ["train", "--encoder", "grouped", "--d-sae", "3"],
    ],
    ids=str,
)
def test_what_cannot_be_trained(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output(["features", *arguments, "--store", str(tmp_path)], capsys, code=2)


@pytest.mark.parametrize("part", ["centering", "encoder", "norm", "mask", "sparsity", "position_schedule", "init"])
def test_every_choice_can_be_run(part: str) -> None:
    """Checked as the command line checks it: without memory for weights."""
    registries = {"position_schedule": SCHEDULES, "sparsity": SPARSITY, "norm": NORMS, "mask": MASKS, "init": INITS}
    registry = {**registries, "centering": CENTERINGS, "encoder": ENCODERS}[part]
    for name in registry.names():
        assert FeaturesRun.read({"data": SMALL["data"], "model": {"d_sae": 64, part: name}}).check() > 0


@pytest.mark.parametrize("sparsity", SPARSITY.names())
def test_the_number_of_active_features_is_the_one_asked_for(sparsity: str, tmp_path: Path) -> None:
    training = {"steps": 400, "batch_size": 256, "lr": 8e-3, "evaluations": 1}
    asked = {"presets": ["plain_topk"], "seeds": 1, "training": training, "sparsity": sparsity, "l0": 4, **SMALL}
    (run,) = planned_runs(FeaturesConfig.read(asked))["plain_topk"]
    store = Store(tmp_path)
    store.prepare()
    found = execute(run, store, ExecutionOptions(threads=1, device="cpu")).latest
    # a top-k has it; what is steered comes near it
    assert found["l0"] == pytest.approx(4, rel=0.15 if "topk" in sparsity else 0.5)


def test_runs_are_read_back(tmp_path: Path) -> None:
    run = FeaturesRun.read({"data": SMALL["data"], "model": {"d_sae": 64, "mask": "gaussian", "losses": ["info_nce"]}})
    assert FeaturesRun.read(json.loads(json.dumps(run.model_dump(mode="json")))) == run
