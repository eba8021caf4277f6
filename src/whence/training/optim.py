"""The optimisers: AdamW, and Muon for matrices with AdamW for everything else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from whence.encodings.base import Encoding
from whence.training.config import TrainingConfig

MOMENTUM = 0.95
TURNS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic that drives singular values towards 1 (Jordan 2024)."""


def make_optimizer(model: nn.Module, training: TrainingConfig) -> torch.optim.AdamW:
    """AdamW; only the matrices of linear layers decay (tables, norms and encodings do not)."""
    encoding = {id(p) for module in model.modules() if isinstance(module, Encoding) for p in module.parameters()}
    decayed = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)} - encoding
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if id(p) in decayed], "weight_decay": training.weight_decay},
        {"params": [p for p in parameters if id(p) not in decayed], "weight_decay": 0.0},
    ]
    fused = all(p.device.type in ("cpu", "cuda", "mps") and p.is_floating_point() for p in parameters)
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=training.lr, betas=(0.9, 0.98), fused=fused)


class Muon(torch.optim.AdamW):
    """Groups with `matrices=True` step by the orthogonalised momentum of their gradients, the others as in AdamW.

    A group's `pace` multiplies the learning rate that the loop sets.
    """

    def step(self, closure: Any = None) -> Any:
        groups = self.param_groups
        with torch.no_grad():
            for group in groups:
                if group.get("matrices"):
                    self._turn(group)
        self.param_groups = [group for group in groups if not group.get("matrices")]
        try:
            return super().step(closure)
        finally:
            self.param_groups = groups

    def _turn(self, group: dict[str, Any]) -> None:
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
            update = orthogonal(parameter.grad.lerp(state["momentum"], MOMENTUM))
            rows, columns = parameter.shape
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.sub_(update, alpha=group["lr"] * max(1.0, rows / columns) ** 0.5)


def orthogonal(matrix: Tensor) -> Tensor:
    """The nearest matrix whose singular values are all about 1, by Newton–Schulz."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.mT if tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(TURNS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def muon(model: nn.Module, lr: float, matrix_lr: float, weight_decay: float) -> Muon:
    """Matrices are the weights of linear layers; tables, norms, convolutions and encodings go by AdamW."""
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    known = {id(parameter) for parameter in matrices}
    others: Iterable[Tensor] = [p for p in model.parameters() if id(p) not in known and p.requires_grad]
    groups = [
        {"params": matrices, "matrices": True, "pace": matrix_lr / lr, "weight_decay": weight_decay},
        {"params": list(others), "weight_decay": 0.0},
    ]
    return Muon(groups, lr=lr, betas=(0.9, 0.98))
