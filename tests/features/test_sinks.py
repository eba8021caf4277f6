"""States that attention rests on are kept out of training, and never exchanged."""

from __future__ import annotations

from pathlib import Path

import torch

from whence.features.activations.collect import collect_from
from whence.features.activations.sources import of_module
from whence.features.activations.store import SINK_RATIO, Collection, sinks
from whence.features.data import StoredActivations
from whence.features.evals.splice import SplitText
from whence.random import generator
from whence.store.runs import Store


def test_by_the_median() -> None:
    lengths = torch.tensor([1.0, 1.1, 0.9, SINK_RATIO + 0.5, 1.0])
    assert sinks(lengths).tolist() == [False, False, False, True, False]
    assert sinks(lengths, 2 * lengths).sum() == 0


def test_they_are_neither_trained_on_nor_measured(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Identity())
    model[0].weight.data[7] *= 1000  # one token, wherever it stands
    ids = torch.randint(50, (40, 10))
    store = Store(tmp_path)
    store.prepare()
    path = collect_from(of_module(model, "1", ids, d_in=8), store, "mine").path
    data = StoredActivations(path=str(path))
    activations, positions = (torch.cat(parts) for parts in zip(*data.everything(), *data.held_out(), strict=True))
    assert activations.norm(dim=1).max() < 100
    assert len(activations) == (ids[:, 1:] != 7).sum()
    assert positions.min() == 1
    assert data.draw(generator("x"), 500)[0].norm(dim=1).max() < 100
    assert len(Collection.at(path).places("train")) > len(activations) * 0.9 - 40, "they are kept, all the same"


def test_they_are_not_exchanged() -> None:
    activations = torch.ones(2, 5, 3)
    activations[1, 3] = 500
    text = SplitText(
        torch.zeros(2, 5, dtype=torch.long),
        activations,
        torch.tensor([False] * 4 + [True]),
        sinks(activations.norm(dim=-1)),
    )
    changed = text.edited(lambda some, positions: torch.zeros_like(some)).activations
    assert changed[1, 3].eq(500).all()
    assert changed[:, 0].eq(1).all()
    assert changed[:, 4].eq(1).all()
    assert not changed[0, 1:4].any()
    assert len(text.flat()[0]) == 5
