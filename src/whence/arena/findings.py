"""Key findings in words, from the verdicts alone: what the table does not claim, this does not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from whence import stats
from whence.arena.curves import learned_positions
from whence.arena.score import Part
from whence.arena.tuning import Trial, dependent

if TYPE_CHECKING:
    from whence.arena.table import Table

SEEN = 0.01
"""Share of test sequences seen in training from which on it is reported."""


def findings(table: Table) -> list[str]:
    """One sentence each: who learned it, who holds beyond training, which differences are real."""
    lines = [
        *_verdicts(table, "id"),
        *_where_it_is_learned(table),
        *_sentences(table, "id"),
        *(_verdicts(table, "ood") if any(row.beyond and row.mastered for row in table.rows) else []),
        *_sentences(table, "ood"),
    ]
    lines += _limits(table)
    for what, of in (("Failed", "failed"), ("Damaged", "damaged")):
        found = [f"{row.encoding} ({len(getattr(row, of))})" for row in table.rows if getattr(row, of)]
        more = " ('whence runs verify' says more)" if of == "damaged" else ""
        lines += [f"{what} runs, in no average: {', '.join(found)}{more}."] if found else []
    return lines


def _limits(table: Table) -> list[str]:
    """What the scores cannot show, whatever they are."""
    lines = []
    if table.rows and not table.rows[0].ranked:
        lines.append(f"A shortcut solves {table.task}, so that it ranks no encoding.")
    seen = max((row.within.seen for row in table.rows if row.within), default=0.0)
    if seen >= SEEN:
        lines.append(f"{100 * seen:.0f} % of the test sequences of the training length also occur in training.")
    untuned = [row.encoding for row in table.rows if row.chosen and not row.trials]
    if untuned:
        lines.append(f"No tuning run has finished, so that the first values listed are used: {_listed(untuned)}.")
    trials = [(row.encoding, row.trials) for row in table.rows if row.trials]
    for encoding, those in trials:
        ranges = ", ".join(
            f"{part.upper()} {100 * min(values):.1f}–{100 * max(values):.1f} %"
            for part in those[0].accuracy
            if (values := [trial.accuracy[part] for trial in those])
        )
        seeds = f"{those[0].seeds} tuning seed{'s' * (those[0].seeds != 1)}"
        lines.append(f"{encoding} over the {len(those)} settings tried: {ranges} ({seeds} each).")
    return lines


def _verdicts(table: Table, part: Part) -> list[str]:
    named: dict[str, list[str]] = {}
    for row in table.rows:
        verdict = row.verdict if part == "id" else row.beyond_verdict
        if verdict:
            named.setdefault(verdict, []).append(row.encoding)
    where = "Within training" if part == "id" else "Beyond training"
    told = {
        "solved": "{} solved (99 % or more)",
        "learning": "{} above the floor, not solved",
        "at chance": "{} at chance, not ranked",
        "not learned": "{} not judged (not mastered within)",
    }
    parts = [told[verdict].format(_listed(named[verdict])) for verdict in told if verdict in named]
    return [f"{where}: {'; '.join(parts)}."] if parts else []


def _sentences(table: Table, part: Part) -> list[str]:
    """Decided comparisons one by one, the open ones together."""
    pairs = table.comparisons[part].values() if part in table.comparisons else ()
    tried = {row.encoding: row.trials for row in table.rows}
    told = []
    for c in pairs:
        if c.decided:
            told.append(stats.sentence(c) + ".")
            told += _dependence(c, dependent(c, tried), tried)
    return told + stats.open_pairs([c for c in pairs if not c.decided])


def _dependence(c: stats.Comparison, reversal: Trial | None, tried: Mapping[str, Sequence[Trial]]) -> list[str]:
    """A winner that another of the settings tried would have turned into the loser."""
    if reversal is None:
        return []
    other = next(trial for trial in tried[c.winner or ""] if trial.text == reversal.text)
    ahead = reversal.accuracy[c.part] - other.accuracy[c.part]
    seeds = f"{reversal.seeds} tuning seed{'s' * (reversal.seeds != 1)}"
    return [
        f"This depends on the training settings: at {reversal.text}, {c.loser} is ahead by "
        f"{c.metric.display(ahead)} {c.metric.unit} (mean of {seeds})."
    ]


def _where_it_is_learned(table: Table) -> list[str]:
    """An accuracy between floor and mastery may be all of one position and nothing of the others: say which."""
    told: dict[str, list[str]] = {}
    for row in table.rows:
        found = learned_positions(row, table.run.train_length) if row.verdict == "learning" else None
        if found and found[1]:
            above, rest = found
            only = (
                f"above the floor at position{'s' * (len(above) > 1)} {_ranges(above)} only; the rest ({_ranges(rest)})"
            )
            where = (
                f"{only} cannot be told from its floor"
                if above
                else "above the floor as a whole; no single position can be told from its floor"
            )
            told.setdefault(where, []).append(row.encoding)
    return [f"{_listed(encodings)}: {where}." for where, encodings in told.items()]


def _ranges(places: list[int]) -> str:
    """`[1, 2, 3, 7]` → `1–3, 7`."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
