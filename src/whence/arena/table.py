"""The comparison as tables: what the stored runs say, and no more than their statistics allow.

Runs that differ in nothing but seed and encoding make one table. Which runs those are is read off the runs
themselves, so that a table can be made of a plan, of a sweep, or of any runs that somebody names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from whence import stats
from whence.arena.findings import findings
from whence.arena.ranking import PLANNED, Comparisons, Inference, judge, rank
from whence.arena.run import Run
from whence.arena.score import Member, Part, Score, score_of
from whence.arena.tuning import Key, Trial, setting_of, shared_fields, tuned_values
from whence.runs.files import Corrupt, canonical
from whence.runs.looks import Earlier, consult
from whence.runs.outcomes import outcome_of
from whence.runs.store import Store


@dataclass(frozen=True)
class Row:
    """One encoding over all seeds. Failed and unfinished runs are named, and enter no average."""

    encoding: str
    planned: tuple[Run, ...]
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
    ranked: bool = True
    """Whether the task can rank anybody: not if a shortcut solves it."""
    trials: tuple[Trial, ...] = ()
    """What tuning tried."""
    diverged: frozenset[int] = frozenset()
    """Seeds on which training failed by its own numbers."""

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(run.id for run in self.planned)

    @property
    def ended(self) -> frozenset[str]:
        """Runs that finished or diverged."""
        diverged = [run.id for run in self.planned if run.seed in self.diverged]
        return frozenset([*(member.run.id for member in self.members), *diverged])

    @property
    def complete(self) -> bool:
        """Nothing that was planned is still to come."""
        return self.finished + len(self.failed) + len(self.damaged) == len(self.runs)

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
        """A claim beyond training needs mastery within it first, on every seed that was trained."""
        if self.within is None or self.diverged:
            return False
        return self.within.accuracy >= stats.MASTERED > self.within.floor

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
    inference: Inference = PLANNED
    family: int = 0
    """How many comparisons share the error."""
    earlier: int = 0
    """Seeds of another plan whose results were shown before; 0: none."""
    untested: str = ""
    """Why nothing is tested; empty if it is."""

    @property
    def _paired(self) -> list[int]:
        """The paired seeds of each comparison; where nothing is compared, the seeds of each row."""
        paired = [c.n for pairs in self.comparisons.values() for c in pairs.values()]
        return paired or [row.finished for row in self.rows]

    @property
    def seeds(self) -> int:
        """Paired seeds of the comparison that has most."""
        return max(self._paired, default=0)

    @property
    def findings(self) -> list[str]:
        """In words, from the verdicts alone."""
        return findings(self)

    @property
    def heading(self) -> str:
        """What a table of so many seeds may claim."""
        return stats.heading(
            self.seeds,
            self.family,
            [stats.ACCURACY],
            design=self.inference.design,
            family=self.inference.family,
            earlier=self.earlier,
            fewest=min(self._paired, default=0),
            untested=self.untested,
        )

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
            "design": self.inference.design,
            "family": self.family,
            "comparisons": [c.to_json() for pairs in self.comparisons.values() for c in pairs.values()],
        }


def tabulate(
    runs: Sequence[Run],
    store: Store,
    ends: Mapping[str, str] | None = None,
    *,
    tuned: Sequence[str] = (),
    trials: Mapping[Key, Sequence[Trial]] | None = None,
    inference: Inference = PLANNED,
    tested: bool = True,
) -> list[Table]:
    """Tables in the order in which the runs were planned.

    `ends`, from an engine, tells which processes died; `trials`, what tuning tried. Earlier looks at the same encodings
    decide which test applies (`whence.runs.looks`). Runs that were chosen by hand, maybe by their results, are not a
    planned comparison, and not `tested`.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(setting_of(run, tuned), []).append(run)
    titles = _titles([members[0] for members in groups.values()], tuned)
    rows = {
        setting: judge(_rows(setting, members, store, ends or {}, tuned, trials or {}))
        for setting, members in groups.items()
    }
    if not tested:
        return [
            Table(title, str(groups[s][0].task), s, groups[s][0], tuple(rows[s]), {})
            for title, s in zip(titles, groups, strict=True)
        ]
    earlier = _shown_before([groups[s] for s in groups], list(rows.values()), store, inference)
    complete = [all(row.complete for row in rows[s]) for s in groups]
    if inference.family == "sheet":
        complete = [all(complete)] * len(complete)
    designs: list[stats.TestDesign | None] = [
        before.design(inference.design, complete=whole) for before, whole in zip(earlier, complete, strict=True)
    ]
    ranked = rank(list(rows.values()), inference, designs, [before.comparisons for before in earlier])
    return [
        Table(
            title,
            str(groups[s][0].task),
            s,
            groups[s][0],
            tuple(rows[s]),
            comparisons,
            replace(inference, design=design or inference.design),
            family,
            before.seeds,
            before.why_not(inference.design, complete=whole),
        )
        for title, s, design, before, whole, (comparisons, family) in zip(
            titles, groups, designs, earlier, complete, ranked, strict=True
        )
    ]


def _shown_before(
    runs: Sequence[Sequence[Run]], rows: Sequence[Sequence[Row]], store: Store, inference: Inference
) -> list[Earlier]:
    """What earlier looks permit for each table; these results count as shown from now on."""
    tables = list(zip(runs, rows, strict=True))
    looks = [
        (list(members), frozenset().union(*(row.ended for row in of)), _look_pairs(members, inference))
        for members, of in tables
    ]
    if inference.family == "sheet":
        members, ended, pairs = zip(*looks, strict=True)
        whole = consult(list(chain(*members)), frozenset().union(*ended), list(chain(*pairs)), store)
        return [whole] * len(looks)
    return [consult(members, ended, pairs, store) for members, ended, pairs in looks]


def _look_pairs(runs: Sequence[Run], inference: Inference) -> list[tuple[Run, Run, str]]:
    first = {run.model.contender: run for run in reversed(runs)}
    lengths = runs[0].test_lengths
    parts = ("id", f"ood {lengths}") if lengths else ("id",)
    return [(first[a], first[b], part) for part in parts for a, b in inference.pairs(list(first))]


def _titles(runs: Sequence[Run], tuned: Sequence[str]) -> list[str]:
    """The task and the mixer, and of the rest what differs between the tables."""
    flat = [
        {
            f"{group}.{key}": v
            for group in ("model", "lengths", "training")
            for key, v in shared_fields(r, tuned)[group].items()
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


def _rows(
    setting: str,
    runs: Sequence[Run],
    store: Store,
    ends: Mapping[str, str],
    tuned: Sequence[str],
    trials: Mapping[Key, Sequence[Trial]],
) -> list[Row]:
    contenders: dict[str, list[Run]] = {}
    for run in runs:
        contenders.setdefault(run.model.contender, []).append(run)
    return [
        _row(encoding, members, store, ends, tuned, trials.get((setting, encoding), ()))
        for encoding, members in contenders.items()
    ]


def _row(
    encoding: str,
    runs: Sequence[Run],
    store: Store,
    ends: Mapping[str, str],
    tuned: Sequence[str],
    trials: Sequence[Trial],
) -> Row:
    members: list[Member] = []
    failed: dict[str, str] = {}
    damaged: dict[str, str] = {}
    begun, diverged = 0, []
    for run in runs:
        end = outcome_of(store, run.id, ends)
        if end.state == "finished":
            try:
                members.append(Member(run, dict(end.status), store.folder(run.id).evaluations()))
            except Corrupt as damage:
                damaged[run.id] = str(damage)
        elif end.state == "failed":
            failed[run.id] = end.reason
            diverged += [run.seed] if end.diverged else []
        elif end.state == "damaged":
            damaged[run.id] = end.reason
        begun += end.status.get("state") in ("running", "interrupted")
    return Row(
        encoding=encoding,
        planned=tuple(runs),
        members=tuple(members),
        failed=failed,
        damaged=damaged,
        begun=begun,
        within=score_of(members, "id"),
        beyond=score_of(members, "ood"),
        chosen=tuned_values(runs[0], tuned),
        ranked=runs[0].task.build().ranked,
        diverged=frozenset(diverged),
        trials=tuple(trials),
    )


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
