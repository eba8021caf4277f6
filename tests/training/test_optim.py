"""Muon beside torch's own, and AdamW as it is."""

from __future__ import annotations

import torch
from torch import nn

from whence.training.optim import muon, orthogonal


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.Linear(12, 5))


def trained(made: nn.Module, optimizers: list[torch.optim.Optimizer], steps: int = 6) -> list[torch.Tensor]:
    x, y = (torch.randn(32, n, generator=torch.Generator().manual_seed(n)) for n in (6, 5))
    for _ in range(steps):
        (made(x) - y).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach().clone() for p in made.parameters()]


def test_singular_values_become_one() -> None:
    for shape in ((20, 8), (8, 20), (16, 16)):
        matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        values = torch.linalg.svdvals(orthogonal(matrix))
        assert values.max() < 1.25
        assert values.median() > 0.65
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
        assert torch.nn.functional.cosine_similarity(orthogonal(matrix).flatten(), (left @ right).flatten(), 0) > 0.95


def test_steps_are_those_of_torch() -> None:
    """Theirs orthogonalises in bfloat16: close, not equal. What is no matrix moves exactly as under AdamW."""
    ours, theirs = model(), model()
    optimizer = muon(ours, lr=1e-2, matrix_lr=0.02, weight_decay=0.1)
    for group in optimizer.param_groups:
        group["lr"] = 1e-2 * group.get("lr_multiplier", 1.0)
    matrices = [p for p in theirs.parameters() if p.ndim == 2]
    others = [p for p in theirs.parameters() if p.ndim != 2]
    beside = [
        torch.optim.Muon(matrices, lr=0.02, weight_decay=0.1, momentum=0.95),
        torch.optim.AdamW(others, lr=1e-2, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    one, two = trained(ours, [optimizer], 1), trained(theirs, beside, 1)
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b, atol=2e-3 if a.ndim == 2 else 1e-7, rtol=0)
    one, two = trained(ours, [optimizer]), trained(theirs, beside)
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b, atol=0.02, rtol=0)


def test_its_state_can_be_stored() -> None:
    made = model()
    optimizer = muon(made, 1e-2, 0.02, 0.0)
    trained(made, [optimizer], 1)
    keys = {name: set(optimizer.state[p]) for name, p in made.named_parameters()}
    assert keys["0.weight"] == {"momentum"}
    assert keys["0.bias"] >= {"exp_avg", "exp_avg_sq"}
