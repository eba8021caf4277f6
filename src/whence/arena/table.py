"""The comparison as rows: what the stored runs say, and no more than their statistics allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from whence import stats
from whence.arena.run import Run
from whence.runs.store import Store


@dataclass(frozen=True)
class Score:
    """Pooled over seeds: counts, the highest floor, and the verdict once the table is known."""

    correct: int
    total: int
    floor: float
    floor_name: str
    per_seed: tuple[float, ...]
    verdict: stats.Verdict

    @property
    def accuracy(self) -> float:
        return self.correct / self.total

    @property
    def interval(self) -> tuple[float, float]:
        return stats.wilson(self.correct, self.total)

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "accuracy": self.accuracy,
            "interval": [low, high],
            "per_seed": list(self.per_seed),
            "floor": self.floor,
            "floor_name": self.floor_name,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Row:
    """One task and encoding over all seeds. Failed and unfinished runs are named, and enter no average."""

    task: str
    encoding: str
    runs: tuple[str, ...]
    finished: int
    failed: dict[str, str]
    within: Score | None = None
    beyond: Score | None = None
    seconds: float = 0.0
    tokens_per_second: float = 0.0
    curves: list[list[tuple[int, float]]] = field(default_factory=list)

    @property
    def mastered(self) -> bool:
        """An out-of-distribution claim needs mastery within the distribution first."""
        return self.within is not None and self.within.accuracy >= stats.MASTERED

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "encoding": self.encoding,
            "runs": list(self.runs),
            "finished": self.finished,
            "failed": self.failed,
            "id": self.within.to_json() if self.within else None,
            "ood": self.beyond.to_json() if self.beyond and self.mastered else "not learned" if self.beyond else None,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
        }


def tabulate(runs: Sequence[Run], store: Store) -> list[Row]:
    """Rows in the order in which the runs were planned."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((str(run.task), run.model.contender), []).append(run)
    measured = {key: _measure(members, store) for key, members in groups.items()}
    cells = [(key, part) for key, found in measured.items() for part in ("id", "ood") if part in found["parts"]]
    p_values = stats.holm([_p_value(measured[key], part) for key, part in cells])
    scores = {(key, part): _score(measured[key], part, p) for (key, part), p in zip(cells, p_values, strict=True)}
    return [
        Row(
            task=key[0],
            encoding=key[1],
            runs=tuple(run.id for run in groups[key]),
            finished=found["finished"],
            failed=found["failed"],
            within=scores.get((key, "id")),
            beyond=scores.get((key, "ood")),
            seconds=found["seconds"],
            tokens_per_second=found["tokens"] / found["seconds"] if found["seconds"] else 0.0,
            curves=found["curves"],
        )
        for key, found in measured.items()
    ]


def _measure(runs: Sequence[Run], store: Store) -> dict[str, Any]:
    found: dict[str, Any] = {
        "finished": 0,
        "failed": {},
        "parts": {},
        "floors": {},
        "seconds": 0.0,
        "tokens": 0,
        "curves": [],
    }
    for run in runs:
        folder = store.folder(run.id)
        if not (folder.path / "status.json").exists():
            continue
        status = folder.status()
        if status["state"] == "failed":
            found["failed"][run.id] = status["error"]["message"]
        if status["state"] != "finished":
            continue
        found["finished"] += 1
        found["seconds"] += status["seconds"]
        found["tokens"] += status["tokens"]
        found["curves"].append([(e["step"], e["metrics"]["headline"]["id"]) for e in folder.evaluations()])
        for part in ("id", "ood"):
            if part in status["latest"]:
                found["parts"].setdefault(part, []).append(status["latest"][part])
                found["floors"].setdefault(part, run.floors(status["latest"], part))
    return found


def _cell(found: dict[str, Any], part: str) -> tuple[int, int, str, float]:
    """Correct and total over seeds, and the highest floor: the one to beat."""
    seeds = found["parts"][part]
    name, floor = max(found["floors"][part].items(), key=lambda item: item[1])
    return sum(s["correct"] for s in seeds), sum(s["total"] for s in seeds), name, floor


def _p_value(found: dict[str, Any], part: str) -> float:
    correct, total, _, floor = _cell(found, part)
    return stats.p_above(correct, total, floor)


def _score(found: dict[str, Any], part: str, adjusted_p: float) -> Score:
    correct, total, name, floor = _cell(found, part)
    per_seed = tuple(s["correct"] / s["total"] for s in found["parts"][part])
    return Score(correct, total, floor, name, per_seed, stats.verdict(correct / total, adjusted_p))
