"""Queries and keys that are turned by their position."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from whence.encodings.base import Encoding
from whence.leak.audit.target import AuditTarget
from whence.leak.pathways.base import Detector, Pathway, hooked, named, patched, together


class Rotation(Detector):
    """Rotation in attention: encodings of whence with a rotate hook, and rotary modules of transformers."""

    def detect(self, target: AuditTarget, masked: Tensor) -> list[Pathway]:
        ours = {
            name: module
            for name, module in named(target.model, Encoding).items()
            if isinstance(module, Encoding) and "rotate" in module.hooks()
        }
        pathways = [
            Pathway(
                "rotation in attention",
                name,
                lambda module=module: patched(module, rotate=lambda q, k, positions: (q, k)),
                note=getattr(module, "name", ""),
            )
            for name, module in ours.items()
        ]
        rotary = {
            name: m for name, m in named(target.model, nn.Module).items() if "RotaryEmbedding" in type(m).__name__
        }
        if rotary:
            modules = list(rotary.values())
            pathways.append(
                Pathway("rotation in attention", together(list(rotary)), lambda: hooked(modules, _unturned))
            )
        return pathways


def _unturned(_module: nn.Module, _inputs: Any, output: Any) -> Any:
    """Cosine and sine of no angle; a scale that a module keeps in them stays. One tensor: angles, or e to them."""
    if isinstance(output, Tensor):
        return torch.polar(output.abs(), torch.zeros_like(output.abs())) if output.is_complex() else output * 0
    cos, sin = output
    return cos.square().add(sin.square()).sqrt(), torch.zeros_like(sin)
