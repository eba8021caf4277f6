"""Attention that sees only what came before."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from whence.leak.audit.target import AuditTarget
from whence.leak.pathways.base import Detector, Pathway

CAUSAL_ORDER = "causal order"


class CausalOrder(Detector):
    """Causal order: how much a token sees tells where it is. Found and lifted where attention is computed."""

    def detect(self, target: AuditTarget, masked: Tensor) -> list[Pathway]:
        with _Order(lift=False) as order:
            target.with_rows(1).predictions(target.content[:1], masked[:1])
        where = f"{order.calls} attention layer{'s' if order.calls > 1 else ''}"
        return [Pathway(CAUSAL_ORDER, where, lambda: _Order(lift=True))] if order.calls else []


def _parameters(kind: Any, **defaults: Any) -> list[inspect.Parameter]:
    return [inspect.Parameter(name, kind, default=default) for name, default in defaults.items()]


_SDPA = inspect.Signature(
    [
        *_parameters(inspect.Parameter.POSITIONAL_OR_KEYWORD, query=None, key=None, value=None, attn_mask=None),
        *_parameters(inspect.Parameter.POSITIONAL_OR_KEYWORD, dropout_p=0.0, is_causal=False),
        *_parameters(inspect.Parameter.KEYWORD_ONLY, scale=None, enable_gqa=False),
    ]
)
_MULTI_HEAD = inspect.signature(F.multi_head_attention_forward)


class _Order(TorchFunctionMode):
    """Sees every attention that hides what lies ahead, wherever it is called from, and lets it look there if asked."""

    def __init__(self, *, lift: bool) -> None:
        super().__init__()
        self.lift, self.calls = lift, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention and func is not F.multi_head_attention_forward:
            return func(*args, **kwargs)
        fused = func is F.scaled_dot_product_attention
        asked = (_SDPA if fused else _MULTI_HEAD).bind(*args, **kwargs)
        asked.apply_defaults()
        mask = asked.arguments["attn_mask"]
        # nn.MultiheadAttention says True where a key must not be seen, scaled_dot_product_attention where it may.
        blocked = None if mask is None else mask < -1e4 if mask.dtype != torch.bool else ~mask if fused else mask
        if not (_ahead(blocked) if blocked is not None else asked.arguments["is_causal"]):
            return func(*args, **kwargs)
        self.calls += 1
        if self.lift:
            asked.arguments.update(attn_mask=None if mask is None else _mirrored(mask), is_causal=False)
        return func(*asked.args, **asked.kwargs)


def _ahead(blocked: Tensor) -> bool:
    """Is everything ahead masked?"""
    if blocked.ndim < 2 or blocked.shape[-1] != blocked.shape[-2] or blocked.shape[-1] < 2:
        return False
    return bool(blocked[..., _upper(blocked)].all())


def _mirrored(mask: Tensor) -> Tensor:
    """What holds for tokens behind holds for those ahead, too: biases that a mask carries stay."""
    return torch.where(_upper(mask), mask.mT, mask)


def _upper(mask: Tensor) -> Tensor:
    return torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).triu(1)
