"""Write published results into the documentation, between the markers of its pages.

    make publish    # README.md, docs/encodings-table.md from results/*.json, docs/speed.md from bench/results.json

A results file is what `whence report NAME --out results/NAME.json` writes: configuration, scores of every seed,
verdicts, versions and a hash. Nothing between the markers is edited by hand; a test compares the pages with the files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whence.experiments.export import PublishedResults

PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(PROJECT / "bench"))

from speed import speed  # noqa: E402  (beside this file)

FIXED, TUNED = (PROJECT / "results" / f"source_encodings{suffix}.json" for suffix in ("", "_tuned"))
RANGE = re.compile(r"(\S+) over the (\d+) settings tried: (.*) \((.*)\)\.")
BLOCK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def encodings() -> str:
    """The four tasks of the encodings document, with its one learning rate and with one chosen per encoding."""
    fixed, tuned = (PublishedResults.load(path).model_dump() for path in (FIXED, TUNED))
    training, tune = fixed["config"]["training"], tuned["config"]["tune"].replace(";", " × ")
    lengths = fixed["config"]["lengths"]
    seeds = {len(row["seeds"]) for results in (fixed, tuned) for table in results["tables"] for row in table["rows"]}
    lines = [
        f"Accuracy in %, mean over {'–'.join(map(str, sorted(seeds)))} paired seeds with 95 % intervals. *Fixed*: the "
        f"settings of the encodings document (lr {training['lr']}, {training['schedule']} schedule). *Tuned*: {tune}, "
        f"chosen for each encoding on validation data of {tuned['config']['tune_seeds']} other seed(s). Trained at "
        f"length {lengths['train_length']}; OOD is length {', '.join(map(str, lengths['test_lengths']))}, and is given "
        "for encodings that reach 95 % ID.",
        "",
        "| task | encoding | ID, fixed | OOD, fixed | ID, tuned | OOD, tuned | chosen |",
        "|---|---|---|---|---|---|---|",
    ]
    sentences = []
    for before, after in zip(fixed["tables"], tuned["tables"], strict=True):
        task = before["title"].split(" · ")[0]
        for one, two in zip(before["rows"], after["rows"], strict=True):
            chosen = two["cells"]["chosen"]["text"].replace("=", " ")
            cells = [_cell(row["cells"].get(part)) for row in (one, two) for part in ("id", "ood")]
            lines.append(f"| {task} | {one['name']} | {' | '.join(cells)} | {chosen} |")
        sentences.append(f"- **{task}** (shortcut baseline {_baseline(before)}): {_verdicts(before, after)}")
        sentences += [f"  {line}" for line in after["findings"] if "depends on the training settings" in line]
        sentences.append(f"  {_ranges(after['findings'])}")
    return "\n".join([*lines, "", *sentences]) + "\n"


def _cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "–"
    if not cell["text"]:
        return cell["verdict"]
    return f"{cell['text']}, at chance" if cell["verdict"] == "at chance" else cell["text"]


def _baseline(table: dict[str, Any]) -> str:
    score = next(row["cells"]["id"] for row in table["rows"] if "baseline" in row["cells"]["id"])
    return f"{100 * score['baseline']:.1f} % ID: {score['baseline_name']}"


def _verdicts(fixed: dict[str, Any], tuned: dict[str, Any]) -> str:
    """Verdicts that both settings give, and those that depend on the setting."""
    known = [{(c["part"], c["a"], c["b"]): _word(c) for c in table["comparisons"]} for table in (fixed, tuned)]
    keys = list(dict.fromkeys([*known[0], *known[1]]))
    if not keys:
        return "no two encodings are above the baseline, so nothing is ranked."
    both: dict[tuple[str, str], list[str]] = {}
    depends: list[str] = []
    for key in keys:
        part, a, b = key
        words = [words.get(key, "not ranked") for words in known]
        if words[0] == words[1]:
            text = words[0].format(a=a, b=b) if "{" in words[0] else f"{a} and {b}"
            both.setdefault((part, "" if "{" in words[0] else words[0]), []).append(text)
        else:
            depends.append(f"{part.upper()} {a} and {b} ({' / '.join(word.format(a=a, b=b) for word in words)})")
    text = [f"{part.upper()} {word + ': ' if word else ''}{', '.join(of)}" for (part, word), of in both.items()]
    lines = [f"under both settings {'; '.join(text)}" if text else "no verdict holds under both settings"]
    if depends:
        lines.append(f"Depends on the settings (fixed / tuned): {'; '.join(depends)}")
    return ". ".join(lines) + "."


def _ranges(findings: list[str]) -> str:
    """What the settings that tuning tried gave, in one sentence."""
    tried = [found for line in findings if (found := RANGE.fullmatch(line))]
    text = "; ".join(f"{encoding} {ranges}" for encoding, _, ranges, _ in (found.groups() for found in tried))
    return f"Range over the {tried[0][2]} settings tried ({tried[0][4]}): {text}."


def _word(comparison: dict[str, Any]) -> str:
    winners = {"a beats b": "{a} beats {b}", "b beats a": "{b} beats {a}"}
    return winners.get(comparison["verdict"], comparison["verdict"])


def summary() -> str:
    """Of the tuned results, one line per task: in distribution → out of distribution."""
    results = PublishedResults.load(TUNED).model_dump()
    lengths, seeds = results["config"]["lengths"], results["config"]["seeds"]
    lines = [
        f"Mean accuracy over {seeds} seeds with tuned training, ID (length {lengths['train_length']}) → OOD (length "
        f"{', '.join(map(str, lengths['test_lengths']))}), in %:"
    ]
    for table in results["tables"]:
        rows = table["rows"]
        scores = [f"{row['name']} {_short(row['cells']['id'])} → {_short(row['cells']['ood'])}" for row in rows]
        if all(row["cells"]["id"]["verdict"] == "at chance" for row in rows):
            scores = ["no encoding is above the shortcut baseline"]
        lines.append(f"- **{table['title'].split(' · ')[0]}**: {', '.join(scores)}")
    return "\n".join(lines) + "\n"


def _short(cell: dict[str, Any]) -> str:
    scored = cell["text"] and cell["verdict"] != "at chance"
    return cell["text"].split(" ")[0] if scored else cell["verdict"]


BLOCKS: dict[str, Callable[[], str]] = {"encodings": encodings, "summary": summary, "speed": speed}
PAGES = [PROJECT / "README.md", PROJECT / "docs" / "encodings-table.md", PROJECT / "docs" / "speed.md"]


def written(page: str) -> str:
    return BLOCK.sub(lambda found: found[1] + BLOCKS[found[2]]() + found[3], page)


def main() -> None:
    for page in PAGES:
        page.write_text(written(page.read_text()))


if __name__ == "__main__":
    main()
