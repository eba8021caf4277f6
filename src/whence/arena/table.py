"""The comparison as rows: what the stored runs say, and no more than their statistics allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whence import stats
from whence.arena.run import Run
from whence.runs.files import Corrupt
from whence.runs.store import Store


@dataclass(frozen=True)
class Score:
    """Over seeds: the accuracy of each, the highest floor, and the verdict once the table is known."""

    per_seed: tuple[float, ...]
    total: int
    floor: float
    floor_name: str
    verdict: stats.Verdict = "at chance"

    @property
    def accuracy(self) -> float:
        return sum(self.per_seed) / len(self.per_seed)

    @property
    def interval(self) -> tuple[float, float]:
        return stats.over_seeds(self.per_seed, self.total)

    @property
    def p_value(self) -> float:
        return stats.p_above(self.per_seed, self.total, self.floor)

    def to_json(self) -> dict[str, Any]:
        return {
            "accuracy": self.accuracy,
            "interval": list(self.interval),
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
    within: Score | None
    beyond: Score | None
    seconds: float
    tokens: int
    curves: list[list[tuple[int, float]]]

    @property
    def verdict(self) -> str:
        if self.within is None:
            return "failed" if self.failed else "not run"
        return self.within.verdict

    @property
    def mastered(self) -> bool:
        """A claim beyond training needs mastery within it first."""
        return self.within is not None and self.within.accuracy >= stats.MASTERED

    @property
    def beyond_verdict(self) -> str:
        if self.beyond is None:
            return ""
        return self.beyond.verdict if self.mastered else "not learned"

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "encoding": self.encoding,
            "runs": list(self.runs),
            "finished": self.finished,
            "failed": self.failed,
            "verdict": self.verdict,
            "id": self.within.to_json() if self.within else None,
            "ood": self.beyond.to_json() if self.beyond and self.mastered else self.beyond_verdict or None,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens / self.seconds if self.seconds else 0.0,
        }


def seeds_in(rows: Sequence[Row]) -> int:
    """How many paired seeds the whole table rests on."""
    return min((row.finished for row in rows), default=0)


def floors_of(rows: Sequence[Row]) -> str:
    """The floors of one task's cells, in words."""
    within = next((row.within for row in rows if row.within), None)
    beyond = next((row.beyond for row in rows if row.beyond), None)
    if within is None:
        return ""
    text = f"floor: {within.floor_name}, {100 * within.floor:.1f} %"
    return text + (f"; beyond: {beyond.floor_name}, {100 * beyond.floor:.1f} %" if beyond else "")


def tabulate(runs: Sequence[Run], store: Store, ends: Mapping[str, str] | None = None) -> list[Row]:
    """Rows in the order in which the runs were planned. `ends`, from an engine, tells which processes died."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((str(run.task), run.model.contender), []).append(run)
    rows = [_measure(task, encoding, members, store, ends or {}) for (task, encoding), members in groups.items()]
    return _judge(rows)


def _judge(rows: list[Row]) -> list[Row]:
    """Every cell that is shown is tested against its floor, with one correction over all of them."""
    shown = [(row, part) for row in rows for part in ("within", "beyond") if part == "within" or row.mastered]
    cells = {(id(row), part): getattr(row, part) for row, part in shown if getattr(row, part) is not None}
    adjusted = stats.holm([score.p_value for score in cells.values()])
    judged = {
        cell: replace(score, verdict=stats.verdict(score.accuracy, p))
        for (cell, score), p in zip(cells.items(), adjusted, strict=True)
    }
    return [
        replace(row, **{part: judged[id(row), part] for part in ("within", "beyond") if (id(row), part) in judged})
        for row in rows
    ]


def _measure(task: str, encoding: str, runs: Sequence[Run], store: Store, ends: Mapping[str, str]) -> Row:
    finished: list[tuple[Run, dict[str, Any]]] = []
    failed: dict[str, str] = {}
    curves = []
    for run in runs:
        folder = store.folder(run.id)
        status: dict[str, Any] = {"state": "not run"}
        try:
            status = folder.status()
            if status["state"] == "finished":
                curves.append([(e["step"], e["metrics"]["headline"]["id"]) for e in folder.evaluations()])
                finished.append((run, status))
        except FileNotFoundError:
            pass
        except Corrupt as damage:
            failed[run.id] = str(damage)
            continue
        if status["state"] == "failed":
            failed[run.id] = status["error"]["message"]
        elif ends.get(run.id) == "crashed":
            failed[run.id] = "its process died; the same command tries again"
    return Row(
        task=task,
        encoding=encoding,
        runs=tuple(run.id for run in runs),
        finished=len(finished),
        failed=failed,
        within=_score(finished, "id"),
        beyond=_score(finished, "ood"),
        seconds=sum(status["seconds"] for _, status in finished),
        tokens=sum(status["tokens"] for _, status in finished),
        curves=curves,
    )


def _score(finished: list[tuple[Run, dict[str, Any]]], part: str) -> Score | None:
    parts = [status["latest"][part] for _, status in finished if part in status["latest"]]
    if not parts:
        return None
    run, status = finished[0]
    name, floor = max(run.floors(status["latest"], part).items(), key=lambda item: item[1])
    return Score(tuple(p["correct"] / p["total"] for p in parts), parts[0]["total"], floor, name)
