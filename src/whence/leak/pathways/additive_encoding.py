"""Vectors that are added to tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from whence.encodings.base import Encoding
from whence.leak.audit.target import AuditTarget
from whence.leak.pathways.base import Detector, Pathway, hooked, named, patched


class AdditiveEncoding(Detector):
    """Additive encodings: those of whence, and embedding tables that are read at 0, 1, 2, …"""

    def detect(self, target: AuditTarget, masked: Tensor) -> list[Pathway]:
        pathways = []
        for name, module in named(target.model, Encoding).items():
            if isinstance(module, Encoding) and "embed" in module.hooks():
                pathways.append(
                    Pathway(
                        _called(module),
                        name,
                        lambda module=module: patched(module, embed=lambda x, positions: x),
                    )
                )
        for name, (table, norm) in self._tables(target, masked).items():
            pathways.append(
                Pathway(
                    "learned absolute positions",
                    name,
                    lambda table=table: hooked([table], _same_everywhere),
                    note=f"norm at masked tokens {norm:.2g}",
                )
            )
        return pathways

    def _tables(self, target: AuditTarget, masked: Tensor) -> dict[str, tuple[nn.Module, float]]:
        """Embeddings whose indices count up along the sequence."""
        seen: dict[str, tuple[nn.Module, float]] = {}

        def look(name: str) -> Any:
            def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
                index = inputs[0] if inputs else None
                if (
                    isinstance(index, Tensor)
                    and index.ndim
                    and index.shape[-1] == target.tokens
                    and bool((index.diff(dim=-1) == 1).all())
                ):
                    seen[name] = module, float(output.float().norm(dim=-1).mean())

            return hook

        tables = {n: m for n, m in named(target.model, nn.Embedding).items() if not _inside_encoding(target.model, n)}
        handles = [module.register_forward_hook(look(name)) for name, module in tables.items()]
        try:
            target.with_rows(1).predictions(target.content[:1], masked[:1])
        finally:
            for handle in handles:
                handle.remove()
        return seen


def _called(encoding: Encoding) -> str:
    return f"additive encoding ({encoding.name})"


def _inside_encoding(model: nn.Module, name: str) -> bool:
    return any(isinstance(module, Encoding) and name.startswith(f"{n}.") for n, module in model.named_modules() if n)


def _same_everywhere(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
    return output.mean(-2, keepdim=True).expand_as(output) if output.shape[-2] > 1 else torch.zeros_like(output)
