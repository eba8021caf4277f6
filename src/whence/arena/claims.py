"""Published claims that can be checked on a CPU. Each has a preset and a verdict computed from its tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from whence import stats
from whence.arena.metrics import Part
from whence.arena.run import ArenaRun
from whence.arena.score import id_score, mastered, ood_score
from whence.experiments.table import Row, Table

Outcome = Literal["reproduced", "not reproduced", "not decidable at this size", "not run"]


class Judgement(NamedTuple):
    """The outcome of a check, and the reason."""

    outcome: Outcome
    reason: str


Tables = Sequence[Table[ArenaRun]]


class Claim(NamedTuple):
    """A published claim, its authors, and the function that judges it by the tables of `preset`."""

    preset: str
    authors: str
    statement: str
    judge: Callable[[Tables], Judgement]


def _percent(row: Row[ArenaRun], part: Part = "id") -> str:
    score = id_score(row) if part == "id" else ood_score(row)
    return f"{row.name} {100 * score.accuracy:.1f} %" if score else f"{row.name} not measured"


def _open(reason: str) -> Judgement:
    return Judgement("not decidable at this size", reason)


def _missing(tables: Tables) -> Judgement | None:
    """The judgement where runs or seeds are missing; None if the claim can be judged."""
    rows = [row for table in tables for row in table.rows]
    finished, planned = sum(len(row.finished) for row in rows), sum(len(row.results) for row in rows)
    if failed := sum(len(row.failed) + len(row.damaged) for row in rows):
        return _open(f"{failed} of {planned} runs failed or are damaged")
    if finished < planned or not rows:
        return Judgement("not run", f"{finished} of {planned} runs have finished")
    for table in tables:
        if table.untested:
            return _open(table.untested)
        if table.seeds < stats.SEEDS_TO_DECIDE:
            return _open(f"{table.seeds} seeds; {stats.SEEDS_TO_DECIDE} are needed")
    return None


def _order_without_encoding(tables: Tables) -> Judgement:
    without = {table.planned.run.model.attention: table.rows[0] for table in tables}
    causal, both = without["causal"], without["bidirectional"]
    words = f"causal {_percent(causal)}, bidirectional {_percent(both)}"
    if both.cell("id").verdict != "at chance":
        return Judgement("not reproduced", words)
    if causal.cell("id").verdict == "at chance":
        return _open(f"the causal model is at chance; {words}")
    return Judgement("reproduced", words)


HELD, FELL = ("none", "t5"), ("rope", "sinusoidal")
"""Encodings that extrapolated in the paper, and encodings with an exact match of 0."""


def _copying(tables: Tables) -> Judgement:
    """Among encodings with at least 95 % ID: do those that extrapolated in the paper have a higher OOD exact match?"""
    exact = {row.name: score.exact for row in tables[0].rows if mastered(row) and (score := ood_score(row))}
    scores = ", ".join(f"{name} {100 * stats.mean(values):.1f} %" for name, values in exact.items())
    missed = ", ".join(_percent(row) for row in tables[0].rows if id_score(row) and not mastered(row))
    words = f"OOD exact match: {scores or 'no encoding reached 95 % ID'}"
    words += f" (below 95 % ID: {missed})" if missed else ""
    held, fell = ([exact[name] for name in names if name in exact] for names in (HELD, FELL))
    if not held or not fell:
        return _open(f"too few encodings reached 95 % ID; {words}")
    better = _compared(tables, *([stats.mean(seed) for seed in zip(*of, strict=True)] for of in (held, fell)))
    if better.winner:
        return Judgement("reproduced" if better.winner == "one" else "not reproduced", words)
    return _open(f"the difference between the two groups is not decided; {words}")


def _compared(tables: Tables, one: Sequence[float], other: Sequence[float]) -> stats.Comparison:
    """Two lists of scores by seed, compared with the test that applies to the tables."""
    scores = {"one": dict(enumerate(one)), "other": dict(enumerate(other))}
    pair = stats.pair(stats.ACCURACY, "one", "other", scores)
    return stats.compare([pair], design=tables[0].design)[0]


NEAR, FAR = 0.25, 0.5
"""Normalized accuracy (0: shortcut baseline, 1: 100 %). Below `NEAR` is near chance, from `FAR` on is not."""


def _stays_at_chance(tables: Tables) -> Judgement:
    """Among encodings with at least 95 % ID: is the interval of the OOD accuracy entirely near chance?"""
    rows = [(row, score) for table in tables for row in table.rows if mastered(row) and (score := ood_score(row))]
    if not rows:
        learned = ", ".join(_percent(row) for table in tables for row in table.rows if id_score(row))
        return _open(f"no encoding reached 95 % ID ({learned})")
    scores = ", ".join(f"{_percent(row)} ID, {100 * ood.accuracy:.1f} % OOD" for row, ood in rows)
    scores += f"; OOD shortcut baseline {100 * rows[0][1].baseline:.1f} %"
    way = {row.name: [stats.normalised(end, ood.baseline) for end in ood.interval or (0.0, 1.0)] for row, ood in rows}
    held = [encoding for encoding, (low, _) in way.items() if low >= FAR]
    between = [encoding for encoding, (_, high) in way.items() if high >= NEAR]
    if held:
        return Judgement("not reproduced", f"normalized OOD accuracy of {', '.join(held)} at least {FAR}: {scores}")
    if between:
        return _open(f"normalized OOD accuracy of {', '.join(between)} may exceed {NEAR}: {scores}")
    return Judgement("reproduced", f"normalized OOD accuracy below {NEAR} for every encoding: {scores}")


def _randomized_extrapolates(tables: Tables) -> Judgement:
    """Reproduced if randomized positions are better OOD than the same encoding without, and reach `FAR`."""
    table = tables[0]
    pairs = [(table.row(row.name.split("+")[-1]), row) for row in table.rows if "+" in row.name]
    words = "OOD: " + "; ".join(f"{_percent(one, 'ood')}, {_percent(other, 'ood')}" for one, other in pairs)
    scores = {row.name: row.cell("ood").per_seed for row in table.rows}
    planned = [stats.pair(stats.ACCURACY, other.name, one.name, scores) for one, other in pairs]
    wins = False
    for (one, other), c in zip(pairs, stats.compare(planned, design=table.design), strict=True):
        ood = ood_score(other)
        if mastered(one) and mastered(other) and ood and ood.interval:
            if c.winner == one.name:
                return Judgement("not reproduced", words)
            wins |= bool(c.winner) and stats.normalised(ood.interval[0], ood.baseline) >= FAR
    return Judgement("reproduced", words) if wins else _open(words)


def _state_runs_full(tables: Tables) -> Judgement:
    """Whether the gap between attention and a fixed-size state grows with the number of pairs."""
    by_pairs: dict[int, dict[str, Row[ArenaRun]]] = {}
    for table in tables:
        by_pairs.setdefault(table.planned.run.train_length, {})[table.planned.run.model.mixer.name] = table.rows[0]
    few, many = min(by_pairs), max(by_pairs)

    def gaps(pairs: int) -> list[float]:
        attention, state = (by_pairs[pairs][mixer].cell("id").per_seed for mixer in ("attention", "mamba"))
        return [attention[seed] - state[seed] for seed in sorted(set(attention) & set(state))]

    growth = _compared(tables, gaps(many), gaps(few))
    shown = {
        pairs: [f"{name} {100 * score.accuracy:.1f} %" for name, row in rows.items() if (score := id_score(row))]
        for pairs, rows in sorted(by_pairs.items())
    }
    words = "; ".join(f"{pairs} pairs: {', '.join(accuracies)}" for pairs, accuracies in shown.items())
    if growth.winner:
        return Judgement("reproduced" if growth.difference > 0 else "not reproduced", words)
    return _open(f"the change of the gap is {growth.verdict}; {words}")


CLAIMS = {
    claim.preset: claim
    for claim in (
        Claim(
            "claim_order_without_encoding",
            "Haviv et al., 2022; Lasri et al., 2022",
            "without an encoding, a causal model recovers absolute positions and a bidirectional model cannot",
            _order_without_encoding,
        ),
        Claim(
            "claim_copy",
            "Kazemnejad et al., 2023",
            "exact match of copying at twice the training length: T5 .420, ALiBi .331, none .305, RoPE and "
            "sinusoidal 0 (12 layers of width 768; with 3 of width 64: T5 .073, none .016)",
            _copying,
        ),
        Claim(
            "claim_repeat_copy",
            "Kazemnejad et al., 2023",
            "exact match of repeated copying at twice the training length: none .986, T5 .771, ALiBi .289, RoPE and "
            "sinusoidal 0",
            _copying,
        ),
        Claim(
            "claim_parity",
            "Delétang et al., 2022; Ruoss et al., 2023",
            "on parity, every encoding stays near chance out of distribution",
            _stays_at_chance,
        ),
        Claim(
            "claim_modular_sum",
            "Delétang et al., 2022; Ruoss et al., 2023",
            "on modular sums, every encoding stays near chance out of distribution",
            _stays_at_chance,
        ),
        Claim(
            "claim_even_pairs",
            "Ruoss et al., 2023",
            "on even pairs (first == last), encodings extrapolate with randomized positions and not without",
            _randomized_extrapolates,
        ),
        Claim(
            "claim_recall_needs_state",
            "Arora et al., 2023 (Zoology)",
            "the gap between attention and mixers with a fixed-size state grows with the number of pairs to recall",
            _state_runs_full,
        ),
    )
}


def judge(claim: Claim, tables: Tables) -> Judgement:
    return _missing(tables) or claim.judge(tables)
