"""How often verdicts are wrong where the truth is known, and how many seeds a true difference takes.

    make validate        # prints the tables and writes them into docs/validation.md, about 6 minutes on one core

Every cell draws many tables of scores and gives them to the code that makes the verdicts of every instrument. A null
case is one of the claim itself: on a new seed, each of two methods is as often better as the other. Rates are of tables
with at least one such verdict; in brackets the upper 95 % limit of the simulation.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy import special

from whence import stats
from whence.stats import fixed, sequential
from whence.stats.evidence import VERDICTS
from whence.tasks.reversed_pattern import ReversedPattern

SEEDS, METHODS = (6, 8, 10, 20), (2, 4, 13)
DESIGNS: tuple[stats.TestDesign, ...] = ("fixed", "sequential")
BEATS = [VERDICTS.index("a beats b"), VERDICTS.index("b beats a")]
TABLES = {2: 4000, 4: 4000, 13: 1000}
DOCUMENT = Path(__file__).parent.parent / "docs" / "validation.md"
Draw = Callable[[np.random.Generator, tuple[int, int, int]], np.ndarray]
"""Scores of the shape (tables, methods, seeds)."""


def exchangeable(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    return rng.normal(0.7, 0.05, shape)


def hard_seeds(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """Some seeds are harder than others, for all methods."""
    return rng.normal(0.7, 0.2, (shape[0], 1, shape[2])) + rng.normal(0, 0.02, shape)


def skewed(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """One method is steady, the others have a long tail and the steady score as their median."""
    scores = 0.7 + 0.03 * (rng.lognormal(0, 1, shape) - 1)
    scores[:, 0] = 0.7
    return scores


def bimodal(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """A seed solves the task or stays at chance."""
    return np.where(rng.random(shape) < 0.5, 1.0, 0.5) - 0.01 * rng.random(shape)


def bimodal_and_steady(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """The same, beside one method that is always half-way."""
    scores = bimodal(rng, shape)
    scores[:, 0] = 0.75
    return scores


def ceiling(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    return np.minimum(rng.normal(0.995, 0.02, shape), 1.0)


def floor(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    return rng.binomial(256, 0.02, shape) / 256


def dependent(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """Accuracies of 64 sequences with 16 answers each, per seed: answers of a hard sequence are wrong together."""
    tables, methods, seeds = shape
    share = rng.beta(2, 1, (tables, 1, seeds, 64))  # the sequences are the same for all methods
    return rng.binomial(16, np.broadcast_to(share, (tables, methods, seeds, 64))).mean(-1) / 16


def redrawn(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """Two real predictors, "AB occurs" and "BC occurs", on 256 sequences that are drawn per seed."""
    right = _predictors()
    chosen = rng.integers(0, right.shape[1], (shape[0], shape[2], 256))
    return np.stack([row[chosen].mean(-1) for row in right], 1)


def _predictors() -> np.ndarray:
    """Where each of the two is right, (2, sequences): equal in the population to less than a point."""
    task = ReversedPattern()
    batch = task.sample(torch.Generator().manual_seed(0), 20_000, 32)
    tokens = batch.inputs.numpy()
    found = [((tokens[:, :-1] == a) & (tokens[:, 1:] == a + 1)).any(1) for a in (0, 1)]
    return np.stack([predicted == (batch.targets.numpy() == 1) for predicted in found])


NULLS: dict[str, Draw] = {
    "exchangeable": exchangeable,
    "hard and easy seeds": hard_seeds,
    "skewed against steady": skewed,
    "bimodal": bimodal,
    "bimodal against steady": bimodal_and_steady,
    "ceiling effect": ceiling,
    "floor effect": floor,
    "answers that depend on each other": dependent,
}


@dataclass(frozen=True)
class Disagreement:
    """One steady method, the others better on most seeds and much worse on a few."""

    name: str
    steady: float
    failure: float
    """Probability that a seed fails"""

    def draw(self, rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
        scores = np.where(rng.random(shape) < self.failure, 0.0, 1.0)
        scores[:, 0] = self.steady
        return scores


DISAGREEMENTS = [
    Disagreement("steady .9, others 1.0 but for 10 % failures: equal means", 0.9, 0.1),
    Disagreement("steady .9, others 1.0 but for 20 % failures: worse mean", 0.9, 0.2),
]


def advantages(scores: np.ndarray) -> np.ndarray:
    """(tables, methods, seeds) → (tables, pairs, seeds)"""
    first, second = zip(*itertools.combinations(range(scores.shape[1]), 2), strict=True)
    return scores[:, list(first)] - scores[:, list(second)]


def verdicts(differences: np.ndarray, design: stats.TestDesign) -> Iterator[np.ndarray]:
    """Of every number of seeds at which the design is read: (tables, pairs) indices into `VERDICTS`."""
    margins = np.full(differences.shape[1], stats.ACCURACY.tie_margin)
    if design == "fixed":
        yield fixed.decide(differences, margins, stats.ALPHA).verdict
        return
    for seeds in range(stats.SEEDS_TO_DECIDE, differences.shape[2] + 1):
        yield sequential.decide(differences[..., :seeds], margins, stats.ALPHA).verdict


@dataclass(frozen=True)
class Rate:
    count: int
    tables: int

    @property
    def share(self) -> float:
        return self.count / self.tables

    @property
    def limit(self) -> float:
        """Upper 95 % limit (Clopper-Pearson, one-sided)."""
        return (
            1.0
            if self.count == self.tables
            else float(special.betaincinv(self.count + 1, self.tables - self.count, 0.95))
        )

    def __str__(self) -> str:
        return f"{100 * self.share:.1f} [{100 * self.limit:.1f}]"


def false_beats(draw: Draw, seeds: int, methods: int, design: stats.TestDesign, tables: int, stream: int = 0) -> Rate:
    rng = np.random.default_rng([seeds, methods, DESIGNS.index(design), stream])
    differences = advantages(draw(rng, (tables, methods, seeds)))
    wrong = np.zeros(tables, dtype=bool)
    for verdict in verdicts(differences, design):
        wrong |= np.isin(verdict, BEATS).any(1)
    return Rate(int(wrong.sum()), tables)


def disagreement(
    case: Disagreement, seeds: int, methods: int, design: stats.TestDesign, tables: int
) -> tuple[Rate, Rate, Rate]:
    """Tables with a winner at all; with a winner although a failure of it was seen; that end mixed, where one was."""
    rng = np.random.default_rng([seeds, methods, DESIGNS.index(design)])
    scores = case.draw(rng, (tables, methods, seeds))
    differences = advantages(scores)
    against = methods - 1  # the first pairs are those with the steady method
    failed = (scores[:, 1:] == 0).any(2)
    *_, last = verdicts(differences, design)
    beats, mixed = np.isin(last[:, :against], BEATS), last[:, :against] == VERDICTS.index("mixed")
    seen = failed.any(1)
    return (
        Rate(int(beats.any(1).sum()), tables),
        Rate(int((beats & failed).any(1).sum()), tables),
        Rate(int((mixed & failed).any(1)[seen].sum()), max(1, int(seen.sum()))),
    )


def false_ties(seeds: int, design: stats.TestDesign, tables: int) -> tuple[Rate, Rate]:
    """Two methods three points apart; and one whose mean is four points lower through failures in 5 % of the seeds."""
    rng = np.random.default_rng([seeds, DESIGNS.index(design)])
    apart = rng.normal(0.03, 0.02, (tables, 1, seeds))
    rare = np.where(rng.random((tables, 1, seeds)) < 0.05, -0.99, 0.01)
    rates = []
    for differences in (apart, rare):
        tied = np.zeros(tables, dtype=bool)
        for verdict in verdicts(differences, design):
            tied |= (verdict == VERDICTS.index("tied")).any(1)
        rates.append(Rate(int(tied.sum()), tables))
    return rates[0], rates[1]


def seeds_for_power(
    difference: float, noise: float, methods: int, design: stats.TestDesign, power: float = 0.8, most: int = 60
) -> int | None:
    """Fewest seeds with which the best of several methods beats a given other one in 80 % of the tables."""
    rng = np.random.default_rng([methods, DESIGNS.index(design), round(1000 * difference)])
    scores = rng.normal(0.5, noise / np.sqrt(2), (400, methods, most))
    scores[:, 0] += difference
    differences = advantages(scores)
    margins = np.full(differences.shape[1], stats.ACCURACY.tie_margin)
    decide = (fixed if design == "fixed" else sequential).decide
    for seeds in range(stats.SEEDS_TO_DECIDE, most + 1):
        if np.mean(decide(differences[..., :seeds], margins, stats.ALPHA).verdict[:, 0] == BEATS[0]) >= power:
            return seeds
    return None


# --- the report


def document(tables: dict[int, int]) -> str:
    return "\n".join([*_nulls(tables), *_disagreements(tables), *_ties(tables), *_power()]) + "\n"


def _nulls(tables: dict[int, int]) -> list[str]:
    cells = list(itertools.product(DESIGNS, METHODS, SEEDS))
    rows: list[tuple[str, dict[tuple[str, int, int], Rate]]] = []
    for name, draw in NULLS.items():
        print(f"null: {name}", file=sys.stderr)
        scale = 4 if draw is dependent else 1  # its draws are large
        rows.append((name, {(d, k, n): false_beats(draw, n, k, d, max(200, tables[k] // scale)) for d, k, n in cells}))
    print("null: two real predictors", file=sys.stderr)
    real = {(d, 2, n): false_beats(redrawn, n, 2, d, tables[2] // 2) for d, n in itertools.product(DESIGNS, SEEDS)}
    rows.append(("two real predictors, evaluation data redrawn per seed", real))
    lines = ["## False winners", "", 'Percentage of tables with any false "beats" (at most 5).', ""]
    for design, methods in itertools.product(DESIGNS, METHODS):
        lines += [f"**{design}, {methods} methods**", "", _head("case", [f"{n} seeds" for n in SEEDS])]
        there = [(name, rates) for name, rates in rows if (design, methods, SEEDS[0]) in rates]
        lines += [_row(name, [str(rates[design, methods, n]) for n in SEEDS]) for name, rates in there] + [""]
    every = [rate for _, rates in rows for rate in rates.values()]
    share, limit = (100 * max(getattr(rate, what) for rate in every) for what in ("share", "limit"))
    return [*lines, f"Largest rate of all {len(every)} cells: {share:.1f} %, largest upper limit: {limit:.1f} %.", ""]


def _disagreements(tables: dict[int, int]) -> list[str]:
    lines = ["## Where median and mean disagree", ""]
    lines += ["Percentage of tables with a winner / with a winner although one of its failures was observed / that end"]
    lines += ["mixed, of those in which a failure was observed.", ""]
    for case, design in itertools.product(DISAGREEMENTS, DESIGNS):
        print(f"disagreement: {case.name}", file=sys.stderr)
        lines += [f"**{case.name}, {design}**", "", _head("methods", [f"{n} seeds" for n in SEEDS])]
        for methods in METHODS:
            found = [disagreement(case, n, methods, design, max(200, tables[methods] // 2)) for n in SEEDS]
            lines.append(_row(str(methods), [" / ".join(f"{100 * r.share:.1f}" for r in three) for three in found]))
        lines.append("")
    return lines


def _ties(tables: dict[int, int]) -> list[str]:
    lines = [
        "## False ties",
        "",
        "Percentage of pairs called tied although their means differ by more than 2 points.",
        "",
    ]
    lines.append(_head("case, design", [f"{n} seeds" for n in SEEDS]))
    for design in DESIGNS:
        found = [false_ties(n, design, tables[2]) for n in SEEDS]
        lines.append(_row(f"3 points apart, {design}", [str(pair[0]) for pair in found]))
        lines.append(_row(f"4 points through failures in 5 % of the seeds, {design}", [str(pair[1]) for pair in found]))
    return [*lines, ""]


def _power() -> list[str]:
    lines = [
        "## Power",
        "",
        "Fewest seeds with which a true difference wins in 80 % of the tables (–: more than 60).",
        "",
    ]
    columns = [f"{design}, {k} methods" for design in DESIGNS for k in (2, 4)]
    lines.append(_head("true difference, standard deviation over seeds", columns))
    for difference, noise in itertools.product((0.02, 0.05, 0.2), (0.02, 0.05)):
        print(f"power: {difference}", file=sys.stderr)
        needed = [seeds_for_power(difference, noise, k, design) for design in DESIGNS for k in (2, 4)]
        label = f"{100 * difference:.0f} points, {100 * noise:.0f} points"
        lines.append(_row(label, ["–" if n is None else str(n) for n in needed]))
    return lines


def _head(first: str, columns: list[str]) -> str:
    return _row(first, columns) + "\n" + _row("---", ["---"] * len(columns))


def _row(first: str, cells: list[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


MARK = "<!-- written by make validate -->\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=float, default=1.0, help="factor of the number of tables drawn per cell")
    options = parser.parse_args()
    text = document({k: max(200, round(options.tables * n)) for k, n in TABLES.items()})
    print(text)
    if options.tables >= 1:
        before = DOCUMENT.read_text().split(MARK)[0]
        DOCUMENT.write_text(before + MARK + text)


if __name__ == "__main__":
    main()
