"""A state that is carried from token to token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from whence.leak.audit.target import AuditTarget
from whence.leak.pathways.base import Detector, Pathway, hooked, named, together

FORGET = 60.0
"""As A_log: a decay so fast that nothing of the state outlasts one step."""


class RecurrentState(Detector):
    """Recurrent state: how long it has been running tells where a token is. Shut, every token starts afresh."""

    def detect(self, target: AuditTarget, masked: Tensor) -> list[Pathway]:
        pathways = []
        scans = {
            n: m for n, m in named(target.model, nn.Module).items() if isinstance(getattr(m, "A_log", None), Tensor)
        }
        if scans:
            tables = [cast(Tensor, module.A_log) for module in scans.values()]
            pathways.append(Pathway("recurrent state", together(list(scans)), lambda: _forgetful(tables)))
        loops = named(target.model, nn.RNNBase)
        if loops:
            modules = list(loops.values())
            pathways.append(Pathway("recurrent state", together(list(loops)), lambda: hooked(modules, _afresh)))
        return pathways


@contextmanager
def _forgetful(tables: list[Tensor]) -> Iterator[None]:
    kept = [table.detach().clone() for table in tables]
    try:
        with torch.no_grad():
            for table in tables:
                table.fill_(FORGET)
        yield
    finally:
        with torch.no_grad():
            for table, before in zip(tables, kept, strict=True):
                table.copy_(before)


def _afresh(module: Any, inputs: tuple[Any, ...], output: Any) -> Any:
    """Every token as a sequence of its own."""
    x = inputs[0]
    batch_first = module.batch_first
    rows = x if batch_first else x.transpose(0, 1)
    with torch.no_grad():
        alone = module.forward(
            rows.reshape(-1, 1, rows.shape[-1]) if batch_first else rows.reshape(1, -1, rows.shape[-1])
        )[0]
    alone = alone.reshape(*rows.shape[:2], -1)
    return (alone if batch_first else alone.transpose(0, 1)), output[1]
