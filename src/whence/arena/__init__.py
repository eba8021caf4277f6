"""Which encoding, and does it hold past the training length? From Python:

    tables = whence.arena.compare(tasks=["k_back_recall"], encodings=["rope", "alibi"], seeds=7)
    print(*tables[0].findings, sep="\\n")

Fields are those of `whence arena --help`, grouped as `--print-spec` shows them: `training={"steps": 600}`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whence.arena.table import Table

__all__ = ["compare"]


def compare(*, store: str | Path | None = None, workers: int | None = None, **fields: Any) -> list[Table]:
    """Run what is not in the store yet, in processes of its own, and return the tables."""
    from whence.arena.decide import settle
    from whence.arena.spec import ArenaSpec
    from whence.runs.engines.local import run_all
    from whence.runs.store import Store

    place = Store(store)
    return settle(ArenaSpec.read(fields), place, lambda runs: run_all(runs, place, workers=workers))[0]
