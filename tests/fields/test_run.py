"""Data, training and evaluation, on small things."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from whence.errors import UserError
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.experiments.results import evaluations_of, read_results
from whence.fields.data import DATA
from whence.fields.decode import decode
from whence.fields.images import write
from whence.fields.metrics import FieldsMetrics
from whence.fields.run import FieldsRun, diversity, load_model
from whence.fields.signals import SPLITS
from whence.random import generator
from whence.store.records import RunStatus
from whence.store.runs import Store

TINY: dict[str, Any] = {
    "data": "photos:size=16,factor=2",
    "model": {"d_model": 16, "layers": 1, "lps": 16, "render_width": 4, "render_layers": 1},
    "training": {"steps": 6, "batch_size": 2, "pixels": 32, "evaluations": 2, "crops": 4, "warmup": 2},
}


def test_photographs_are_held_out_whole() -> None:
    data = DATA.choose("photos").build()
    files = {split: {path.name for path in data.files(split)} for split in SPLITS}
    assert (
        not files["train"] & files["test"] | files["train"] & files["validation"] | files["validation"] & files["test"]
    )
    drawn = data.draw(generator(0), 5, "train")
    assert drawn.shape == (5, 3, 128, 128)
    assert 0 <= float(drawn.min()) < float(drawn.max()) <= 1
    assert torch.equal(drawn, data.draw(generator(0), 5, "train"))
    assert not torch.equal(drawn, data.draw(generator(1), 5, "train"))


def test_a_crop_is_a_piece_of_its_picture() -> None:
    from whence.fields.images import read

    data = DATA.choose("photos:size=32,factor=1").build()
    pictures = [read(path) for path in data.files("test")]
    crops = data.draw(generator(0), 40, "test")
    found = 0
    for crop in crops:
        for picture in pictures:
            windows = picture.unfold(1, 32, 1).unfold(2, 32, 1)
            corner = (windows[..., 0, 0] - crop[:, 0, 0][:, None, None]).abs().amax(0) < 2e-3
            for row, column in corner.nonzero().tolist()[:300]:
                found += bool((windows[:, row, column] - crop).abs().max() < 5e-3)
    assert found >= 1, "at full size some crops are exact pieces; smaller versions are averages"


def test_what_the_model_is_shown_is_an_average() -> None:
    data = DATA.choose("photos").build()
    signals = data.draw(generator(0), 2, "train")
    expected = torch.nn.functional.avg_pool2d(signals, 4)
    torch.testing.assert_close(data.at(signals, (32, 32)), expected)


def folder_of(path: Path, count: int, side: int = 40) -> Path:
    path.mkdir(exist_ok=True)
    for index in range(count):
        write(path / f"p{index}.png", torch.rand(3, side, side, generator=torch.Generator().manual_seed(index)))
    return path


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    run = FieldsRun.read({"data": str(folder_of(tmp_path / "mine", 7)), "training": {"steps": 3}})
    assert run.data.name == "folder"
    data = DATA.choose(f"folder:path={tmp_path / 'mine'},size=16,factor=2").build()
    names = {split: [path.name for path in data.files(split)] for split in SPLITS}
    assert sorted(itertools.chain(*names.values())) == [f"p{i}.png" for i in range(7)]
    assert len(names["train"]) >= 4
    assert data.draw(generator(0), 3, "test").shape == (3, 3, 32, 32)


@pytest.mark.parametrize(("count", "side", "words"), [(2, 40, "3 or more"), (4, 20, "32×32 pixels or more")])
def test_folders_that_cannot_be_used(tmp_path: Path, count: int, side: int, words: str) -> None:
    path = folder_of(tmp_path / "mine", count, side)
    with pytest.raises(UserError, match=words):
        DATA.choose(f"folder:path={path},size=16,factor=2").build().draw(generator(0), 1, "train")


def trained(tmp_path: Path, **changes: Any) -> tuple[FieldsRun, Store, RunStatus]:
    run = FieldsRun.read({**TINY, **changes})
    run.check()
    store = Store(tmp_path)
    store.prepare()
    return run, store, execute(run, store, ExecutionOptions(threads=1, device="cpu"))


def test_a_run_from_spec_to_picture(tmp_path: Path) -> None:
    run, store, status = trained(tmp_path)
    assert status.state == "finished"
    one, two = FieldsMetrics.model_validate(status.latest).test.scales
    assert (one.scale, two.scale) == (1, 2)
    assert set(two.methods) == {"field", "render", "linear", "bicubic", "kernel"}
    assert two.methods["kernel"].psnr > two.methods["linear"].psnr
    model, again = load_model(store, run.id[:6])
    assert again == run
    assert again.training.pixels == 32, "what only fields have is kept, and part of a run's id"
    assert FieldsRun.read({**TINY, "training": {**TINY["training"], "pixels": 33}}).id != run.id
    job = run.job()
    x = job.data.at(job.data.draw(generator("x"), 3, "test"), (16, 16))
    with torch.no_grad():
        assert decode(model, x, (40, 24), "render").shape == (3, 3, 40, 24)


def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    run, store, whole = trained(tmp_path / "whole")
    other = Store(tmp_path / "parts")
    other.prepare()
    calls = iter([False, False, False, True])
    stopped = execute(run, other, ExecutionOptions(threads=1, device="cpu"), should_stop=lambda: next(calls))
    assert stopped.state == "interrupted"
    finished = execute(run, other, ExecutionOptions(threads=1, device="cpu"))
    assert finished.latest == whole.latest
    one, two = (load_model(s, run.id)[0].state_dict() for s in (store, other))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(("data", "patch"), [("digits", 2), ("digits:size=4", 2), ("volume:size=8,factor=2", 4)])
def test_other_signals(tmp_path: Path, data: str, patch: int) -> None:
    """Grey pictures too small for ssim, and volumes, where no kernel is fitted."""
    _, _, status = trained(tmp_path, data=data, model={**TINY["model"], "patch": patch, "lps": 4})
    assert status.state == "finished"
    scales = FieldsMetrics.model_validate(status.latest).test.scales
    assert (scales[0].field.ssim is None) == (data.startswith("digits") or "size=8" in data)
    if data.startswith("volume"):
        assert scales[1].scale == 2
        assert set(scales[1].methods) == {"field", "render", "linear", "bicubic"}


def test_splits_of_digits_do_not_meet() -> None:
    data = DATA.choose("digits").build()
    seen = [{tuple(row.flatten().tolist()) for row in data.draw(generator(0), 600, split)} for split in SPLITS]
    shared = len(seen[0] & seen[2]) / len(seen[2])
    assert shared < 0.05, "only digits that were written twice alike"


def test_adamw_instead_of_muon(tmp_path: Path) -> None:
    _, _, status = trained(tmp_path, training={**TINY["training"], "optimizer": "adamw"})
    assert status.state == "finished"


def test_training_learns(tmp_path: Path) -> None:
    run, store, _ = trained(tmp_path, training={**TINY["training"], "steps": 60, "batch_size": 8, "pixels": 128})
    (result,) = read_results([run], store)
    curve = [evaluation.metrics.test.scales[0].field.psnr for evaluation in evaluations_of(result)]
    assert curve[-1] > curve[0] + 5


def test_diversity_by_hand() -> None:
    model = FieldsRun.read(TINY).build_model("cpu")
    with torch.no_grad():
        encoded = model.encode(torch.rand(2, 3, 16, 16))
    computed = diversity(encoded)
    for name, lps in (("raw", encoded.lps), ("centred", encoded.lps - encoded.lps.mean(1, keepdim=True))):
        cosines = []
        for row in lps.detach().numpy():
            for i in range(len(row)):
                for j in range(i):
                    cosines.append(row[i] @ row[j] / np.linalg.norm(row[i]) / np.linalg.norm(row[j]))
        assert getattr(computed, name) == pytest.approx(1 - np.mean(cosines), abs=1e-5)
