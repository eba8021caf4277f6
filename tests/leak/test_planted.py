"""The verdict and the source table, on models where the truth is known."""

from __future__ import annotations

import torch

from tests.leak.planted import Planted, offset_r2, plant
from whence.leak.audit.auditing import measure_audit
from whence.leak.audit.verdict import named_pathways


def test_verdicts_and_sources(slow: bool) -> None:
    """≥ 95 % right, no leak with R² ≥ .3 called clean, the source named first in ≥ 90 % of the leaky ones."""
    torch.set_num_threads(1)
    count = 100 if slow else 24
    right = named = leaky = 0
    missed: list[str] = []
    for seed in range(count):
        planted: Planted = plant(seed)
        found = measure_audit(planted.target, (0.5, 0.9, 1.0))
        called = found.verdict.leak != "clean"
        right += called == (planted.source is not None)
        if planted.source is None:
            if called:
                missed.append(f"{planted.target.name}: called {found.verdict.leak}")
            continue
        leaky += 1
        first = named_pathways(found.pathways)[:1]
        if first and first[0].startswith(planted.source):
            named += 1
        else:
            missed.append(f"{planted.target.name} ({planted.strength:.2f}): named {first}")
        if not called:
            assert offset_r2(planted.target) < 0.3, planted.target.name
    print(f"{right} of {count} right, source named in {named} of {leaky}; {missed}")
    assert right >= 0.95 * count, missed
    assert named >= 0.9 * leaky, missed


def test_a_faint_leak_is_still_one() -> None:
    """Predictions that hardly differ, and by position alone where they do."""
    planted = plant(62)
    assert named_pathways(measure_audit(planted.target, (0.5,)).pathways) == ["recurrent state"]


def test_the_oracle_itself_can_tell() -> None:
    leaky, clean = plant(0), plant(1)
    assert leaky.source is not None
    assert clean.source is None
    assert offset_r2(leaky.target) > 0.3
    assert offset_r2(clean.target) < 0.05
