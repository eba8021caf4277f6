"""Pathways through which position enters a model. Each kind has a detector, which returns pathways to ablate."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any, ClassVar, TypeVar
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whence import stats
from whence.encodings.base import Encoding
from whence.kernels import causal_conv
from whence.leak.audit.measures import ROUNDING
from whence.leak.audit.target import AuditTarget
from whence.leak.mitigations import PositionPrior
from whence.mixers.mamba import Mamba
from whence.models.capture import attention_weights, capture

M = TypeVar("M", bound=nn.Module)
CAUSAL_ORDER = "causal order"
FORGET = 60.0
"""Value of A_log at which the state decays within one step."""


@dataclass(frozen=True)
class Pathway:
    """A part of a model through which position may enter."""

    name: str
    where: str
    """Names of its modules"""
    ablate: Callable[[], AbstractContextManager[Any]]
    """Returns a context in which no position enters through the pathway"""
    note: str = ""


def detect_pathways(target: AuditTarget, masked: Tensor) -> list[Pathway]:
    """All pathways of a model. The model is run with this mask to observe its calls."""
    return [pathway for detector in DETECTORS for pathway in detector(target, masked)]


def additive_encodings(target: AuditTarget, masked: Tensor) -> list[Pathway]:
    """Vectors that are added to tokens: encodings of whence, and embedding tables that are indexed by 0, 1, 2, …"""
    inside_encodings = tuple(f"{name}." for name in named(target.model, Encoding))
    tables = named(target.model, nn.Embedding).items()
    names = {table: name for name, table in tables if not name.startswith(inside_encodings)}
    read: dict[str, Pathway] = {}

    def observe(table: nn.Embedding, inputs: tuple[Any, ...], output: Tensor) -> None:
        index = inputs[0] if inputs else None
        if (
            isinstance(index, Tensor)
            and index.ndim
            and index.shape[-1] == target.tokens
            and bool((index.diff(dim=-1) == 1).all())
        ):
            note = f"mean norm at masked tokens {float(output.float().norm(dim=-1).mean()):.2g}"
            ablate = partial(hooked, [table], _same_everywhere)
            read[names[table]] = Pathway("learned absolute positions", names[table], ablate, note)

    with hooked(names, observe):
        target.predictions(target.content[:1], masked[:1])
    return [*_encodings(target.model, "embed"), *read.values()]


def _same_everywhere(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
    return output.mean(-2, keepdim=True).expand_as(output) if output.shape[-2] > 1 else torch.zeros_like(output)


def attention_biases(target: AuditTarget, masked: Tensor) -> list[Pathway]:
    """Logits that depend on distance: encodings of whence with a bias or score hook, and T5's tables."""
    tables = {n: m for n, m in named(target.model, nn.Embedding).items() if n.endswith("relative_attention_bias")}
    pathways = _encodings(target.model, "bias", "score")
    if tables:
        zeros = partial(hooked, list(tables.values()), lambda _module, _inputs, output: torch.zeros_like(output))
        pathways.append(Pathway("bias in attention", next(iter(tables)), zeros))
    return pathways


def rotations(target: AuditTarget, masked: Tensor) -> list[Pathway]:
    """Rotations of queries and keys: encodings of whence, and rotary modules of transformers."""
    rotary = {n: m for n, m in target.model.named_modules() if "RotaryEmbedding" in type(m).__name__}
    pathways = _encodings(target.model, "rotate")
    if rotary:
        ablate = partial(hooked, list(rotary.values()), _unrotated)
        pathways.append(Pathway("rotation in attention", _listed(rotary), ablate))
    return pathways


def _unrotated(_module: nn.Module, _inputs: Any, output: Any) -> Any:
    """Cosine and sine of angle 0, with the scale of the output kept. A single tensor holds angles, or e^(i·angle)."""
    if isinstance(output, Tensor):
        return torch.polar(output.abs(), torch.zeros_like(output.abs())) if output.is_complex() else output * 0
    cos, sin = output
    return cos.square().add(sin.square()).sqrt(), torch.zeros_like(sin)


def _encodings(model: nn.Module, *hooks: str) -> list[Pathway]:
    """Encodings of whence that enter through these hooks."""
    names = {"bias": "bias in attention", "score": "contextual bias in attention", "rotate": "rotation in attention"}
    return [
        Pathway(f"additive encoding ({encoding.name})", where, partial(_without_hook, encoding, hook))
        if hook == "embed"
        else Pathway(names[hook], where, partial(_without_hook, encoding, hook), note=encoding.name)
        for where, encoding in named(model, Encoding).items()
        for hook in hooks
        if hook in encoding.hooks()
    ]


def _without_hook(encoding: Encoding, hook: str) -> AbstractContextManager[Any]:
    """Replace a hook by that of an encoding that does not use it."""
    if hook == "bias":
        original = encoding.bias
        return patch.multiple(encoding, bias=lambda q, k: torch.zeros_like(original(q, k)))
    return patch.object(encoding, hook, MethodType(getattr(Encoding, hook), encoding))


def mask_tokens(target: AuditTarget, masked: Tensor) -> Tensor | None:
    """Inputs at masked tokens before position encodings are added, (tokens, width); None: unknown."""
    if target.mask_module is None:
        return None
    with capture(target.model, [target.mask_module], attention=False) as cache:
        target.predictions(target.content[: len(masked)], masked)
    tokens = cache.hidden.get(target.mask_module)
    return tokens[masked] if isinstance(tokens, Tensor) and tokens.shape[:2] == masked.shape else None


def differing_mask_tokens(target: AuditTarget, masked: Tensor) -> list[Pathway]:
    """Mask tokens that differ between positions. Ablation replaces all of them by their mean."""
    tokens = mask_tokens(target, masked[:2])
    if target.mask_module is None or tokens is None:
        return []
    tokens = tokens.double()
    differ = float((tokens - tokens.mean(0)).norm(dim=-1).mean() / tokens.norm(dim=-1).mean().clamp(min=1e-12))
    if differ <= ROUNDING:
        return []

    def averaged(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        masked = target.current["masked"].to(output.device)
        return output.masked_scatter(masked[..., None], output[masked].mean(0).expand(int(masked.sum()), -1))

    ablate = partial(hooked, [target.model.get_submodule(target.mask_module)], averaged)
    return [Pathway("mask token", target.mask_module, ablate, note=f"relative difference {differ:.2g}")]


def explicit_priors(target: AuditTarget, masked: Tensor) -> list[Pathway]:
    """Explicit priors, which add the means of positions. Ablation removes them from inputs and predictions."""
    priors = priors_of(target.model)
    return [Pathway("position prior (explicit)", next(iter(priors)), partial(without, priors))] if priors else []


def priors_of(model: nn.Module) -> dict[str, PositionPrior]:
    """Priors that are switched on, by module name."""
    return {name: prior for name, prior in named(model, PositionPrior).items() if prior.on}


def without(priors: Mapping[str, PositionPrior]) -> AbstractContextManager[None]:
    return entered(
        patch.multiple(prior, content=lambda tokens: tokens, restore=lambda prediction: prediction)
        for prior in priors.values()
    )


def recurrent_states(target: AuditTarget, masked: Tensor) -> list[Pathway]:
    """Recurrent states, which depend on the number of steps so far. Ablation resets them at every token."""
    modules = target.model.named_modules()
    scans = {name: table for name, m in modules if isinstance(table := getattr(m, "A_log", None), Tensor)}
    loops = named(target.model, nn.RNNBase)
    pathways = []
    if scans:
        pathways.append(Pathway("recurrent state", _listed(scans), partial(_fast_decay, list(scans.values()))))
    if loops:
        pathways.append(Pathway("recurrent state", _listed(loops), partial(hooked, list(loops.values()), _stateless)))
    return pathways


@contextmanager
def _fast_decay(tables: list[Tensor]) -> Iterator[None]:
    saved = [table.detach().clone() for table in tables]
    try:
        with torch.no_grad():
            for table in tables:
                table.fill_(FORGET)
        yield
    finally:
        with torch.no_grad():
            for table, before in zip(tables, saved, strict=True):
                table.copy_(before)


def _stateless(module: Any, inputs: tuple[Any, ...], output: Any) -> Any:
    """The output for every token as a sequence of its own."""
    x = inputs[0]
    batch_first = module.batch_first
    rows = x if batch_first else x.transpose(0, 1)
    with torch.no_grad():
        alone = module.forward(
            rows.reshape(-1, 1, rows.shape[-1]) if batch_first else rows.reshape(1, -1, rows.shape[-1])
        )[0]
    alone = alone.reshape(*rows.shape[:2], -1)
    return (alone if batch_first else alone.transpose(0, 1)), output[1]


class _Calls(TorchFunctionMode):
    """Counts calls of torch functions through which position enters, and optionally ablates them."""

    signatures: ClassVar[dict[Callable[..., Any], inspect.Signature]]

    def __init__(self, *, ablate: bool) -> None:
        super().__init__()
        self.ablate, self.count = ablate, 0

    def without_position(self, func: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any] | None:
        """Arguments that ablate a call; None if no position enters through it."""
        raise NotImplementedError

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in self.signatures:
            return func(*args, **kwargs)
        call = self.signatures[func].bind(*args, **kwargs)
        call.apply_defaults()
        changed = self.without_position(func, call.arguments)
        self.count += changed is not None
        return func(**(call.arguments | changed)) if self.ablate and changed else func(*args, **kwargs)


def _called(name: str, what: str, calls: type[_Calls], target: AuditTarget, masked: Tensor) -> list[Pathway]:
    with calls(ablate=False) as observed:
        target.predictions(target.content[:1], masked[:1])
    return [Pathway(name, stats.count(observed.count, what), lambda: calls(ablate=True))] if observed.count else []


def causal_order(target: AuditTarget, masked: Tensor) -> list[Pathway]:
    """Causal attention: the number of tokens attended to reveals position. Ablation makes attention bidirectional."""
    return _called(CAUSAL_ORDER, "attention layer", _CausalAttention, target, masked)


class _CausalAttention(_Calls):
    signatures: ClassVar = {
        F.scaled_dot_product_attention: inspect.signature(attention_weights),  # has the same parameters
        F.multi_head_attention_forward: inspect.signature(F.multi_head_attention_forward),
    }

    def without_position(self, func: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any] | None:
        mask = given["attn_mask"]
        if mask is None:
            return {"is_causal": False} if given["is_causal"] else None
        # In boolean masks of nn.MultiheadAttention, True excludes a key; for scaled_dot_product_attention it admits it.
        inverted = func is F.scaled_dot_product_attention
        blocked = mask < -1e4 if mask.dtype != torch.bool else ~mask if inverted else mask
        if mask.ndim < 2 or mask.shape[-1] != mask.shape[-2] or mask.shape[-1] < 2:
            return None
        ahead = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).triu(1)
        if not bool(blocked[..., ahead].all()):
            return None
        # The mask is mirrored, so that biases in it stay.
        return {"attn_mask": torch.where(ahead, mask.mT, mask), "is_causal": False}


def convolution_edges(target: AuditTarget, masked: Tensor) -> list[Pathway]:
    """Zero padding of convolutions, which reveals the edges. Ablation pads circularly."""
    ours = {name: m for name, m in named(target.model, Mamba).items() if m.conv1d.kernel_size[0] > 1}
    pathways = _called("convolution edge", "convolution", _PaddedConvolutions, target, masked)
    if not ours:
        return pathways
    return [Pathway("convolution edge", _listed(ours), partial(_circular, list(ours.values()))), *pathways]


def _circular(mixers: list[Mamba]) -> AbstractContextManager[None]:
    """Circular convolutions of whence's own mixers, which do not call torch functions."""
    return entered(patch.multiple(mixer, _convolve=_circular_convolution(mixer)) for mixer in mixers)


def _circular_convolution(mixer: Mamba) -> Callable[..., Tensor]:
    taps = mixer.conv1d.kernel_size[0] - 1

    def convolve(u: Tensor, reverse: bool = False) -> Tensor:
        longer = [u, u[:, :taps]] if reverse else [u[:, -taps:], u]
        full = causal_conv(torch.cat(longer, 1), mixer.conv1d.weight[:, 0], mixer.conv1d.bias, reverse=reverse)
        return full[:, : u.shape[1]] if reverse else full[:, taps:]

    return convolve


class _PaddedConvolutions(_Calls):
    signatures: ClassVar = dict.fromkeys(
        (F.conv1d, torch.conv1d),
        inspect.signature(lambda input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1: ...),
    )

    def without_position(self, func: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any] | None:
        padding, dilation = (v[0] if isinstance(v, tuple | list) else v for v in (given["padding"], given["dilation"]))
        reach = dilation * (given["weight"].shape[-1] - 1)
        named_sides = {"same": (reach // 2, reach - reach // 2), "valid": (0, 0)}
        sides = named_sides[padding] if isinstance(padding, str) else (padding, padding)
        if sides == (0, 0):
            return None
        return {"input": F.pad(given["input"], sides, mode="circular"), "padding": 0}


DETECTORS = (
    additive_encodings,
    attention_biases,
    causal_order,
    convolution_edges,
    differing_mask_tokens,
    explicit_priors,
    recurrent_states,
    rotations,
)


def hooked(modules: Iterable[nn.Module], hook: Callable[..., Any]) -> AbstractContextManager[None]:
    """A context with a forward hook on the modules, which observes or replaces their outputs."""
    return entered(module.register_forward_hook(hook) for module in modules)


@contextmanager
def entered(contexts: Iterable[AbstractContextManager[Any]]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def ablated(pathways: Sequence[Pathway]) -> AbstractContextManager[None]:
    return entered(pathway.ablate() for pathway in pathways)


def named(model: nn.Module, kind: type[M]) -> dict[str, M]:
    return {name: module for name, module in model.named_modules() if isinstance(module, kind)}


def _listed(modules: Mapping[str, object]) -> str:
    """Names of modules as one short line: `a.0.x … a.2.x (3)`."""
    first, *rest = modules
    return f"{first} … {rest[-1]} ({len(modules)})" if rest else first
