"""`whence fields …`, as typed."""

from __future__ import annotations

import io
import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.cli.test_bad_input import refused
from tests.fields.test_instrument import made_up_metrics
from tests.fields.test_run import trained
from whence import stats
from whence.cli.main import run
from whence.experiments import tabulate
from whence.experiments.results import RunResult
from whence.fields import instrument
from whence.fields.config import FieldsConfig
from whence.fields.data import DATA
from whence.fields.hyponets import HYPONETS
from whence.fields.images import read, write
from whence.fields.instrument import FIELDS
from whence.inputs import file_digest
from whence.store.artifacts import artifact_paths
from whence.store.runs import Store

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    where = tmp_path_factory.mktemp("store")
    spec, _, _ = trained(where)
    return spec.id, where


SMALL = ["--data", "photos:size=16,factor=2", "--d-model", "16", "--layers", "1", "--lps", "16", "--render-width", "4"]
SMALL += ["--batch-size", "2", "--pixels", "32", "--evaluations", "1", "--crops", "4"]


@pytest.mark.usefixtures("in_process")
def test_train_and_render(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", str(tmp_path / "runs")]
    assert run(["fields", "train", *SMALL, "--steps", "4", *store]) == 0
    printed = capsys.readouterr().out
    assert "PSNR (dB) on held-out signals" in printed
    assert "with those of another signal" in printed
    run_id = next(line for line in printed.splitlines() if "finished" in line).split()[0]
    write(tmp_path / "in.png", torch.rand(3, 20, 30))
    out = tmp_path / "out.png"
    for output in ("field", "render"):
        arguments = ["--input", str(tmp_path / "in.png"), "--size", "45", "--output", output, "--out", str(out), *store]
        assert run(["fields", "render", run_id[:5], *arguments, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["request"]["width"], document["request"]["height"]) == (45, 30)
        assert read(out).shape == (3, 30, 45)
        written = out.stat().st_mtime_ns
        assert run(["fields", "render", run_id, *arguments, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["checksum"] == document["checksum"]
        assert out.stat().st_mtime_ns == written, "it is there already"
        out.write_bytes(b"something else")
        assert run(["fields", "render", run_id, *arguments]) == 0
        assert "30x20 → 45x30" in capsys.readouterr().out
        assert file_digest(out, "out") == document["checksum"]
    capsys.readouterr()
    measured = {path.name for path in artifact_paths(Store(tmp_path / "runs"))}
    assert {name.split("-")[0] for name in measured} == {"field_cost", "encoder_cost", "field_rendering"}
    assert run(["fields", "show", run_id[:5], *store]) == 0
    shown = capsys.readouterr().out
    table = "PSNR (dB) on held-out signals"
    assert shown.split(table)[1].split("\nreport")[0] == printed.split(table)[1].split("\nreport")[0]
    report = next(line for line in shown.splitlines() if line.startswith("report")).split()[1]
    assert "bimamba is faster" in (page := Path(report).read_text()) or "Transformer is faster" in page
    assert {path.name for path in artifact_paths(Store(tmp_path / "runs"))} == measured, "shown, not measured"
    assert run(["runs", "verify", *store]) == 0


@pytest.mark.usefixtures("in_process")
def test_minutes_become_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", str(tmp_path / "runs")]
    assert run(["fields", "train", *SMALL, "--minutes", "0.02", *store, "--print-config"]) == 0
    steps = json.loads(capsys.readouterr().out)["training"]["steps"]
    assert 1 <= steps < 200
    for _ in range(2):
        assert run(["fields", "train", *SMALL, "--minutes", "0.02", *store, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["steps"] == steps
    assert len(Store(tmp_path / "runs").ids()) == 1, "the same minutes mean the same run"
    assert run(["runs", "verify", *store]) == 0


def test_the_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fields"]) == 0
    shown = capsys.readouterr().out
    assert "train" in shown
    assert "render" in shown


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["fields", "paint"], ["verb", "render"]),
        (["fields", "train", "--data", "nowhere"], ["data", "photos"]),
        (["fields", "train", "--patch", "5"], ["patch", "does not divide"]),
        (["fields", "train", "--minutes", "0"], ["minutes"]),
        (["fields", "train", "--hyponet", "cnn"], ["hyponet", "siren"]),
        (["fields", "render"], ["run"]),
        (["fields", "render", "abc", "--size", "10"], ["input"]),
    ],
)
def test_mistakes(arguments: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(arguments, capsys)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"--size": "9000"}, ["size", "8192"]),
        ({"--size": "0x3"}, ["size"]),
        ({"--out": "out.xyz"}, ["out", ".png"]),
        ({"--out": "no/such/out.png"}, ["out", "directory"]),
        ({"--input": "missing.png"}, ["input", "missing.png"]),
    ],
)
def test_renderings_that_cannot_be(
    stored: tuple[str, Path],
    tmp_path: Path,
    changes: dict[str, str],
    parts: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in.png", torch.rand(3, 20, 30))
    chosen = {"--input": "in.png", "--size": "40", "--out": "out.png", "--store": str(stored[1]), **changes}
    message = refused(["fields", "render", stored[0], *(word for pair in chosen.items() for word in pair)], capsys)
    assert all(part in message for part in parts), message
    assert not (tmp_path / "out.png").exists()


def _kinds(folder: Path) -> dict[str, bool]:
    """Picture files of every kind, and whether they can be rendered."""
    colours = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    colour = Image.fromarray(colours)
    turned = Image.Exif()
    turned[0x0112] = 6
    colour.convert("L").save(folder / "grey.png")
    colour.convert("RGBA").save(folder / "alpha.png")
    colour.quantize(8).save(folder / "palette.gif")
    Image.fromarray(colours[..., 0].astype(np.uint16) * 257).save(folder / "deep.png")
    colour.save(folder / "turned.jpg", exif=turned)
    colour.convert("CMYK").save(folder / "print.tif")
    Image.new("1", (1, 1)).save(folder / "dot.png")
    whole = io.BytesIO()
    colour.save(whole, "PNG")
    (folder / "short.png").write_bytes(whole.getvalue()[:200])
    (folder / "text.png").write_text("no picture")
    (folder / "empty.png").write_bytes(b"")
    (folder / "folder.png").mkdir()
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    (folder / "bomb.png").write_bytes(whole.getvalue()[:8] + chunk + whole.getvalue()[33:])
    fine = ("grey.png", "alpha.png", "palette.gif", "deep.png", "turned.jpg", "print.tif", "dot.png")
    broken = ("short.png", "text.png", "empty.png", "folder.png", "bomb.png", "missing.png")
    return dict.fromkeys(fine, True) | dict.fromkeys(broken, False)


def test_pictures_of_every_kind(
    stored: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, fine in _kinds(tmp_path).items():
        command = ["fields", "render", stored[0], "--input", name, "--size", "24", "--out", "out.png"]
        if fine:
            assert run([*command, "--store", str(stored[1])]) == 0, name
            assert max(read("out.png").shape) == 24
            assert (read("out.png").shape[1] > 16) == (name in ("turned.jpg", "dot.png")), "upright"
            Path("out.png").unlink()
            capsys.readouterr()
        else:
            assert name in refused([*command, "--store", str(stored[1])], capsys)
            assert not Path("out.png").exists()


def test_the_documents_are_true(stored: tuple[str, Path], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHENCE_STORE", str(stored[1]))
    docs = Path(__file__).parents[2] / "docs"
    code = (docs / "howto" / "enlarge-your-pictures.md").read_text().split("```python\n")[2].split("```")[0]
    (training,) = [line for line in code.split("\n") if "fields.train" in line]
    write("cat.png", torch.rand(3, 9, 9))
    code = code.replace(training, f"run = {stored[0]!r}").replace("pictures/1.png", "cat.png").replace("1800", "40")
    exec(code, {})
    assert read("large.png").shape == (3, 40, 40)
    text = (docs / "fields.md").read_text()
    named = {*DATA.names()} - {"folder", "arrays"}  # these by what a user types
    assert all(f"| `{name}`" in text for name in named)
    assert all(name in text for name in HYPONETS.names())


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_comparisons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", str(tmp_path / "runs")]
    small = SMALL[: SMALL.index("--render-width")] + SMALL[SMALL.index("--render-width") + 2 :]
    for axis in ("encoder", "hyponet"):
        assert run(["fields", "compare", "--axis", axis, "--seeds", "2", *small, "--steps", "2", *store, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        rows = document["tables"][0]["rows"]
        sizes = [int(row["cells"]["parameters"]["text"].replace(",", "")) for row in rows]
        assert all(len(row["cells"]["psnr_x1"]["per_seed"]) == 2 for row in rows)
        assert all(float(row["cells"]["encode"]["text"]) > 0 for row in rows)
        assert all(float(row["cells"][cost]["text"]) >= 0 for row in rows for cost in ("decode", "memory"))
        if axis == "encoder":
            assert max(sizes) < 1.02 * min(sizes), "matched in size"
    assert run(document["command"].split()[1:]) == 0
    assert "exploratory: 2 paired seeds" in capsys.readouterr().out
    page = Path(document["report"]).read_text()
    assert "PSNR by variant" in page
    assert all(row["name"] in page for row in rows)


def test_variants_are_compared_with_the_first_variant(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    config = FieldsConfig.read({"axis": "hyponet", "data": "photos:size=16,factor=2", "seeds": 7})
    (plan,) = FIELDS.plan(config, store)
    runs = list(plan.variants.values())
    base = [30.0, 30.5, 29.8, 30.2, 30.1, 30.4, 30.3]
    made_up = {"a": base, "b": [v + 1 for v in base], "c": [v + 0.01 for v in base]}

    def metrics(value: float) -> dict[str, Any]:
        return made_up_metrics(test={1: value}, validation={1: value}).model_dump(mode="json")

    results = {
        run.id: RunResult(run, "finished", metrics=metrics(value))
        for values, of in zip(made_up.values(), runs, strict=False)
        for run, value in zip(of, values, strict=True)
    }
    monkeypatch.setattr(tabulate, "read_results", lambda runs, store, ends: [results[run.id] for run in runs])
    variants = dict(zip(made_up, runs, strict=False))
    planned = replace(plan, variants=variants, pairs=stats.against("a", variants), on="these held-out signals")
    (found,) = tabulate.tabulate(FIELDS, [planned], store)
    told = "\n".join(found.findings)
    assert (
        "b beats a at ×1 on these held-out signals by 1.00 dB [1.00, 1.00] (better in 7 of 7 seeds, p = .031)." in told
    )
    assert "c and a are tied at ×1 on these held-out signals (difference 0.01 dB" in told
    assert "2 comparisons in one table" in found.heading


def test_analyze(stored: tuple[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    store = ["--store", str(stored[1])]
    assert run(["fields", "analyze", stored[0], *store, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["pruning"]["contribution"]) == 16
    assert document["jitter"]["0.0"] == pytest.approx(document["own"], abs=1e-3)
    assert document["query_offset"]["0.0"] == pytest.approx(document["own"], abs=1e-3)
    assert len(document["neighbours"]) == 16
    page = Path(document["report"]).read_text()
    assert "<script" in page
    assert "http://" not in page.split("<script")[0]
    monkeypatch.setattr(instrument, "analyze", None)  # what is stored is not measured again
    assert run(["fields", "analyze", stored[0], *store, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert {**again, "report": "", "command": ""} == {**document, "report": "", "command": ""}
    assert run(["fields", "analyze", stored[0][:6], *store]) == 0
    assert "position tokens" in capsys.readouterr().out
    assert run(["runs", "verify", *store]) == 0
