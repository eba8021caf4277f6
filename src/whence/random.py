"""Seeds that depend on a path of names and nothing else."""

from __future__ import annotations

import hashlib


def derive(*path: int | str) -> int:
    """A 63-bit seed from a path such as (seed, "data", step); the same on every machine and in every process."""
    text = "/".join(map(str, path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
