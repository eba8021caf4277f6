"""Write the tables of README from the results that were measured.

    make publish        # README.md between its markers, from results/*.json

A results file is what `whence report NAME --out results/NAME.json` writes: configuration, scores of every seed,
verdicts and versions. The README is never edited between the markers by hand; a test compares it with the files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent
README = PROJECT / "README.md"
FIXED, TUNED = (PROJECT / "results" / f"source_encodings{suffix}.json" for suffix in ("", "_tuned"))
BLOCK = re.compile(r"(<!-- results: encodings -->\n).*?(<!-- end of results -->)", re.DOTALL)


def encodings() -> str:
    """The four tasks of the encodings document, with its one learning rate and with one chosen per encoding."""
    fixed, tuned = (json.loads(path.read_text()) for path in (FIXED, TUNED))
    seeds = fixed["tables"][0]["seeds"]
    lines = [
        f"Accuracy in %, mean over {seeds} seeds with 95 % intervals. *Fixed*: the document's settings (lr 0.003, "
        "constant). *Tuned*: learning rate and schedule chosen per encoding on validation data of other seeds.",
        "",
        "| task | encoding | ID, fixed | OOD, fixed | ID, tuned | OOD, tuned | chosen |",
        "|---|---|---|---|---|---|---|",
    ]
    sentences = []
    for before, after in zip(fixed["tables"], tuned["tables"], strict=True):
        for one, two in zip(before["rows"], after["rows"], strict=True):
            chosen = ", ".join(f"{name} {value}" for name, value in two["chosen"].items())
            cells = [_cell(row, part) for row in (one, two) for part in ("id", "ood")]
            lines.append(f"| {before['task']} | {one['encoding']} | {' | '.join(cells)} | {chosen} |")
        sentences.append(f"- **{before['task']}** (shortcut baseline {_baseline(before)}): {_verdicts(before, after)}")
    return "\n".join([*lines, "", *sentences]) + "\n"


def _cell(row: dict[str, Any], part: str) -> str:
    score = row[part]
    if not isinstance(score, dict):
        return str(score or "–")
    low, high = score["interval"]
    text = f"{100 * score['accuracy']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{text}, at chance" if score["verdict"] == "at chance" else text


def _baseline(table: dict[str, Any]) -> str:
    score = next(row["id"] for row in table["rows"] if row["id"])
    return f"{100 * score['floor']:.1f} %, {score['floor_name']}"


def _verdicts(fixed: dict[str, Any], tuned: dict[str, Any]) -> str:
    """Verdicts that both settings give, and those that depend on the setting."""
    both, depends = [], []
    known = [{(c["part"], c["a"], c["b"]): c for c in table["comparisons"]} for table in (fixed, tuned)]
    for key in dict.fromkeys([*known[0], *known[1]]):
        words = [_word(found.get(key)) for found in known]
        part, a, b = key
        if words[0] == words[1]:
            both.append(f"{words[0].format(a=a, b=b)} {part.upper()}")
        else:
            depends.append(f"{part.upper()} {a} and {b} ({' / '.join(word.format(a=a, b=b) for word in words)})")
    lines = [f"under both settings {'; '.join(both)}" if both else "no verdict holds under both settings"]
    if depends:
        lines.append(f"depending on the settings (fixed / tuned): {'; '.join(depends)}")
    return ". ".join(lines) + "."


def _word(comparison: dict[str, Any] | None) -> str:
    if comparison is None:
        return "not ranked"
    winners = {"a beats b": "{a} beats {b}", "b beats a": "{b} beats {a}"}
    return winners.get(comparison["verdict"], comparison["verdict"])


def written(readme: str) -> str:
    return BLOCK.sub(lambda found: found[1] + encodings() + found[2], readme)


def main() -> None:
    README.write_text(written(README.read_text()))


if __name__ == "__main__":
    main()
