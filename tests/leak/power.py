"""How small a leak the audit detects: `python -m tests.leak.power`.

A table of positions is added to a model that otherwise interpolates visible content, so that position explains a known
share of the variance of its predictions. For every share, the measures that decide an audit are drawn many times over
tables, contents and masks; a share is detected where the verdict is leaky. Shares at 50 % and 95 % power are
interpolated between the levels, on a logarithmic scale. About three minutes.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tests.leak.known_models import FEATURES, WithTable, content
from whence.leak.audit.auditing import measure_predictions, sample_of
from whence.leak.audit.own_model import audit_target
from whence.leak.audit.target import AuditTarget
from whence.leak.audit.verdict import leak_of
from whence.leak.metrics import Leak
from whence.random import preserve_rng_state

DRAWS = 24


class TokenNoise(WithTable):
    """Noise of its own for every token."""

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        return super().forward(x, masked) + 0.5 * torch.randn_like(x)


class RowNoise(WithTable):
    """One vector of noise for all tokens of a row."""

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        return super().forward(x, masked) + 0.5 * torch.randn(len(x), 1, FEATURES)


@dataclass(frozen=True)
class Setting:
    name: str
    kind: Callable[[Tensor], WithTable]
    ratios: tuple[float, ...]
    shares: tuple[float, ...]
    """Levels: share of the prediction variance that the table carries"""


PARTLY, WHOLLY = (0.5, 0.9), (0.5, 0.9, 1.0)
"""Mask ratios, without and with 1, where a deterministic model has nothing but position to differ by"""
FEW, MANY = (5e-5, 7e-5, 1e-4, 1.4e-4, 2e-4), (0.0025, 0.0035, 0.005, 0.007, 0.01, 0.014)
SETTINGS = (
    Setting("deterministic, mask ratios below 1", WithTable, PARTLY, MANY),
    Setting("deterministic, all mask ratios", WithTable, WHOLLY, FEW),
    Setting("noise per token, all mask ratios", TokenNoise, WHOLLY, MANY),
    Setting("noise shared by rows, all mask ratios", RowNoise, WHOLLY, FEW),
)


def planted(kind: Callable[[Tensor], WithTable], share: float, seed: int) -> AuditTarget:
    """A model of which position explains this share of the variance of the signal part of its predictions."""
    table = content(seed + 10_000, 1)[0]
    table = (table - table.mean(0)) / table.std(0, correction=0)
    # The content that it interpolates has unit variance: share = size² / (1 + size²).
    return audit_target(kind(math.sqrt(share / (1 - share)) * table), content(seed))


def verdicts(setting: Setting, share: float, draws: int) -> list[Leak]:
    return [verdict(planted(setting.kind, share, seed), setting.ratios, seed) for seed in range(draws)]


def verdict(target: AuditTarget, ratios: Sequence[float], seed: int) -> Leak:
    """As an audit gives it, without the measures that do not decide it."""
    with preserve_rng_state():
        torch.manual_seed(seed)
        targets = target.targets()
        samples = {ratio: partial(sample_of, target, targets, ratio, seed) for ratio in ratios}
        return leak_of({r: measure_predictions(target, sample, r, seed)[1] for r, sample in samples.items()})


def at_power(shares: Sequence[float], rates: Sequence[float], power: float) -> float | None:
    """The share at which the rate crosses `power`; None where it does not within the levels."""
    levels = list(zip(shares, rates, strict=True))
    for (low, below), (high, above) in itertools.pairwise(levels):
        if below < power <= above:
            return low * (high / low) ** ((power - below) / (above - below))
    return None


def main() -> None:
    torch.set_num_threads(1)
    begun, draws = time.monotonic(), int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS
    for setting in SETTINGS:
        null = verdicts(setting, 0.0, draws)
        print(f"{setting.name}: share 0 is called {', '.join(f'{w} {null.count(w)}' for w in sorted(set(null)))}")
        rates = []
        for share in setting.shares:
            found = verdicts(setting, share, draws)
            rates.append(found.count("leaky") / draws)
            print(f"  share {100 * share:.4g} %: leaky in {100 * rates[-1]:.0f} % of {draws}", flush=True)
        for power in (0.5, 0.95):
            share = at_power(setting.shares, rates, power)
            print(
                f"  {100 * power:.0f} % power: " + ("outside the levels" if share is None else f"{100 * share:.2g} %")
            )
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
