"""A report with all that a page can show."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import pytest
import torch

from tests.arena.made import TASK, fail, finish, planned, spec, tables_of
from whence.arena import page
from whence.arena.attention import AttentionMaps
from whence.arena.instrument import ARENA
from whence.experiments.export import Report
from whence.experiments.saved import save_config
from whence.store.runs import Store


def some_maps(layers: int = 2, heads: int = 2, tokens: int = 8) -> AttentionMaps:
    generator = torch.Generator().manual_seed(layers + heads)
    weights = torch.rand(layers, 3, heads, tokens, tokens, generator=generator).tril()
    weights = weights / weights.sum(-1, keepdim=True)
    return AttentionMaps(
        layers=layers,
        examples=3,
        heads=heads,
        tokens=tokens,
        weights=base64.b64encode((weights * 255).round().byte().numpy().tobytes()).decode(),
        distance=(torch.arange(layers * heads).reshape(layers, heads) + 0.5).tolist(),
        inputs=torch.randint(4, (3, tokens), generator=generator).tolist(),
    )


def show_maps(maps: Mapping[str, AttentionMaps], monkeypatch: pytest.MonkeyPatch) -> None:
    """In every table, by encoding: the runs of these tests have no weights."""
    monkeypatch.setattr(page, "stored_maps", lambda table, store: maps)


def made_report(store: Store, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Two tasks; one encoding masters, one learns, one has a failed run."""
    config = spec("rope", "alibi", "t5", tasks=[TASK, "long_range_match"], seeds=9)
    for run in planned(config, store):
        name, wiggle = run.model.position_label, run.seed / 1000
        if name == "t5" and run.seed == 8:
            fail(store, run, "loss is <i>NaN</i> & gone")
        elif name == "rope":
            finish(store, run, 1.0 - wiggle, 0.9 - wiggle)
        else:
            finish(store, run, 0.8 + wiggle if name == "alibi" else 0.7)
    show_maps({name: some_maps() for name in ("rope", "alibi")}, monkeypatch)
    path = save_config("arena", config, store)
    command = f"whence arena compare --config {path}"
    return Report(ARENA, tables_of(config, store), config.model_dump(mode="json"), command, store)
