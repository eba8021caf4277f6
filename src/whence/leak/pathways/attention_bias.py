"""Logits that depend on distance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from whence.encodings.base import Encoding
from whence.leak.audit.target import AuditTarget
from whence.leak.pathways.base import Detector, Pathway, hooked, named, patched


class AttentionBias(Detector):
    """Bias in attention: encodings of whence with a bias or score hook, and T5's tables."""

    def detect(self, target: AuditTarget, masked: Tensor) -> list[Pathway]:
        pathways = []
        for name, module in named(target.model, Encoding).items():
            if not isinstance(module, Encoding):
                continue
            if "bias" in module.hooks():
                pathways.append(Pathway("bias in attention", name, _without_bias(module), note=module.name))
            if "score" in module.hooks():
                pathways.append(
                    Pathway(
                        "scores that count positions",
                        name,
                        lambda module=module: patched(module, score=lambda logits, *rest: logits),
                        note=module.name,
                    )
                )
        tables = {n: m for n, m in named(target.model, nn.Embedding).items() if n.endswith("relative_attention_bias")}
        if tables:
            modules = list(tables.values())
            pathways.append(Pathway("bias in attention", next(iter(tables)), lambda: hooked(modules, _zero)))
        return pathways


def _without_bias(module: Encoding) -> Any:
    original = module.bias
    return lambda: patched(module, bias=lambda q, k: torch.zeros_like(original(q, k)))


def _zero(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
    return torch.zeros_like(output)
