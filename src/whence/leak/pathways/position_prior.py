"""A prior that says in the open what is usual at each place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from whence.leak.audit.target import AuditTarget
from whence.leak.mitigations.position_prior import PositionPrior
from whence.leak.pathways.base import Detector, Pathway, named, patched


class ExplicitPrior(Detector):
    """Position prior: added where everybody can see it. Shut, the model is shown and says what it is without it."""

    def detect(self, target: AuditTarget, masked: Tensor) -> list[Pathway]:
        priors = priors_of(target.model)
        if not priors:
            return []
        return [Pathway("position prior (explicit)", next(iter(priors)), lambda: without(priors))]


def priors_of(model: nn.Module) -> dict[str, nn.Module]:
    """Those that are switched on."""
    return {name: prior for name, prior in named(model, PositionPrior).items() if prior.on}


@contextmanager
def without(priors: dict[str, nn.Module]) -> Iterator[None]:
    with ExitStack() as stack:
        for prior in priors.values():
            stack.enter_context(patched(prior, content=lambda tokens: tokens, restore=lambda prediction: prediction))
        yield
