"""Pathways through which position may enter. Every kind is a file: it detects its pathways and can ablate them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from whence.leak.audit.target import AuditTarget
from whence.registry import Variant


@dataclass(frozen=True)
class Pathway:
    """One place where position may enter."""

    name: str
    where: str
    """Modules, by name."""
    ablate: Callable[[], AbstractContextManager[Any]]
    """While the context is open, no position enters there."""
    note: str = ""


class Detector(Variant):
    """Detects one kind of pathway."""

    def detect(self, target: AuditTarget, masked: Tensor) -> list[Pathway]:
        """Those in this model. It may be run once, with these tokens masked, to observe it."""
        raise NotImplementedError


@contextmanager
def patched(module: nn.Module, **methods: Any) -> Iterator[None]:
    """Methods of one instance replaced for a while, also where somebody has replaced them already."""
    before = {name: vars(module)[name] for name in methods if name in vars(module)}
    for name, method in methods.items():
        object.__setattr__(module, name, method)
    try:
        yield
    finally:
        for name in methods:
            if name in before:
                object.__setattr__(module, name, before[name])
            else:
                object.__delattr__(module, name)


@contextmanager
def hooked(modules: list[nn.Module], hook: Callable[..., Any]) -> Iterator[None]:
    """What the modules return, replaced for a while."""
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def ablated(pathways: Sequence[Pathway]) -> Iterator[None]:
    with ExitStack() as stack:
        for pathway in pathways:
            stack.enter_context(pathway.ablate())
        yield


def named(model: nn.Module, kind: type[nn.Module] | tuple[type[nn.Module], ...]) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if isinstance(module, kind)}


def together(names: list[str]) -> str:
    """`a.0.x, a.1.x, a.2.x` as one line that a person reads."""
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)})"
