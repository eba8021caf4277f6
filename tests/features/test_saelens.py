"""Autoencoders in SAELens' format, written and read. bench/interop.py does the same with SAELens itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.calls import document, output
from tests.features.stored import store_collection
from whence.errors import UserError
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.features.evals.measures import dictionary_metrics
from whence.features.run import FeaturesRun, load_autoencoder
from whence.features.sae.autoencoder import Autoencoder
from whence.features.sae.saelens import ANY, CONFIG, WEIGHTS, export, imported
from whence.models.init import initialise
from whence.store.runs import Store

WIDTH, SIZE, CONTEXT = 16, 64, 8
DATA = f"synthetic:d_in={WIDTH},features=24,context_size={CONTEXT}"
ADMISSIBLE = ["topk:k=5", "topk:k=99", "l1", "jumprelu", "batch_topk:k=5"]


def activations(n: int = 300, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Far from 0, as those of language models are."""
    drawn = torch.Generator().manual_seed(seed)
    positions = torch.randint(CONTEXT, (n,), generator=drawn)
    return 20 + 3 * torch.randn(n, WIDTH, generator=drawn) + positions[:, None], positions


def trained(**parts: Any) -> tuple[Autoencoder, FeaturesRun]:
    """A few steps: no bias is 0 any more."""
    run = FeaturesRun.read({"data": DATA, "model": {"d_sae": SIZE, **parts}})
    model = run.build_model("cpu")
    initialise(model, 0)
    model.fit([activations()])
    optimizer = torch.optim.Adam(model.train().parameters(), lr=0.02)
    for step in range(20):
        optimizer.zero_grad()
        model.loss(*activations(seed=step)).backward()
        optimizer.step()
    return model.eval(), run


@pytest.mark.parametrize("parts", [*({"sparsity": name} for name in ADMISSIBLE), {"position_ablated": True}], ids=str)
def test_what_is_exported_computes_the_same(parts: dict[str, Any], tmp_path: Path) -> None:
    """blind: a mean for every position, where all positions are said to be one."""
    if "position_ablated" in parts:
        parts = {**parts, "centering": "position_mean", "losses": ["info_nce"]}
    model, run = trained(**parts)
    export(model, run, tmp_path / "new" / "one")
    found = imported(tmp_path / "new" / "one")
    assert (found.d_in, found.d_sae, found.context_size) == (WIDTH, SIZE, CONTEXT)
    some, positions = activations(seed=-1)
    with torch.no_grad():
        codes = model.encode(some, positions)
        torch.testing.assert_close(found.encode(some, positions), codes, rtol=1e-5, atol=1e-5)
        assert torch.equal(found.encode(some, positions + 99, mask_off=True), found.encode(some, positions))
        wanted = model.decode(codes, positions)
        torch.testing.assert_close(found.decode(codes, positions), wanted, rtol=1e-5, atol=0)
        torch.testing.assert_close(found.directions, model.directions)
    assert 0 < int((codes > 0).sum()) < codes.numel()


def test_a_batch_topk_keeps_what_just_reaches_its_threshold(tmp_path: Path) -> None:
    model, run = trained(sparsity="batch_topk:k=5")
    export(model, run, tmp_path)
    written = load_file(tmp_path / WEIGHTS)["threshold"]
    threshold: Any = model.sparsity.get_buffer("threshold")
    assert (threshold > written).all()
    assert not (torch.nextafter(threshold, torch.tensor(0.0)) > written).any()


def test_a_configuration_that_is_no_export_is_not_replaced(tmp_path: Path) -> None:
    model, run = trained(sparsity="topk:k=5")
    (tmp_path / CONFIG).write_text('{"mine": 1}')
    with pytest.raises(UserError, match="expected a new directory or an earlier export"):
        export(model, run, tmp_path)
    assert (tmp_path / CONFIG).read_text() == '{"mine": 1}'


def test_what_is_known_of_the_states_is_told(tmp_path: Path) -> None:
    store = collection(tmp_path)
    run = FeaturesRun.read({"data": str(store.root / "activations" / "some"), "model": {"d_sae": SIZE}})
    model = run.build_model("cpu")
    initialise(model, 0)
    export(model, run, tmp_path / "out", hook="blocks.2.hook_resid_post")
    about = json.loads((tmp_path / "out" / CONFIG).read_text())["metadata"]
    assert about["model_name"] == "somebody"
    assert (about["hook_layer"], about["context_size"], about["whence_run"]) == (2, CONTEXT, run.id)
    assert about["hook_name"] == "blocks.2.hook_resid_post"


@pytest.mark.parametrize(
    ("part", "chosen", "allowed"),
    [
        ("mask", "gaussian", "none"),
        ("norm", "layer_norm", "none"),
        ("encoder", "corrected", "shared"),
        ("encoder", "multi_scale", "shared"),
        ("centering", "position_mean", "mean"),
    ],
)
def test_what_saelens_does_not_carry_is_refused_by_name(part: str, chosen: str, allowed: str, tmp_path: Path) -> None:
    model, run = trained(**{part: chosen})
    with pytest.raises(UserError, match=rf"{part}: {chosen}.*SAELens does not carry.*Allowed: {allowed}\.") as refused:
        export(model, run, tmp_path / "out")
    assert refused.value.field == part
    assert not (tmp_path / "out").exists()


# --- what SAELens wrote


def written(folder: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A folder with random weights; decoder rows are not of length 1."""
    drawn = torch.Generator().manual_seed(0)
    config = {"architecture": "jumprelu", "d_in": WIDTH, "d_sae": SIZE, "dtype": "float32", "device": "cpu"}
    config |= {"metadata": {"sae_lens_version": "6.1.0", "prepend_bos": True}, **changes}
    shapes = {"W_enc": (WIDTH, SIZE), "b_enc": (SIZE,), "W_dec": (SIZE, WIDTH), "b_dec": (WIDTH,)}
    shapes |= {"threshold": (SIZE,)} if config["architecture"] == "jumprelu" else {}
    weights = {name: torch.randn(*shape, generator=drawn) for name, shape in shapes.items()}
    folder.mkdir(exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(config))
    save_file(weights, folder / WEIGHTS)
    return config, weights


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("architecture", ["standard", "topk", "topk, rescaled", "jumprelu"])
def test_what_saelens_defines(architecture: str, applied: bool, tmp_path: Path) -> None:
    """Its formulas in double precision, written out. Some thresholds are below 0, where the ReLU counts."""
    kind, _, rescaled = architecture.partition(", ")
    settings = {"k": 7, "rescale_acts_by_decoder_norm": bool(rescaled)} if kind == "topk" else {}
    _, weights = written(tmp_path, architecture=kind, apply_b_dec_to_input=applied, **settings)
    some = torch.randn(200, WIDTH, generator=torch.Generator().manual_seed(1))
    w = {name: value.double() for name, value in weights.items()}
    lengths = w["W_dec"].norm(dim=1) if rescaled else torch.ones(SIZE)
    pre = ((some - w["b_dec"] * applied) @ w["W_enc"] + w["b_enc"]) * lengths
    codes = pre.relu()
    if kind == "jumprelu":
        codes = codes * (pre > w["threshold"])
    if kind == "topk":
        codes = torch.zeros_like(codes).scatter(1, pre.topk(7).indices, codes.gather(1, pre.topk(7).indices))
    found, anywhere = imported(tmp_path), torch.zeros(200, dtype=torch.long)
    assert found.context_size == ANY
    torch.testing.assert_close(found.encode(some, anywhere).double(), codes, rtol=1e-4, atol=1e-4)
    wanted = (codes / lengths) @ w["W_dec"] + w["b_dec"]
    torch.testing.assert_close(found.decode(codes.float(), anywhere).double(), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.directions.double(), w["W_dec"] / lengths[:, None], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architecture": "gated"}, "'gated' is not known. Allowed: standard, topk, jumprelu"),
        ({"normalize_activations": "layer_norm"}, "normalize_activations"),
        ({"reshape_activations": "hook_z"}, "reshape_activations"),
        ({"architecture": "topk"}, "k: None. Allowed: 1 to 64"),
        ({"architecture": "topk", "k": SIZE + 1}, "k: 65. Allowed: 1 to 64"),
        ({"metadata": {"sae_lens_version": "5.9.1"}}, "sae_lens_version: 5.9.1. Allowed: 6 and later"),
        ({"metadata": {}}, "sae_lens_version: none"),
        ({"d_sae": -1}, "d_sae"),
        ({"d_sae": SIZE // 2}, "W_enc 16×64.*asks for.*W_enc 16×32"),
        ({"d_in": 10**12}, "d_in"),
    ],
    ids=str,
)
def test_foreign_configs_are_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    written(tmp_path)
    config = {**json.loads((tmp_path / CONFIG).read_text()), **changes}
    (tmp_path / CONFIG).write_text(json.dumps(config))
    with pytest.raises(UserError, match=said):
        imported(tmp_path)


def test_torn_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=CONFIG):
        imported(tmp_path)
    config, weights = written(tmp_path)
    for name in (CONFIG, WEIGHTS):
        whole = (tmp_path / name).read_bytes()
        for torn in (b"", whole[:40], whole[:-1], b"\x80\x04pickle", b"[" * 100_000):
            (tmp_path / name).write_bytes(torn)
            with pytest.raises(UserError, match=name):
                imported(tmp_path)
        (tmp_path / name).unlink()
        with pytest.raises(UserError, match=name):
            imported(tmp_path)
        (tmp_path / name).write_bytes(whole)
    for other in ({**weights, "scaling_factor": torch.ones(SIZE)}, {"W_enc": weights["W_enc"]}):
        save_file(other, tmp_path / WEIGHTS)
        with pytest.raises(UserError, match=WEIGHTS):
            imported(tmp_path)
    weights["b_enc"][3] = torch.nan
    save_file(weights, tmp_path / WEIGHTS)
    with pytest.raises(UserError, match="b_enc"):
        imported(tmp_path)
    (tmp_path / CONFIG).write_text(json.dumps([config]))
    with pytest.raises(UserError, match=CONFIG):
        imported(tmp_path)


# --- from the command line


def collection(root: Path) -> Store:
    """ "some": 20 sequences that nobody collected, half of them held out."""
    store = Store(root)
    store.prepare()
    drawn = torch.Generator().manual_seed(0)
    made = torch.randn(20, CONTEXT, WIDTH, generator=drawn).bfloat16()
    ids, held = torch.zeros(20, CONTEXT), torch.arange(20) % 2 == 0
    store_collection(store.root / "activations" / "some", "models/somebody", ids, held, made, layer=3)
    return store


def test_a_run_and_its_export_measure_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, where = collection(tmp_path / "store"), ["--store", str(tmp_path / "store")]
    training = {"steps": 30, "batch_size": 64, "evaluations": 1}
    spec = FeaturesRun.read({"data": DATA, "model": {"d_sae": SIZE}, "training": training})
    assert execute(spec, store, ExecutionOptions(threads=1, device="cpu")).state == "finished"
    run = spec.id
    folder = str(tmp_path / "sae")
    told: Any = document(["features", "export", run[:6], "--out", folder, *where], capsys)
    assert (told["architecture"], told["run"]) == ("topk", run)
    on = ["--activations", "some", *where]
    ours, theirs = (document(["features", "evaluate", target, *on], capsys)["metrics"] for target in (run, folder))
    assert ours["fvu"] == pytest.approx(theirs["fvu"], rel=1e-5)
    assert (ours["l0"], ours["dead"], ours["activations"]) == (theirs["l0"], theirs["dead"], theirs["activations"])
    wanted = dictionary_metrics(load_autoencoder(store, run)[0], spec.data.build().held_out())
    assert document(["features", "evaluate", run, *where], capsys)["metrics"]["fvu"] == wanted.fvu, "on its own data"
    assert "position-specific" in output(["features", "evaluate", folder, *on], capsys)
    assert run in output(["features", "export", run, "--out", folder, *where], capsys), "again, in the same place"


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "--out", "x"],
        ["export", "0000", "--out", "x"],
        ["evaluate"],
        ["evaluate", "0000", "--activations", "some"],
        ["evaluate", ".", "--activations", "some"],
        ["evaluate", "."],
    ],
    ids=str,
)
def test_what_cannot_be_exported_or_measured(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output(["features", *arguments, "--store", str(collection(tmp_path).root)], capsys, code=2)


def test_states_of_another_width_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = collection(tmp_path / "store")
    folder = tmp_path / "sae"
    written(folder, architecture="standard", d_in=WIDTH)
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, "d_in": 2}))
    wide = {"W_enc": (2, SIZE), "b_enc": (SIZE,), "W_dec": (SIZE, 2), "b_dec": (2,)}
    save_file({name: torch.zeros(shape) for name, shape in wide.items()}, folder / WEIGHTS)
    output(["features", "evaluate", str(folder), "--activations", "some", "--store", str(store.root)], capsys, code=2)
