"""How runs of a comparison went on: their losses and evaluations over steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from whence import stats
from whence.features.table import Table
from whence.runs.outcomes import outcome_of
from whence.runs.store import Store

LAST = 0.1
"""Share of the steps whose losses, taken together, are the final one: that of a single batch is noise."""


@dataclass(frozen=True)
class Curves:
    """Of one preset: by run, values by step. Only runs that finished are here."""

    losses: Mapping[str, Mapping[int, float]]
    fvu: Mapping[str, Mapping[int, float]]

    @property
    def final_losses(self) -> dict[str, float]:
        """By run."""
        found = {}
        for run, losses in self.losses.items():
            end = (1 - LAST) * max(losses, default=0)
            found[run] = stats.mean([loss for step, loss in losses.items() if step >= end])
        return found


def curves_of(table: Table, store: Store) -> dict[str, Curves]:
    """By the name of a row."""
    found = {}
    for row in table.rows:
        done = [run for run in row.runs if outcome_of(store, run).state == "finished"]
        records = {run: store.folder(run).metrics() for run in done}
        found[row.name] = Curves(
            {run: {r["step"]: r["loss"] for r in those if "loss" in r} for run, those in records.items()},
            {
                run: {r["step"]: r["metrics"]["curve"] for r in those if "metrics" in r}
                for run, those in records.items()
            },
        )
    return found


def mean_curve(curves: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Over runs, at the steps that all of them have."""
    those = list(curves)
    if not those:
        return {}
    shared = sorted(set(those[0]).intersection(*those[1:]))
    return {step: stats.mean([curve[step] for curve in those]) for step in shared}
