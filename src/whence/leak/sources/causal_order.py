"""Attention that sees only what lies before."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from whence.leak.sources.base import Entrance, Source
from whence.leak.subject import Subject


class CausalOrder(Source):
    """Causal order: how much a token sees tells where it is. Found and lifted where attention is computed."""

    def find(self, subject: Subject, hidden: Tensor) -> list[Entrance]:
        with _Watch() as watch:
            subject.with_rows(1).said(subject.content[:1], hidden[:1])
        return [Entrance("causal order", f"{watch.calls} attention layers", _Lift)] if watch.calls else []


def _is_causal(mask: Tensor | None, flagged: bool) -> bool:
    """Flagged as such, or a mask that hides everything ahead."""
    if mask is None:
        return flagged
    if mask.ndim < 2 or mask.shape[-1] != mask.shape[-2] or mask.shape[-1] < 2:
        return False
    ahead = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).triu(1)
    blocked = ~mask if mask.dtype == torch.bool else mask < -1e4
    return bool(blocked[..., ahead].all())


class _Watch(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            mask, flagged = _asked(args, kwargs)
            self.calls += _is_causal(mask, flagged)
        return func(*args, **kwargs)


class _Lift(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            mask, flagged = _asked(args, kwargs)
            if _is_causal(mask, flagged):
                kwargs = {k: v for k, v in kwargs.items() if k in ("dropout_p", "scale", "enable_gqa")}
                args = args[:3]
        return func(*args, **kwargs)


def _asked(args: Any, kwargs: Any) -> tuple[Tensor | None, bool]:
    mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
    return mask, bool(args[5] if len(args) > 5 else kwargs.get("is_causal", False))
