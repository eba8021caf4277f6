"""Key findings in words, from the verdicts alone: what the table does not claim, this does not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence import stats
from whence.arena.curves import learned_positions
from whence.arena.score import Part

if TYPE_CHECKING:
    from whence.arena.table import Table


def findings(table: Table) -> list[str]:
    """One sentence each: who learned it, who holds beyond training, which differences are real."""
    lines = [
        *_verdicts(table, "id"),
        *_where_it_is_learned(table),
        *_sentences(table, "id"),
        *(_verdicts(table, "ood") if any(row.beyond and row.mastered for row in table.rows) else []),
        *_sentences(table, "ood"),
    ]
    for what, of in (("Failed", "failed"), ("Damaged", "damaged")):
        found = [f"{row.encoding} ({len(getattr(row, of))})" for row in table.rows if getattr(row, of)]
        more = " ('whence runs verify' says more)" if of == "damaged" else ""
        lines += [f"{what} runs, in no average: {', '.join(found)}{more}."] if found else []
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
    told = [stats.sentence(c, part) + "." for c in pairs if c.decided]
    still_open = [f"{c.a} and {c.b}" for c in pairs if c.verdict == "undecided"]
    where = "within" if part == "id" else "beyond"
    told += [f"Undecided {where} training: {'; '.join(still_open)}."] if still_open else []
    left_out = _left_out(table, part)
    return told + ([f"Not compared {where} training, for want of seeds: {_listed(left_out)}."] if left_out else [])


def _left_out(table: Table, part: Part) -> list[str]:
    """Encodings that may be ranked, in a table where others were, and for which seeds are missing."""
    verdicts = {row.encoding: row.verdict if part == "id" else row.beyond_verdict for row in table.rows}
    compared = {name for pair in table.comparisons.get(part, {}) for name in pair}
    return [name for name in stats.rankable(verdicts) if name not in compared] if compared else []


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
