"""What stands where a token is hidden."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from whence.leak.audit.measures import ROUNDING
from whence.leak.audit.target import Subject
from whence.leak.pathways.base import Entrance, Source, hooked
from whence.models.capture import capture


class MaskToken(Source):
    """Mask tokens that differ from place to place. Shut, all of them are alike."""

    def find(self, subject: Subject, hidden: Tensor) -> list[Entrance]:
        name = subject.masked
        if name is None:
            return []
        with capture(subject.model, [name], attention=False) as cache:
            subject.said(subject.content[:2], hidden[:2])
        embedded = cache.hidden.get(name)
        if not isinstance(embedded, Tensor) or embedded.shape[:2] != hidden[:2].shape:
            return []
        at_hidden = embedded[hidden[:2]].double()
        differ = float(
            (at_hidden - at_hidden.mean(0)).norm(dim=-1).mean() / at_hidden.norm(dim=-1).mean().clamp(min=1e-12)
        )
        if differ <= ROUNDING:
            return []
        module = subject.model.get_submodule(name)
        return [
            Entrance("mask token", name, lambda: hooked([module], _one_token(subject)), note=f"differ by {differ:.2g}")
        ]


def _one_token(subject: Subject) -> Any:
    """Hidden tokens take the mean of what stands at hidden tokens."""

    def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        hidden = subject.current["hidden"].to(output.device)
        return output.masked_scatter(hidden[..., None], output[hidden].mean(0).expand(int(hidden.sum()), -1))

    return hook
