"""Actions that features does not list itself yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field

from whence.config import Config
from whence.experiments.instrument import Action
from whence.features.activations.collect import collect
from whence.features.activations.sources import Collection
from whence.store.artifacts import Artifact, ArtifactKind
from whence.store.runs import Store


class CollectConfig(Collection):
    name: str = Field(default="", description="what to call them; none: model and layer")


class Collected(Config):
    name: str


COLLECTIONS = ArtifactKind("collection", CollectConfig, Collected)


def _collect(
    config: CollectConfig, store: Store, on_progress: Callable[[str], None]
) -> Artifact[CollectConfig, Collected]:
    wanted = Collection(**config.model_dump(exclude={"name"}))
    path = collect(wanted, store, config.name, lambda done, of: on_progress(f"part {done} of {of}"))
    return COLLECTIONS.save(config, Collected(name=path.name), store)


ACTIONS: dict[str, list[Action[Any, Any]]] = {
    "features": [Action("collect", CollectConfig, _collect, lambda config: f"states of {config.model}")],
}
