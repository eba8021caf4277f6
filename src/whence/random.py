"""Random streams: seeds derived from a path of names, addressed by name and step instead of carried as state.

Because the generator of step 700 is a function of (seed, stream, 700), a run that resumes there draws exactly
what it would have drawn, and evaluating more often changes nothing in training.
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

    Evaluation data are drawn per seed, and are the same for every variant of that seed. A set that all seeds shared
    would put its own luck into every comparison, and no number of seeds could average it away.
    """

    data: int
    init: int
    dropout: int
    evaluation: int

    @classmethod
    def of(cls, seed: int) -> Streams:
        return cls(*(derive(seed, stream) for stream in ("data", "init", "dropout", "evaluation")))


def seed_torch(*path: int | str) -> None:
    """Seed torch's global generators for one place in a stream."""
    torch.manual_seed(derive(*path))


def generator(*path: int | str) -> torch.Generator:
    """A CPU generator for one place in a stream; data are made on the CPU so that devices agree on them."""
    return torch.Generator().manual_seed(derive(*path))


@contextmanager
def preserve_rng_state() -> Iterator[None]:
    """Leave the caller's global random state as it was."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=devices):
        yield
