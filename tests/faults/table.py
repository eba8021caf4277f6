"""The table of docs/reliability.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.faults.kinds import KINDS
from tests.faults.suite import Outcome

DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- faults: written by make faults -->\n", "<!-- end of faults -->"
PROBLEMS = ("lost", "duplicated", "silent change", "outside", "traceback", "hang", "exit code", "stuck")
HEADS = (*PROBLEMS[:-1], "does not resume")


def table(outcomes: Sequence[Outcome], seed: int, seconds: float) -> str:
    done = [outcome for outcome in outcomes if not outcome.skipped]
    families = Counter(kind.family for outcome in done for kind in KINDS if kind.name == outcome.case.kind)
    real = families.pop("processes", 0)
    lines = [
        f"Seed {seed}: {real} faults against real processes and {sum(families.values())} inside of one, "
        f"of {len({outcome.case.kind for outcome in done})} kinds, in {seconds / 60:.0f} minutes on 2 cores. "
        f"{len(outcomes) - len(done)} further trials had no fault: the process had ended before it, for example.",
        "",
        _row(["", "kind", "faults", *HEADS]),
        _row(["---"] * (3 + len(HEADS))),
    ]
    for kind in KINDS:
        these = [outcome for outcome in done if outcome.case.kind == kind.name]
        lines.append(_row([kind.family, kind.name, str(len(these)), *_counts(these)]))
    return "\n".join([*lines, _row(["**all**", "", str(len(done)), *_counts(done)])]) + "\n"


def _counts(outcomes: Sequence[Outcome]) -> list[str]:
    """Trials with each problem."""
    return [str(sum(any(p.startswith(name) for p in outcome.problems) for outcome in outcomes)) for name in PROBLEMS]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write(text: str) -> None:
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(before + BEGIN + text + END + rest.partition(END)[2])
