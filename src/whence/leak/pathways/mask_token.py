"""What stands where a token is masked."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from whence.leak.audit.measures import ROUNDING
from whence.leak.audit.target import AuditTarget
from whence.leak.pathways.base import Detector, Pathway, hooked
from whence.models.capture import capture


class MaskToken(Detector):
    """Mask tokens that differ from place to place. Shut, all of them are alike."""

    def detect(self, target: AuditTarget, masked: Tensor) -> list[Pathway]:
        name = target.mask_module
        if name is None:
            return []
        with capture(target.model, [name], attention=False) as cache:
            target.predictions(target.content[:2], masked[:2])
        embedded = cache.hidden.get(name)
        if not isinstance(embedded, Tensor) or embedded.shape[:2] != masked[:2].shape:
            return []
        at_masked = embedded[masked[:2]].double()
        differ = float(
            (at_masked - at_masked.mean(0)).norm(dim=-1).mean() / at_masked.norm(dim=-1).mean().clamp(min=1e-12)
        )
        if differ <= ROUNDING:
            return []
        module = target.model.get_submodule(name)
        return [
            Pathway("mask token", name, lambda: hooked([module], _one_token(target)), note=f"differ by {differ:.2g}")
        ]


def _one_token(target: AuditTarget) -> Any:
    """Hidden tokens take the mean of what stands at masked tokens."""

    def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        masked = target.current["masked"].to(output.device)
        return output.masked_scatter(masked[..., None], output[masked].mean(0).expand(int(masked.sum()), -1))

    return hook
