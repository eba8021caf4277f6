"""The findings of a table as sentences. They are made from its verdicts and claim no more than these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence import stats
from whence.arena.metrics import Part
from whence.arena.page import position_counts
from whence.arena.run import ArenaRun
from whence.arena.score import NOT_LEARNED, id_score, mastered, ood_score
from whence.arena.tuning import ArenaTable, Trial
from whence.experiments.table import Row, Table
from whence.shortcuts.search import baseline_by_position

SEEN = 0.01
"""Share of test sequences seen in training from which on it is reported."""


def findings(table: Table[ArenaRun]) -> list[str]:
    """One sentence each: which encodings learned the task, which extrapolate, which differences are significant."""
    return [
        *_verdicts(table, "id"),
        *_where_it_is_learned(table),
        *_sentences(table, "id"),
        *(_verdicts(table, "ood") if _claims_ood(table) else []),
        *_sentences(table, "ood"),
        *_limits(table),
        *table.lost,
    ]


def conclusion(table: Table[ArenaRun], compared: str) -> str:
    """The result in one sentence; `compared` is that of the comparisons. Then, which encodings are not ranked."""
    if not table.comparisons and not table.untested:
        verdicts = [*_verdicts(table, "id"), *(_verdicts(table, "ood") if _claims_ood(table) else [])]
        return " ".join([*_unranked(table), *verdicts]) if verdicts else "No run has finished."
    compared = " ".join([*_unranked(table), compared])
    below = [row for row in table.rows if row.cell("ood").verdict == NOT_LEARNED]
    left_out = {
        f"Not ranked{' in distribution' * bool(table.planned.run.test_lengths)}": (
            [row for row in table.rows if row.cell("id").verdict == "at chance"],
            " (at chance)",
        ),
        "Not evaluated out of distribution": ([row for row in below if not row.diverged], " (not mastered ID)"),
        "Not evaluated out of distribution, because a seed diverged": ([row for row in below if row.diverged], ""),
        "Without a result": ([row for row in table.rows if table.seeds and not row.finished], ""),
    }
    for text, (rows, why) in left_out.items():
        if rows:
            compared += f" {text}: {stats.listed([row.name for row in rows])}{why}."
    return compared


def _claims_ood(table: Table[ArenaRun]) -> bool:
    return any(ood_score(row) and mastered(row) for row in table.rows)


def _tried(table: Table[ArenaRun]) -> Mapping[str, Sequence[Trial]]:
    return table.planned.tried if isinstance(table.planned, ArenaTable) else {}


def _unranked(table: Table[ArenaRun]) -> list[str]:
    task = table.planned.run.task
    return [] if task.build().ranked else [f"A shortcut solves {task}, so its results rank no encoding."]


def _limits(table: Table[ArenaRun]) -> list[str]:
    """Limits of the interpretation that hold for all scores of the table."""
    lines = _unranked(table)
    seen = max((score.seen for score in map(id_score, table.rows) if score), default=0.0)
    if seen >= SEEN:
        lines.append(f"{100 * seen:.0f} % of the test sequences of the training length also occur in training.")
    untuned = [name for name, trials in _tried(table).items() if not trials]
    if untuned:
        lines.append(f"No tuning run has finished, so the first listed values are used for {stats.listed(untuned)}.")
    for encoding, trials in _tried(table).items():
        if trials:
            values = {part: [100 * trial.accuracy[part] for trial in trials] for part in trials[0].accuracy}
            ranges = ", ".join(f"{part.upper()} {min(of):.1f}–{max(of):.1f} %" for part, of in values.items())
            count = stats.count(trials[0].seeds, "tuning seed")
            lines.append(f"{encoding} over the {len(trials)} settings tried: {ranges} ({count} each).")
    return lines


def _verdicts(table: Table[ArenaRun], part: Part) -> list[str]:
    named: dict[str, list[str]] = {}
    for row in table.rows:
        named.setdefault(row.cell(part).verdict, []).append(row.name)
    words = {
        "solved": "{} solved (99 % or more)",
        "learning": "{} above the shortcut baseline, not solved",
        "at chance": "{} at chance, not ranked",
        "not learned": "{} not evaluated (less than 95 % ID)",
    }
    parts = [words[verdict].format(stats.listed(named[verdict])) for verdict in words if verdict in named]
    return [f"{part.upper()}: {'; '.join(parts)}."] if parts else []


def _sentences(table: Table[ArenaRun], part: Part) -> list[str]:
    """Decided comparisons one by one, the open ones together."""
    lines = []
    for c in table.pairs(part):
        if c.decided:
            lines += [f"{stats.sentence(c)}.", *_dependence(c, _tried(table))]
    return lines + stats.open_pairs([c for c in table.pairs(part) if not c.decided])


def _dependence(c: stats.Comparison, tried: Mapping[str, Sequence[Trial]]) -> list[str]:
    """A setting, tried for both encodings, at which the loser was ahead by more than the tie margin."""
    of_winner = {trial.text: trial.accuracy for trial in tried.get(c.winner or "", ())}
    lead, reversal = c.metric.tie_margin, None
    for trial in tried.get(c.loser or "", ()):
        same = of_winner.get(trial.text, {})
        if c.part in trial.accuracy and c.part in same and trial.accuracy[c.part] - same[c.part] > lead:
            lead, reversal = trial.accuracy[c.part] - same[c.part], trial
    if reversal is None:
        return []
    return [
        f"This depends on the training settings: at {reversal.text}, {c.loser} is ahead by "
        f"{c.metric.display(lead)} {c.metric.unit} (mean of {stats.count(reversal.seeds, 'tuning seed')})."
    ]


def _where_it_is_learned(table: Table[ArenaRun]) -> list[str]:
    """The positions at which partly successful encodings are above the baseline.

    An accuracy between baseline and mastery may come from a few positions alone.
    """
    lines: dict[str, list[str]] = {}
    for row in table.rows:
        learning = row.cell("id").verdict == "learning"
        above, rest = learned_positions(row, table.planned.run.train_length) if learning else ([], [])
        if rest:
            where = (
                "above the shortcut baseline on average; no single position is distinguishable from its own baseline"
            )
            if above:
                positions = f"position{'s' * (len(above) > 1)} {_ranges(above)}"
                others = f"the others ({_ranges(rest)}) are not distinguishable from it"
                where = f"above the shortcut baseline at {positions} only; {others}"
            lines.setdefault(where, []).append(row.name)
    return [f"{stats.listed(encodings)}: {where}." for where, encodings in lines.items()]


def learned_positions(row: Row[ArenaRun], length: int) -> tuple[list[int], list[int]]:
    """The scored positions that are above their shortcut baseline, and the others.

    Both are empty where positions are binned, or where the position alone determines the answer. Exact tests over all
    seeds, Holm-corrected over the positions.
    """
    bins = position_counts(row, length)
    if not bins or bins[0].width > 1:
        return [], []
    baselines = baseline_by_position(row.finished[0].run.task.build(), length)
    places = [place for place in baselines if bins[0].total[place]]
    if any(baselines[place] >= 1 for place in places):
        return [], []
    p_values = [
        stats.p_above([of.correct[at] / of.total[at] for of in bins], sum(of.total[at] for of in bins), baselines[at])
        for at in places
    ]
    adjusted = dict(zip(places, stats.holm(p_values), strict=True))
    above = [place for place in places if adjusted[place] < stats.ALPHA]
    return above, [place for place in places if place not in above]


def _ranges(places: list[int]) -> str:
    """`[1, 2, 3, 7]` → `1–3, 7`."""
    starts = [place for place in places if place - 1 not in places]
    ends = [place for place in places if place + 1 not in places]
    return ", ".join(f"{start}–{end}" if end > start else str(start) for start, end in zip(starts, ends, strict=True))
