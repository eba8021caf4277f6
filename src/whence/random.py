"""Random streams: generators that are functions of a seed, the name of a stream and a step, without state.

The generator of step 700 is a function of (seed, stream, 700). A run that resumes there therefore draws the same
numbers, and evaluating more often does not change training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


def derive(*path: int | str) -> int:
    """A 63-bit seed from a path such as (seed, "data", step); the same on every machine and in every process."""
    text = "/".join(map(str, path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@dataclass(frozen=True)
class Streams:
    """The four streams of a run, all derived from its seed.

    Evaluation data are drawn per seed, and are the same for every variant of that seed. The sampling error of a set
    that all seeds share would affect every comparison, and more seeds would not reduce it.
    """

    data: int
    init: int
    dropout: int
    evaluation: int

    @classmethod
    def of(cls, seed: int) -> Streams:
        return cls(*(derive(seed, stream) for stream in ("data", "init", "dropout", "evaluation")))


def seed_torch(*path: int | str) -> None:
    """Seed the global generators of torch for one position in a stream."""
    torch.manual_seed(derive(*path))


def generator(*path: int | str) -> torch.Generator:
    """A CPU generator for one position in a stream. Data drawn on the CPU do not depend on the device."""
    return torch.Generator().manual_seed(derive(*path))


@contextmanager
def preserve_rng_state() -> Iterator[None]:
    """Restore the caller's global random state afterwards."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=devices):
        yield
