"""Accuracy of an encoding over seeds, and its shortcut baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whence import stats
from whence.arena.metrics import PARTS, Part
from whence.arena.run import ArenaRun
from whence.experiments.results import RunResult, final_metrics
from whence.experiments.table import Cell, Row

NOT_LEARNED = "not learned"


@dataclass(frozen=True)
class Score(Cell):
    """Accuracy of every seed, the shortcut baselines, and the verdict, which depends on the whole table."""

    effective: float = 1.0
    """Effective number of independent answers of all seeds together; answers within a sequence are dependent."""
    baselines: Mapping[str, float] = field(default_factory=dict)
    """Accuracy of every shortcut on the same answers, by name"""
    baseline_limit: float | None = None
    """Upper 95 % limit of the highest baseline, which is an estimate; None: it is exact"""
    loss: float = 0.0
    seen: float = 0.0
    """Fraction of the test sequences that also occur in training"""
    exact: tuple[float, ...] = ()
    """Exact match (fraction of sequences without an error) per seed; empty where a sequence has one answer"""
    by_length: Mapping[int, float] = field(default_factory=dict)
    """Mean accuracy over seeds"""

    @property
    def accuracy(self) -> float:
        return stats.mean(list(self.per_seed.values()))

    @property
    def exact_share(self) -> float | None:
        return stats.mean(self.exact) if self.exact else None

    @property
    def baseline(self) -> float:
        return max(self.baselines.values())

    @property
    def baseline_mark(self) -> float:
        return self.baseline

    @property
    def baseline_name(self) -> str:
        return max(self.baselines, key=lambda name: self.baselines[name])

    @property
    def p_value(self) -> float:
        """Probability of an accuracy at least this high if every seed were at the upper limit of the baseline."""
        return stats.p_above(list(self.per_seed.values()), self.effective, self.baseline_limit or self.baseline)

    def to_json(self) -> dict[str, Any]:
        """Without numbers for OOD cells of encodings that did not reach 95 % in distribution."""
        if self.verdict == NOT_LEARNED:
            return {"text": self.text, "verdict": self.verdict}
        return {
            **super().to_json(),
            "solve_rate": stats.solve_rate(list(self.per_seed.values())),
            "exact": self.exact_share,
            "loss": self.loss,
            "seen_in_training": self.seen,
            "baseline": self.baseline,
            "baseline_name": self.baseline_name,
            "baselines": dict(self.baselines),
            "by_length": {str(length): accuracy for length, accuracy in self.by_length.items()},
        }


def score_of(results: Sequence[RunResult[ArenaRun]], part: Part) -> Score | None:
    finished = [final_metrics(result) for result in results]
    parts = [counts for metrics in finished if (counts := metrics.part(part))]
    if not parts:
        return None
    run = results[0].run
    lengths = (run.train_length,) if part == "id" else run.test_lengths
    sets = {n: [metrics.lengths[n] for metrics in finished] for n in lengths}
    totals = {n: of[0].total for n, of in sets.items()}
    limits = sum(run.stated_baseline(n).interval[1] * total for n, total in totals.items())
    by_seed = zip(*sets.values(), strict=True)
    effective = sum(stats.pooled((counts.total, counts.effective) for counts in of) for of in by_seed)
    seen = sum(metrics.seen_in_training for metrics in finished) if part == "id" else 0
    several = any(counts.total > counts.sequences for counts in parts)
    accuracies = [counts.accuracy for counts in parts]
    low, high = stats.over_seeds(accuracies, effective)
    return Score(
        text=f"{100 * stats.mean(accuracies):.1f} [{100 * low:.1f}, {100 * high:.1f}]",
        per_seed={result.run.seed: accuracy for result, accuracy in zip(results, accuracies, strict=True)},
        interval=(low, high),
        verdict="at chance",
        effective=effective,
        baselines=_pooled_baselines(run, totals),
        baseline_limit=limits / sum(totals.values()),
        loss=stats.mean([counts.loss for counts in parts]),
        seen=seen / sum(counts.sequences for counts in parts),
        exact=tuple(counts.exact / counts.sequences for counts in parts) if several else (),
        by_length={n: stats.mean([counts.accuracy for counts in of]) for n, of in sets.items()},
    )


def id_score(row: Row[ArenaRun]) -> Score | None:
    cell = row.cells.get("id")
    return cell if isinstance(cell, Score) else None


def ood_score(row: Row[ArenaRun]) -> Score | None:
    """The OOD score, also of encodings that did not reach 95 % in distribution."""
    cell = row.cells.get("ood")
    return cell if isinstance(cell, Score) else None


def mastered(row: Row[ArenaRun]) -> bool:
    """Whether ID accuracy is at least 95 %, with no diverged seed. OOD accuracy is reported only then."""
    score = id_score(row)
    return score is not None and not row.diverged and score.accuracy >= stats.MASTERED > score.baseline


def judge(rows: Sequence[Row[ArenaRun]]) -> list[Row[ArenaRun]]:
    """Test every reported cell against its shortcut baseline, Holm-corrected over all cells of the table."""
    shown = {
        (row.name, part): score
        for row in rows
        for part, score in (("id", id_score(row)), ("ood", ood_score(row) if mastered(row) else None))
        if score is not None
    }
    adjusted = dict(zip(shown, stats.holm([score.p_value for score in shown.values()]), strict=True))
    judged = []
    for row in rows:
        cells = dict(row.cells)
        for part in PARTS:
            score = shown.get((row.name, part))
            if score is not None:
                verdict = stats.verdict(score.accuracy, adjusted[row.name, part])
                survivors = part == "id" and row.diverged and verdict == "solved"
                cells[part] = replace(score, verdict="learning" if survivors else verdict)
            elif part == "ood" and (ood := ood_score(row)):
                cells[part] = replace(ood, text="", verdict=NOT_LEARNED)
        judged.append(replace(row, cells=cells))
    return judged


def _pooled_baselines(run: ArenaRun, totals: Mapping[int, int]) -> dict[str, float]:
    """Accuracy of every shortcut on the same answers, and of the best shortcut at each length."""
    baselines = {length: run.shortcut_baselines(length) for length in totals}
    best = {n: max(by_name, key=by_name.__getitem__) for n, by_name in baselines.items()}
    first, *others = baselines.values()
    choices = {name: dict.fromkeys(totals, name) for name in first if all(name in other for other in others)}
    choices[" / ".join(dict.fromkeys(best.values()))] = best
    whole = sum(totals.values())
    return {name: sum(baselines[n][of[n]] * totals[n] for n in totals) / whole for name, of in choices.items()}
