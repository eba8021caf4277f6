"""The comparison as tables: what the stored runs say, and no more than their statistics allow.

Runs that differ in nothing but seed and encoding make one table. Which runs those are is read off the runs
themselves, so that a table can be made of a plan, of a sweep, or of any runs that somebody names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whence import stats
from whence.arena.findings import findings
from whence.arena.ranking import Comparisons, Looks, judge, rank
from whence.arena.run import Run
from whence.arena.score import Member, Part, Score, score_of
from whence.runs.files import Corrupt, canonical
from whence.runs.outcomes import outcome_of
from whence.runs.store import Store


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
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Runs whose files are not what was written."""
    begun: int = 0
    """Runs that have been started and not finished."""

    @property
    def choices(self) -> list[str]:
        return [f"{name}={value}" for name, value in self.chosen.items()]

    @property
    def name(self) -> str:
        return self.encoding + "".join(f" ({choice})" for choice in self.choices)

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
    def shown_beyond(self) -> Score | None:
        return self.beyond if self.mastered else None

    @property
    def verdict(self) -> str:
        if self.within is None:
            return (
                "failed" if self.failed else "damaged" if self.damaged else "not finished" if self.begun else "not run"
            )
        return self.within.verdict

    @property
    def mastered(self) -> bool:
        """A claim beyond training needs mastery within it first."""
        return self.within is not None and self.within.accuracy >= stats.MASTERED > self.within.floor

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

    @property
    def by_length(self) -> dict[int, list[float]]:
        """Per length, the accuracy of every seed."""
        lengths = (self.members[0].run.train_length, *self.members[0].run.test_lengths) if self.members else ()
        counts = {n: [member.metrics["lengths"][str(n)] for member in self.members] for n in lengths}
        return {n: [c["correct"] / c["total"] for c in per_seed] for n, per_seed in counts.items()}

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
            "damaged": dict(self.damaged),
            "verdict": self.verdict,
            "id": self.within.to_json() if self.within else None,
            "ood": self.shown_beyond.to_json() if self.shown_beyond else self.beyond_verdict or None,
            "gap": self.gap,
            "by_length": {str(length): stats.mean(values) for length, values in self.by_length.items()},
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
        """How many paired seeds its comparisons rest on; where nothing is compared, how many every row has."""
        paired = [c.n for pairs in self.comparisons.values() for c in pairs.values()]
        return min(paired or [row.finished for row in self.rows], default=0)

    @property
    def findings(self) -> list[str]:
        """In words, from the verdicts alone."""
        return findings(self)

    @property
    def heading(self) -> str:
        """What a table of so many seeds may claim."""
        levels = stats.share_alpha({part: len(pairs) for part, pairs in self.comparisons.items()})
        ranked = max((len({n for pair in pairs for n in pair}) for pairs in self.comparisons.values()), default=0)
        return stats.heading(self.seeds, levels, contenders=max(2, ranked), until_decided=self.looks == "often")

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
            "findings": self.findings,
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
        {
            f"{group}.{key}": v
            for group in ("model", "lengths", "training")
            for key, v in _setting(r, tuned)[group].items()
        }
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
    rows = judge(rows)
    setting = setting_of(runs[0], tuned)
    return Table(title, str(runs[0].task), setting, runs[0], tuple(rows), rank(rows, looks), looks)


def _row(encoding: str, runs: Sequence[Run], store: Store, ends: Mapping[str, str], tuned: Sequence[str]) -> Row:
    members: list[Member] = []
    failed: dict[str, str] = {}
    damaged: dict[str, str] = {}
    begun = 0
    for run in runs:
        end = outcome_of(store, run.id, ends)
        if end.state == "finished":
            try:
                members.append(Member(run, dict(end.status), store.folder(run.id).evaluations()))
            except Corrupt as damage:
                damaged[run.id] = str(damage)
        elif end.state == "failed":
            failed[run.id] = end.reason
        elif end.state == "damaged":
            damaged[run.id] = end.reason
        begun += end.status.get("state") in ("running", "interrupted")
    chosen, members, kept = _best_on_validation(runs, members, tuned)
    return Row(
        encoding=encoding,
        runs=tuple(run.id for run in kept),
        members=tuple(members),
        failed={run_id: why for run_id, why in failed.items() if run_id in {run.id for run in kept}},
        damaged={run_id: why for run_id, why in damaged.items() if run_id in {run.id for run in kept}},
        begun=begun,
        within=score_of(members, "id"),
        beyond=score_of(members, "ood"),
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
        return len(group), stats.mean([c["correct"] / c["total"] for c in counts])

    best = max(groups.values(), key=validated)  # most seeds first: an unfinished setting cannot win by its lucky ones
    wanted = setting(best[0].run)
    return wanted, best, [run for run in runs if setting(run) == wanted]


def overall(tables: Sequence[Table]) -> dict[str, tuple[float, int]]:
    """Across tasks: for every encoding that is in all tables, the interquartile mean of its scores, chance-normalised.

    (acc − floor)/(1 − floor) of every seed and task: 0 is what needs no skill, 1 is everything.
    """
    if len({table.task for table in tables}) < 2:
        return {}
    common = set.intersection(*({row.encoding for row in table.rows if row.within} for table in tables))
    found: dict[str, tuple[float, int]] = {}
    for encoding in (row.encoding for row in tables[0].rows if row.encoding in common):
        cells = [row.within for table in tables for row in table.rows if row.encoding == encoding and row.within]
        scores = [
            score for score in cells if score.floor < 1
        ]  # where a shortcut is always right, nothing can be learned
        values = [stats.normalised(a, score.floor) for score in scores for a in score.per_seed]
        if values:
            found[encoding] = stats.iqm(values), len(values)
    return found
