"""Autoencoders between whence and SAELens: what one writes, the other reads, and both compute the same.

    make interop         or, where the peers of bench/features-peers.txt are installed,
    python bench/interop.py

576 numbers per state, 2,048 features, 512 states far from 0. whence's autoencoders, one of each kind that SAELens has,
are trained for some steps, exported, and loaded by SAELens; SAELens' own are saved by itself, and imported. Printed are
the largest differences over states: of reconstructions, relative to their distance from the mean state, and of codes,
relative to their length. Where two features are equal but for rounding, and one of them is kept, the sides may keep
different ones: such ties are counted instead, and may occur in one state of a hundred. Exits with 1 where a
reconstruction differs by more than 1e-5, or ties are more. Takes about a minute.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sae_lens
import torch
from sae_lens import SAE
from torch import Tensor

from scan_times import verdict
from whence.features.run import FeaturesRun
from whence.features.sae.dictionary import Dictionary
from whence.features.sae.saelens import export, imported
from whence.models.init import initialise
from whence.random import generator

WIDTH, SIZE, BATCH, K, STEPS = 576, 2048, 512, 32, 40
ALLOWED, TIED = 1e-5, 0.01
ANYWHERE = torch.zeros(BATCH, dtype=torch.long)
OURS: dict[str, dict[str, Any]] = {
    "topk": {"sparsity": f"topk:k={K}"},
    "l1": {"sparsity": f"l1:l0={K},coefficient=2"},
    "jumprelu": {"sparsity": f"jumprelu:l0={K}"},
    "batch_topk": {"sparsity": f"batch_topk:k={K}"},
    "topk, position ablated": {"sparsity": f"topk:k={K}", "centering": "position_mean", "position_ablated": True},
}


def activations(part: int) -> Tensor:
    """Sums of a few directions; the mean is ten times as long as what varies."""
    features = torch.randn(1024, WIDTH, generator=generator("interop"))
    active = torch.rand(BATCH, 1024, generator=generator("interop", part)) < 0.03
    varying = active.float() @ features
    mean = torch.randn(WIDTH, generator=generator("interop", "mean"))
    return varying + 10 * varying.norm(dim=1).mean() * torch.nn.functional.normalize(mean, dim=0)


def trained(model: dict[str, Any]) -> tuple[Any, FeaturesRun]:
    run = FeaturesRun.read({"data": f"synthetic:d_in={WIDTH}", "model": {"d_sae": SIZE, **model}})
    made = run.build_model("cpu")
    initialise(made, 0)
    made.fit([(activations(part), ANYWHERE) for part in range(4)])
    optimizer = torch.optim.Adam(made.train().parameters(), lr=2e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        made.loss(activations(step), ANYWHERE).backward()
        optimizer.step()
    return made.eval(), run


def theirs() -> dict[str, Callable[[Path], Any]]:
    """By name: what makes an autoencoder of SAELens and saves it. Weights are random, biases and thresholds too."""
    makers: dict[str, Callable[[Path], Any]] = {}

    def saved(kind: str, way: str, **settings: Any) -> Callable[[Path], Any]:
        def make(folder: Path) -> Any:
            config = getattr(sae_lens, kind + "Config")(d_in=WIDTH, d_sae=SIZE, **settings)
            sae = getattr(sae_lens, kind)(config)
            drawn = generator("interop", kind)
            for name, tensor in sae.state_dict().items():
                fresh = torch.randn(tensor.shape, generator=drawn)
                tensor.copy_(fresh.abs() if "threshold" in name else fresh / (tensor.shape[0] ** 0.5))
            return getattr(sae, way)(folder)

        return make

    for applied in (True, False):
        for kind, settings in (("Standard", {}), ("JumpReLU", {}), ("TopK", {"k": K})):
            name = f"{kind}SAE, b_dec {'taken off' if applied else 'left on'}"
            makers[name] = saved(f"{kind}SAE", "save_model", apply_b_dec_to_input=applied, **settings)
    makers["TopKSAE, rescaled"] = saved("TopKSAE", "save_model", k=K, rescale_acts_by_decoder_norm=True)
    makers["TopKTrainingSAE"] = saved("TopKTrainingSAE", "save_model", k=K)
    for kind, settings in (("Standard", {}), ("JumpReLU", {}), ("TopK", {"k": K}), ("BatchTopK", {"k": K})):
        makers[f"{kind}TrainingSAE, for inference"] = saved(f"{kind}TrainingSAE", "save_inference_model", **settings)
    return makers


def compared(name: str, dictionary: Dictionary, sae: Any, x: Tensor) -> bool:
    codes, encoded = dictionary.encode(x, ANYWHERE), sae.encode(x)
    same = ((codes > 0) == (encoded > 0)).all(1)
    ours, reconstructed = dictionary.decode(codes, ANYWHERE), sae(x)
    apart = _largest(ours - reconstructed, reconstructed - x.mean(0), same)
    active, ties = float((encoded > 0).sum(1).float().mean()), int((~same).sum())
    good = apart <= ALLOWED and ties <= TIED * BATCH and 0 < active < SIZE
    verdict(
        good,
        f"{name:47} {type(sae).__name__:11}  reconstructions {apart:.1e}  "
        f"codes {_largest(codes - encoded, encoded, same):.1e}  {active:6.1f} active  {ties} ties",
    )
    return good


def _largest(difference: Tensor, of: Tensor, activations: Tensor) -> float:
    """A state without active features has a code of length 0, and so has the difference."""
    return float((difference.norm(dim=1) / of.norm(dim=1).clamp(min=1e-30))[activations].max())


@torch.no_grad()
def main() -> bool:
    x, good = activations(-1), []
    print(f"SAELens {sae_lens.__version__}")
    with tempfile.TemporaryDirectory() as place:
        for number, (name, parts) in enumerate(OURS.items()):
            folder = Path(place) / f"ours-{number}"
            with torch.enable_grad():
                model, run = trained(parts)
            export(model, run, folder)
            good.append(compared(f"whence {name}", model, SAE.load_from_disk(folder), x))
        for number, (name, make) in enumerate(theirs().items()):
            folder = Path(place) / f"theirs-{number}"
            make(folder)
            good.append(compared(f"SAELens {name}", imported(folder), SAE.load_from_disk(folder), x))
    return all(good)


if __name__ == "__main__":
    sys.exit(not main())
