"""How much of a language model's predictions survives when a dictionary's reconstruction takes the states' place.

1 is the model itself, 0 a model whose states at the cut are zeros. Zeros are far from anything that the blocks above
know, so that this flatters; the mean state in every place is the stricter reference, and is reported beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from whence.features.activations.store import SPECIAL, Activations
from whence.features.evals.splice import Halves, Text, check_fits, reconstruction
from whence.features.sae.dictionary import Dictionary


def held_out_text(halves: Halves, activations: Activations, sequences: int = 32, everywhere: bool = False) -> Text:
    """The first of the sequences that a collection held out, read again in full precision."""
    rows = activations.sequences("held out")[:sequences]
    return halves.read(activations.tokens[rows], activations.flags == SPECIAL, everywhere)


@torch.no_grad()
def recovered(
    halves: Halves, text: Text, dictionaries: Mapping[str, Dictionary], lifted: bool = False
) -> dict[str, dict[str, Any]]:
    """By name of the dictionary: cross-entropies per token in nats, and the shares that are recovered.

    A share is None where the reference does not harm the model. lifted: without masks over positions.
    """
    for dictionary in dictionaries.values():
        check_fits(dictionary, text)
    references = {
        "clean": _entropy(halves, text),
        "zero": _entropy(halves, text.edited(lambda states, positions: torch.zeros_like(states))),
        "mean": _entropy(halves, text.edited(_mean_of(text))),
    }
    found = {}
    for name, dictionary in dictionaries.items():
        spliced = _entropy(halves, text.edited(reconstruction(dictionary, lifted)))
        found[name] = {
            **references,
            "spliced": spliced,
            "recovered": _share(references["clean"], spliced, references["zero"]),
            "recovered_from_mean": _share(references["clean"], spliced, references["mean"]),
            "lifted": lifted,
            "tokens": int(text.targets.sum()),
        }
    return found


def _entropy(halves: Halves, text: Text) -> float:
    return float(halves.predict(text)[1].double().mean())


def _mean_of(text: Text) -> Any:
    mean = text.flat()[0].mean(0)

    def edit(states: Tensor, positions: Tensor) -> Tensor:
        return mean.expand_as(states)

    return edit


def _share(clean: float, spliced: float, ablated: float) -> float | None:
    return (ablated - spliced) / (ablated - clean) if ablated > clean else None
