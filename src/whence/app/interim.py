"""Actions that leak and features do not list themselves yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field, create_model

from whence.cli.leak import Auditing
from whence.config import Config
from whence.experiments.instrument import Action
from whence.features.activations.collect import collect
from whence.features.activations.sources import Collection
from whence.store.artifacts import Artifact, ArtifactKind
from whence.store.runs import Store

_make: Any = create_model
AuditConfig: Any = _make(
    "AuditConfig",
    __base__=Config,
    **{name: (info.annotation, info) for name, info in Auditing.model_fields.items() if name not in ("store", "json_")},
)


class StoredAudit(Config):
    document: dict[str, Any]


class CollectConfig(Collection):
    name: str = Field(default="", description="what to call them; none: model and layer")


class Collected(Config):
    name: str


AUDITS = ArtifactKind("audit", AuditConfig, StoredAudit)
COLLECTIONS = ArtifactKind("collection", CollectConfig, Collected)


def _audit(config: Any, store: Store, on_progress: Callable[[str], None]) -> Artifact[Any, StoredAudit]:
    from whence.cli.leak import _target  # pyright: ignore[reportPrivateUsage]
    from whence.leak.audit.auditing import audit

    on_progress("loading the model")
    target = _target(Auditing(**config.model_dump()), store)
    result = audit(target, config.ratios, seed=config.seed, on_progress=on_progress)
    return AUDITS.save(config, StoredAudit(document=result.to_json()), store)


def _collect(
    config: CollectConfig, store: Store, on_progress: Callable[[str], None]
) -> Artifact[CollectConfig, Collected]:
    wanted = Collection(**config.model_dump(exclude={"name"}))
    path = collect(wanted, store, config.name, lambda done, of: on_progress(f"part {done} of {of}"))
    return COLLECTIONS.save(config, Collected(name=path.name), store)


ACTIONS: dict[str, list[Action[Any, Any]]] = {
    "leak": [Action("audit", AuditConfig, _audit, lambda config: f"Audit of {config.model or config.run}")],
    "features": [Action("collect", CollectConfig, _collect, lambda config: f"states of {config.model}")],
}
