"""The comparison as tables: what the stored runs say, and no more than their statistics allow.

Runs that differ in nothing but seed and encoding make one table. Which runs those are is read off the runs
themselves, so that a table can be made of a plan, of a sweep, or of any runs that somebody names.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from whence import stats
from whence.arena.run import Run
from whence.runs.files import Corrupt, canonical
from whence.runs.store import Store

Part = Literal["id", "ood"]
PARTS: tuple[Part, ...] = ("id", "ood")
Comparisons = Mapping[Part, Mapping[tuple[str, str], stats.Comparison]]
Looks = Literal["once", "often"]
"""Once, at a number of seeds fixed beforehand; or after every seed, until decided, which has to be paid for."""
SeedScores = Mapping[str, Mapping[int, float]]
"""By encoding, by seed."""


@dataclass(frozen=True)
class Score:
    """Over seeds: the accuracy of each, the floors, and the verdict once the table is known."""

    per_seed: tuple[float, ...]
    effective: float
    """Independent answers that one evaluation set is worth: answers within a sequence depend on each other."""
    floors: Mapping[str, float]
    loss: float
    exact: tuple[float, ...] = ()
    """Share of sequences answered without any mistake, per seed; empty where a sequence has one answer."""
    verdict: stats.Verdict = "at chance"

    @property
    def accuracy(self) -> float:
        return sum(self.per_seed) / len(self.per_seed)

    @property
    def floor(self) -> float:
        return max(self.floors.values())

    @property
    def floor_name(self) -> str:
        return max(self.floors, key=lambda name: self.floors[name])

    @property
    def interval(self) -> tuple[float, float]:
        return stats.over_seeds(self.per_seed, self.effective)

    @property
    def p_value(self) -> float:
        return stats.p_above(self.per_seed, self.effective, self.floor)

    def to_json(self) -> dict[str, Any]:
        return {
            "accuracy": self.accuracy,
            "interval": list(self.interval),
            "per_seed": list(self.per_seed),
            "best": max(self.per_seed),
            "solve_rate": stats.solve_rate(self.per_seed),
            "exact": sum(self.exact) / len(self.exact) if self.exact else None,
            "loss": self.loss,
            "floor": self.floor,
            "floor_name": self.floor_name,
            "floors": dict(self.floors),
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Member:
    """One finished run of a row."""

    run: Run
    status: dict[str, Any]
    evaluations: list[dict[str, Any]]

    @property
    def metrics(self) -> dict[str, Any]:
        return self.status["latest"]


@dataclass(frozen=True)
class Row:
    """One encoding over all seeds. Failed and unfinished runs are named, and enter no average."""

    encoding: str
    runs: tuple[str, ...]
    members: tuple[Member, ...]
    failed: Mapping[str, str]
    within: Score | None
    beyond: Score | None
    chosen: Mapping[str, Any]
    """What tuning chose, by name."""

    @property
    def finished(self) -> int:
        return len(self.members)

    @property
    def seconds(self) -> float:
        return sum(member.status["seconds"] for member in self.members)

    @property
    def tokens(self) -> int:
        return sum(member.status["tokens"] for member in self.members)

    def score(self, part: Part) -> Score | None:
        return self.within if part == "id" else self.beyond

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

    @property
    def gap(self) -> float | None:
        """How much is lost beyond training, for those who had something to lose."""
        if self.within is None or self.beyond is None or not self.mastered:
            return None
        return self.within.accuracy - self.beyond.accuracy

    def by_seed(self, part: Part) -> dict[int, float]:
        score = self.score(part)
        return {} if score is None else {m.run.seed: a for m, a in zip(self.members, score.per_seed, strict=True)}

    def to_json(self) -> dict[str, Any]:
        return {
            "encoding": self.encoding,
            "chosen": dict(self.chosen),
            "runs": list(self.runs),
            "seeds": [member.run.seed for member in self.members],
            "finished": self.finished,
            "failed": dict(self.failed),
            "verdict": self.verdict,
            "id": self.within.to_json() if self.within else None,
            "ood": self.beyond.to_json() if self.beyond and self.mastered else self.beyond_verdict or None,
            "gap": self.gap,
            "by_length": {str(length): _mean(values) for length, values in accuracy_by_length(self).items()},
            "seconds": self.seconds,
            "tokens_per_second": self.tokens / self.seconds if self.seconds else 0.0,
        }


@dataclass(frozen=True)
class Table:
    """One task in one setting: its rows, and which of their differences are real."""

    title: str
    task: str
    setting: str
    """All that its runs share, as canonical JSON."""
    run: Run
    """Any of its runs."""
    rows: tuple[Row, ...]
    comparisons: Comparisons
    looks: Looks = "once"

    @property
    def seeds(self) -> int:
        """How many paired seeds the whole table rests on."""
        return min((row.finished for row in self.rows), default=0)

    @property
    def heading(self) -> str:
        """What a table of so many seeds may claim."""
        levels = stats.share_alpha({part: len(pairs) for part, pairs in self.comparisons.items()})
        return stats.heading(self.seeds, levels, contenders=len(self.rows), until_decided=self.looks == "often")

    @property
    def decided(self) -> bool:
        """Nothing that was asked is still open."""
        asked = [c for pairs in self.comparisons.values() for c in pairs.values()]
        return all(c.decided for c in asked)

    def floors(self) -> str:
        """In words."""
        within = next((row.within for row in self.rows if row.within), None)
        beyond = next((row.beyond for row in self.rows if row.beyond), None)
        if within is None:
            return ""
        text = f"floor: {within.floor_name}, {100 * within.floor:.1f} %"
        return text + (f"; beyond: {beyond.floor_name}, {100 * beyond.floor:.1f} %" if beyond else "")

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "task": self.task,
            "seeds": self.seeds,
            "heading": self.heading,
            "rows": [row.to_json() for row in self.rows],
            "comparisons": [
                {"part": part, **c.to_json()} for part, pairs in self.comparisons.items() for c in pairs.values()
            ],
        }


def tabulate(
    runs: Sequence[Run],
    store: Store,
    ends: Mapping[str, str] | None = None,
    *,
    tuned: Sequence[str] = (),
    looks: Looks = "once",
) -> list[Table]:
    """Tables in the order in which the runs were planned. `ends`, from an engine, tells which processes died."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(setting_of(run, tuned), []).append(run)
    titles = _titles([members[0] for members in groups.values()], tuned)
    return [
        _table(title, members, store, ends or {}, tuned, looks)
        for title, members in zip(titles, groups.values(), strict=True)
    ]


def setting_of(run: Run, tuned: Sequence[str] = ()) -> str:
    """What makes runs belong to one table: everything but seed, encoding, and what is tuned."""
    return canonical(_setting(run, tuned))


def _setting(run: Run, tuned: Sequence[str]) -> dict[str, Any]:
    document = run.document()
    del document["seed"], document["model"]["encoding"], document["model"]["positions"]
    for group in ("model", "lengths", "training", "task"):
        for name in tuned:
            document[group].pop(name, None)
    return document


def _titles(runs: Sequence[Run], tuned: Sequence[str]) -> list[str]:
    """The task and the mixer, and of the rest what differs between the tables."""
    flat = [
        {f"{group}.{key}": v for group in ("model", "lengths", "training") for key, v in _setting(r, tuned)[group].items()}
        for r in runs
    ]
    tasks = {str(run.task) for run in runs}
    varying = [
        key
        for key in flat[0]
        # lengths that come with the task go without saying
        if any(len({canonical(f[key]) for f, r in zip(flat, runs, strict=True) if str(r.task) == t}) > 1 for t in tasks)
    ]
    return [
        " · ".join(
            [
                str(run.task),
                str(run.model.mixer),
                *(f"{key.split('.')[1]}={values[key]}" for key in varying if key != "model.mixer"),
            ]
        )
        for run, values in zip(runs, flat, strict=True)
    ]


def _table(
    title: str, runs: Sequence[Run], store: Store, ends: Mapping[str, str], tuned: Sequence[str], looks: Looks
) -> Table:
    contenders: dict[str, list[Run]] = {}
    for run in runs:
        contenders.setdefault(run.model.contender, []).append(run)
    rows = [_row(encoding, members, store, ends, tuned) for encoding, members in contenders.items()]
    rows = _judge(rows)
    setting = setting_of(runs[0], tuned)
    return Table(title, str(runs[0].task), setting, runs[0], tuple(rows), _compare(rows, looks), looks)


def _judge(rows: Sequence[Row]) -> list[Row]:
    """Every cell that is shown is tested against its floor, with one correction over all of them."""
    shown = [(row, part) for row in rows for part in PARTS if part == "id" or row.mastered]
    cells = {(row.encoding, part): score for row, part in shown if (score := row.score(part)) is not None}
    adjusted = stats.holm([score.p_value for score in cells.values()])
    judged = {
        cell: replace(score, verdict=stats.verdict(score.accuracy, p))
        for (cell, score), p in zip(cells.items(), adjusted, strict=True)
    }
    return [
        replace(
            row,
            within=judged.get((row.encoding, "id"), row.within),
            beyond=judged.get((row.encoding, "ood"), row.beyond),
        )
        for row in rows
    ]


def _compare(rows: Sequence[Row], looks: Looks) -> Comparisons:
    """All pairs of encodings that may be ranked; beyond training, of those that mastered the task within it."""
    verdicts: dict[Part, dict[str, str]] = {
        "id": {row.encoding: row.verdict for row in rows if row.within},
        "ood": {row.encoding: row.beyond_verdict for row in rows if row.beyond and row.mastered},
    }
    ranked = {part: stats.rankable(found) for part, found in verdicts.items()}
    scores = {part: {row.encoding: row.by_seed(part) for row in rows if row.score(part)} for part in PARTS}
    return (_compare_once if looks == "once" else _compare_often)(scores, ranked)


def _compare_once(scores: Mapping[Part, SeedScores], ranked: Mapping[Part, Sequence[str]]) -> Comparisons:
    """At a number of seeds fixed beforehand, over the seeds that all contenders have."""
    asked = {part: {name: scores[part][name] for name in names} for part, names in ranked.items() if len(names) > 1}
    levels = stats.share_alpha({part: len(contenders) for part, contenders in asked.items()})
    found: dict[Part, Mapping[tuple[str, str], stats.Comparison]] = {}
    for part, contenders in asked.items():
        seeds = sorted(set.intersection(*(set(by_seed) for by_seed in contenders.values())))
        if seeds:
            paired = {name: [by_seed[seed] for seed in seeds] for name, by_seed in contenders.items()}
            found[part] = stats.compare(paired, levels[part])
    return found


def _compare_often(scores: Mapping[Part, SeedScores], ranked: Mapping[Part, Sequence[str]]) -> Comparisons:
    """After every seed: all pairs pay for the looks, those that may be ranked are shown."""
    differences = {
        (part, one, two): [contenders[one][s] - contenders[two][s] for s in sorted(set(contenders[one]) & set(contenders[two]))]
        for part, contenders in scores.items()
        for one, two in itertools.combinations(contenders, 2)
    }
    found: dict[Part, dict[tuple[str, str], stats.Comparison]] = {}
    for (part, one, two), comparison in stats.sequential(differences).items():
        if one in ranked[part] and two in ranked[part]:
            found.setdefault(part, {})[one, two] = comparison
    return found


def _row(encoding: str, runs: Sequence[Run], store: Store, ends: Mapping[str, str], tuned: Sequence[str]) -> Row:
    members: list[Member] = []
    failed: dict[str, str] = {}
    for run in runs:
        folder = store.folder(run.id)
        status: dict[str, Any] = {"state": "not run"}
        try:
            status = folder.status()
            if status["state"] == "finished":
                members.append(Member(run, status, folder.evaluations()))
        except FileNotFoundError:
            pass
        except Corrupt as damage:
            failed[run.id] = str(damage)
            continue
        if status["state"] == "failed":
            failed[run.id] = status["error"]["message"]
        elif ends.get(run.id) == "crashed":
            failed[run.id] = "its process died; the same command tries again"
    chosen, members, kept = _best_on_validation(runs, members, tuned)
    return Row(
        encoding=encoding,
        runs=tuple(run.id for run in kept),
        members=tuple(members),
        failed={run_id: why for run_id, why in failed.items() if run_id in {run.id for run in kept}},
        within=_score(members, "id"),
        beyond=_score(members, "ood"),
        chosen=chosen,
    )


def _best_on_validation(
    runs: Sequence[Run], members: list[Member], tuned: Sequence[str]
) -> tuple[dict[str, Any], list[Member], Sequence[Run]]:
    """Of the settings that were tried, the one with the best mean on validation data, which no score is made of."""
    if not tuned:
        return {}, members, runs

    def setting(run: Run) -> dict[str, Any]:
        document = run.document()
        groups = [document[group] for group in ("model", "lengths", "training", "task")]
        return {name: group[name] for name in tuned for group in groups if name in group}

    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(canonical(setting(member.run)), []).append(member)
    if not groups:
        return {}, members, runs

    def validated(group: list[Member]) -> tuple[int, float]:
        counts = [member.metrics["validation"] for member in group]
        return len(group), _mean([c["correct"] / c["total"] for c in counts])

    best = max(groups.values(), key=validated)  # most seeds first: an unfinished setting cannot win by its lucky ones
    wanted = setting(best[0].run)
    return wanted, best, [run for run in runs if setting(run) == wanted]


def _score(members: Sequence[Member], part: Part) -> Score | None:
    parts = [member.metrics[part] for member in members if part in member.metrics]
    if not parts:
        return None
    run = members[0].run
    lengths = (run.train_length,) if part == "id" else run.test_lengths
    several = any(p["total"] > p["sequences"] for p in parts)
    return Score(
        per_seed=tuple(p["correct"] / p["total"] for p in parts),
        effective=min(_effective([m.metrics["lengths"][str(n)] for n in lengths]) for m in members),
        floors=_pooled_floors(run, {n: members[0].metrics["lengths"][str(n)]["total"] for n in lengths}),
        loss=_mean([p["loss"] for p in parts]),
        exact=tuple(p["exact"] / p["sequences"] for p in parts) if several else (),
    )


def _effective(sets: Sequence[Mapping[str, Any]]) -> float:
    """Independent answers that the evaluation sets of one run are worth together."""
    names = ("correct", "total", "sequences", "squares")
    return stats.pooled((counts["total"], stats.effective(**{name: counts[name] for name in names})) for counts in sets)


def _pooled_floors(run: Run, totals: Mapping[int, int]) -> dict[str, float]:
    """What each shortcut would have scored on the same answers."""
    floors = {length: run.floors(length) for length in totals}
    names = floors[next(iter(totals))]
    whole = sum(totals.values())
    return {name: sum(floors[n][name] * totals[n] for n in totals) / whole for name in names}


def accuracy_by_length(row: Row) -> dict[int, list[float]]:
    """Per length, the accuracy of every seed."""
    lengths = (row.members[0].run.train_length, *row.members[0].run.test_lengths) if row.members else ()
    counts = {n: [member.metrics["lengths"][str(n)] for member in row.members] for n in lengths}
    return {n: [c["correct"] / c["total"] for c in per_seed] for n, per_seed in counts.items()}


def accuracy_by_position(row: Row, length: int) -> list[tuple[int, float]]:
    """Over seeds, for tasks with an answer per token: (first position of a bin, accuracy), where anything was asked."""
    found = [member.metrics["lengths"][str(length)].get("positions") for member in row.members]
    if not found or found[0] is None:
        return []
    width, total = found[0]["width"], found[0]["total"]
    right = [sum(counts) for counts in zip(*(f["correct"] for f in found), strict=True)]
    return [(i * width, c / (n * len(found))) for i, (c, n) in enumerate(zip(right, total, strict=True)) if n]


def learning_curve(member: Member, part: Part = "id") -> list[tuple[int, float]]:
    headlines = ((e["step"], e["metrics"]["headline"]) for e in member.evaluations)
    return [(step, values[part]) for step, values in headlines if part in values]


def overall(tables: Sequence[Table]) -> dict[str, tuple[float, int]]:
    """Across tasks: for every encoding that is in all tables, the interquartile mean of its scores, chance-normalised.

    (acc − floor)/(1 − floor) of every seed and task: 0 is what needs no skill, 1 is everything.
    """
    if len({table.task for table in tables}) < 2:
        return {}
    common = set.intersection(*({row.encoding for row in table.rows if row.within} for table in tables))
    found: dict[str, tuple[float, int]] = {}
    for encoding in (row.encoding for row in tables[0].rows if row.encoding in common):
        scores = [row.within for table in tables for row in table.rows if row.encoding == encoding and row.within]
        values = [stats.normalised(a, score.floor) for score in scores for a in score.per_seed]
        found[encoding] = stats.iqm(values), len(values)
    return found


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
