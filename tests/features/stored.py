"""Collections that nobody collected."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from torch import Tensor

from whence.features.activations.collect import content
from whence.features.activations.store import SHARD, TOKENS, ActivationSite, CollectionConfig, flags_of
from whence.store.data import DataFolder


def store_collection(path: Path, model: str, ids: Tensor, held: Tensor, activations: Tensor) -> Path:
    """activations: (sequences, context_size, d_in) bfloat16."""
    sequences, context_size, d_in = activations.shape
    tokens = {"ids": ids.int(), "held": held, "flags": flags_of(context_size, ([], []))}
    config = CollectionConfig(
        site=ActivationSite(model=model, layer=1, context_size=context_size),
        text="",
        about={},
        sequences=sequences,
        d_in=d_in,
        context_size=context_size,
        tokens=content(tokens),
        threads=torch.get_num_threads(),
    )
    data = DataFolder.begin(path, config.model_dump(mode="json"), config.parts)
    data.write(TOKENS, tokens)
    for part, shard in zip(config.parts[1:], activations.split(SHARD), strict=True):
        data.write(part, {"activations": shard})
    data.finish()
    return path


def flip(path: Path, seed: int) -> None:
    """One bit, anywhere."""
    data, place = bytearray(path.read_bytes()), random.Random(seed)
    data[place.randrange(len(data))] ^= 1 << place.randrange(8)
    path.write_bytes(data)
