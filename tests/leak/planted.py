"""Models in which it is known whether position comes in, and through what."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tests.leak.test_model import job_of
from whence.leak.audit.target import AuditTarget

LEAKS = {
    "additive encoding": [
        {"backbone": "transformer", "temporal": "sinusoidal"},
        {"backbone": "transformer", "temporal": "learned"},
    ],
    "rotation in attention": [{"backbone": "transformer", "temporal": "rope"}],
    "bias in attention": [
        {"backbone": "transformer", "temporal": "alibi"},
        {"backbone": "transformer", "temporal": "t5"},
        {"backbone": "transformer", "temporal": "kerple"},
    ],
    "causal order": [{"backbone": "transformer", "temporal": "none", "causal": True}],
    "recurrent state": [
        {"backbone": "mamba:d_conv=1", "temporal": "none"},
        {"backbone": "bimamba:d_conv=1", "temporal": "none"},
        {"backbone": "bimamba:d_conv=1,weights=separate", "temporal": "none"},
    ],
    "convolution edge": [
        {"backbone": "mamba:d_conv=4", "temporal": "none"},
        {"backbone": "bimamba:d_conv=6", "temporal": "none"},
    ],
}
CLEAN = [
    {"backbone": "transformer", "temporal": "none"},
    *(
        {"backbone": "transformer", "temporal": name, "gated": True}
        for name in ("sinusoidal", "rope", "alibi", "t5", "none")
    ),
    *({"backbone": name, "temporal": "sinusoidal", "gated": True} for name in ("mamba", "bimamba", "bimamba:d_conv=6")),
]


@dataclass(frozen=True)
class Planted:
    target: AuditTarget
    source: str | None
    """What position comes in through; None: it does not"""
    strength: float


def plant(seed: int) -> Planted:
    """Every second one is clean. Weights are random, sizes and data are, and so is how strong the leak is."""
    chance = random.Random(seed)
    source = None if seed % 2 else chance.choice(list(LEAKS))
    choice: dict[str, Any] = dict(chance.choice(CLEAN if source is None else LEAKS[source]))
    gated = choice.pop("gated", False)
    data = f"synthetic:position={chance.choice([0.0, 0.0, 0.5])},steps={chance.choice([64, 96])},channels=2"
    job = job_of(
        "content_gated" if gated else "none",
        seed=seed,
        data=data,
        layers=chance.randint(1, 3),
        heads=chance.choice([1, 2, 4]),
        replacement="learned"
        if source
        else chance.choice(["zeros", "learned"]),  # zeros write nothing: no leak at first
        mlp_ratio=chance.choice([0.0, 2.0]),
        **choice,
    )
    strength = 10 ** chance.uniform(-0.7, 0.5)
    with torch.no_grad():
        for module in job.model.modules():
            if source == "additive encoding" and module is job.model.temporal:
                original = module.embed  # type: ignore[union-attr]
                object.__setattr__(
                    module, "embed", lambda x, p, original=original: x + strength * original(torch.zeros_like(x), p)
                )
            if type(module).__name__ == "Mamba":
                if source == "convolution edge":
                    module.A_log.fill_(12.0)  # nothing is carried on: what is left is the convolution
                    module.conv1d.weight.mul_(strength)  # type: ignore[union-attr]
                if source == "recurrent state":
                    module.dt_proj.bias.add_(2.0 * strength)  # type: ignore[union-attr]
            if type(module).__name__ == "Attention" and source in ("rotation in attention", "bias in attention"):
                module.qkv.weight.mul_(1 + strength)  # type: ignore[union-attr]
    return Planted(replace(job.audit_target(24), name=f"{seed}: {source or 'clean'}"), source, strength)


def offset_r2(target: AuditTarget) -> float:
    """How well least squares reads off where a block was put, from what is said about its masked tokens.

    Written apart from whence: fit on half of the contents, scored on the others.
    """
    steps = target.tokens
    block = steps // 2
    masked = torch.zeros(block, dtype=torch.bool)
    masked[torch.randperm(block, generator=torch.Generator().manual_seed(0))[: block // 2]] = True
    said, where = [], []
    for offset in range(0, steps - block + 1, 2):
        gone = torch.ones(len(target.content), steps, dtype=torch.bool)
        gone[:, offset : offset + block] = masked
        moved = target.content.clone()
        moved[:, offset : offset + block] = target.content[:, :block]
        said.append(target.predictions(moved, gone)[:, offset : offset + block][:, masked].flatten(1).double())
        where.append(torch.full((len(moved),), float(offset), dtype=torch.float64))
    x, y = torch.stack(said, 1), torch.stack(where, 1)
    x = x - x.mean(1, keepdim=True)  # what is common to all places of one content is content
    half = len(x) // 2
    train, test = x[:half].flatten(0, 1), x[half:].flatten(0, 1)
    wanted = y - y.mean()
    scale = train.pow(2).mean().sqrt().clamp(min=1e-12)
    train, test = train / scale, test / scale
    gram = train.T @ train + 1e-2 * len(train) * torch.eye(train.shape[1], dtype=torch.float64)
    guess: Tensor = test @ torch.linalg.solve(gram, train.T @ wanted[:half].flatten())
    truth = wanted[half:].flatten()
    return float(1 - (guess - truth).pow(2).sum() / truth.pow(2).sum())
