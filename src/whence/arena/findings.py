"""Key findings in words, from the verdicts alone: what the table does not claim, this does not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence import stats
from whence.arena.score import Part

if TYPE_CHECKING:
    from whence.arena.table import Table


def findings(table: Table) -> list[str]:
    """One sentence each: who learned it, who holds beyond training, which differences are real."""
    lines = [
        *_verdicts(table, "id"),
        *_sentences(table, "id"),
        *(_verdicts(table, "ood") if any(row.beyond and row.mastered for row in table.rows) else []),
        *_sentences(table, "ood"),
    ]
    failed = [f"{row.encoding} ({len(row.failed)})" for row in table.rows if row.failed]
    return lines + ([f"Failed runs, in no average: {', '.join(failed)}."] if failed else [])


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
    return told + ([f"Undecided {where} training: {'; '.join(still_open)}."] if still_open else [])


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
