"""The optimisers: AdamW, and Muon for matrices with AdamW for everything else."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from whence.encodings.base import Encoding
from whence.training.config import TrainingConfig

MOMENTUM = 0.95
TURNS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic that drives singular values towards 1 (Jordan 2024)."""


def make_optimizer(model: nn.Module, training: TrainingConfig) -> AdamW:
    """AdamW; weight decay applies to the weights of linear layers only, not to tables, norms and encodings."""
    encoding = {id(p) for module in model.modules() if isinstance(module, Encoding) for p in module.parameters()}
    decayed = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)} - encoding
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if id(p) in decayed], "weight_decay": training.weight_decay},
        {"params": [p for p in parameters if id(p) not in decayed], "weight_decay": 0.0},
    ]
    fused = all(p.device.type in ("cpu", "cuda", "mps") and p.is_floating_point() for p in parameters)
    return AdamW([g for g in groups if g["params"]], lr=training.lr, betas=(0.9, 0.98), fused=fused)


def muon(model: nn.Module, lr: float, matrix_lr: float, weight_decay: float) -> AdamW:
    """AdamW in which matrices, the weights of linear layers, move by the orthogonalised momentum of their gradients.

    A group's `lr_multiplier` multiplies the learning rate that the loop sets.
    """
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    known = {id(parameter) for parameter in matrices}
    others = [p for p in model.parameters() if id(p) not in known and p.requires_grad]
    groups = [
        {"params": matrices, "lr_multiplier": matrix_lr / lr, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = AdamW(groups, lr=lr, betas=(0.9, 0.98))
    optimizer.register_step_pre_hook(_move_matrices)
    return optimizer


@torch.no_grad()
def _move_matrices(optimizer: Optimizer, _args: object, _options: object) -> None:
    """Runs before each step of AdamW, which skips parameters without a gradient."""
    group = optimizer.param_groups[0]
    for parameter in group["params"]:
        if parameter.grad is None:
            continue
        state = optimizer.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
        update = orthogonal(parameter.grad.lerp(state["momentum"], MOMENTUM))
        rows, columns = parameter.shape
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(update, alpha=group["lr"] * max(1.0, rows / columns) ** 0.5)
        parameter.grad = None


def orthogonal(matrix: Tensor) -> Tensor:
    """The nearest matrix whose singular values are all about 1, by Newton–Schulz."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = F.normalize(matrix.flatten(), dim=0, eps=1e-7).view_as(matrix)
    x = x.mT if tall else x
    for _ in range(TURNS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x
