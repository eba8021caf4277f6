"""One self-contained page: findings, tables, curves, attention maps, spec, and the command that makes it again."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whence.arena.attention import Maps, maps_of
from whence.arena.score import Score
from whence.arena.table import Row, Table, overall
from whence.report.attention import MAP_SCRIPT, attention_section
from whence.report.badges import badge
from whence.report.figures import accuracy_over_lengths, accuracy_over_positions, learning_curves, line_style, swatch
from whence.report.shell import plot, regenerate, shell, write
from whence.runs.files import digest
from whence.runs.store import Store


@dataclass(frozen=True)
class Page:
    """Everything a report is made of."""

    tables: Sequence[Table]
    document: Any
    """The specification, as JSON shows it."""
    again: str
    maps: Mapping[tuple[str, str], Maps]
    """By (table title, encoding)."""
    name: str = "arena"
    """Of the comparison, where it is of one."""

    @classmethod
    def of(cls, tables: Sequence[Table], document: Any, again: str, store: Store, name: str = "arena") -> Page:
        """With the attention maps of the runs that the store holds."""
        return cls(tables, document, again, maps_of(tables, store), name)

    @property
    def title(self) -> str:
        return "whence arena: " + ", ".join(dict.fromkeys(table.task for table in self.tables))

    def render(self) -> bytes:
        """With all it needs inside: no page of ours asks the network for anything."""
        parts = [f"<h1>{html.escape(self.title)}</h1>", *self._summary()]
        for number, table in enumerate(self.tables):
            parts += self._section(table, with_script=number == 0)
        parts += regenerate(self.again, self.document)
        return shell(self.title, [*parts, f"<script>{MAP_SCRIPT}</script>"])

    def write(self, folder: Path) -> Path:
        """Among the reports of a store."""
        return write(self.name, self.render(), folder)

    def _summary(self) -> list[str]:
        across = overall(self.tables)
        if not across:
            return []
        rows = "".join(
            f"<tr><td>{swatch(encoding)}{html.escape(encoding)}<td class=n>{value:.3f}<td class=n>{count}</tr>"
            for encoding, (value, count) in across.items()
        )
        return [
            "<h2>Across tasks</h2><p class=note>Within training, chance-normalised: (accuracy − floor)/(1 − floor), "
            "interquartile mean over tasks and seeds. 0 needs no skill, 1 is everything, below 0 is worse than the "
            "best shortcut. Not a ranking.</p>"
            f"<table><tr><th>encoding<th>interquartile mean<th>runs</tr>{rows}</table>"
        ]

    def _section(self, table: Table, *, with_script: bool) -> list[str]:
        run = table.run
        found = "".join(f"<li>{html.escape(line)}</li>" for line in table.findings)
        figures = {
            "Learning curves": learning_curves(table),
            "Accuracy by length": accuracy_over_lengths(table) if run.test_lengths else None,
            "Accuracy by position": accuracy_over_positions(table),
        }
        drawn = [(name, figure) for name, figure in figures.items() if figure is not None]
        maps = {
            row.encoding: self.maps[table.title, row.encoding]
            for row in table.rows
            if (table.title, row.encoding) in self.maps
        }
        return [
            f"<h2>{html.escape(table.title)}</h2>",
            f"<p class=note>{html.escape(table.heading)}</p>",
            f"<ul class=findings>{found}</ul>",
            f"<p>{html.escape(scored_where(table))}</p>",
            summary(table),
            *(
                f"<h3>{name}</h3>" + plot(figure, f"{digest(table.title + name)[:8]}", with_script and number == 0)
                for number, (name, figure) in enumerate(drawn)
            ),
            attention_section(digest(table.title)[:8], maps),
            "<details><summary>The runs of this table</summary><p>"
            + "<br>".join(f"{html.escape(row.encoding)}: <code>{' '.join(row.runs)}</code>" for row in table.rows)
            + "</p></details>",
        ]


def summary(table: Table) -> str:
    """The table itself, a row per encoding."""
    return (
        "<div class=scroll><table><tr><th>encoding<th>within (%)<th>verdict<th>beyond (%)<th>verdict"
        "<th>each seed, 0–100 %<th>gap<th>exact (%)<th>solved by<th>loss<th>cost</tr>"
        f"{''.join(_table_row(row) for row in table.rows)}</table></div>"
    )


def scored_where(table: Table) -> str:
    """On which lengths, and what needs no skill."""
    run = table.run
    beyond = ", ".join(map(str, run.test_lengths))
    where = f"Trained on lengths up to {run.train_length}; " + (
        f"beyond training scored at {beyond}, on what lies beyond alone." if beyond else "nothing scored beyond it."
    )
    return f"{where} {_floors(table)}"


def _floors(table: Table) -> str:
    score = next((row.within for row in table.rows if row.within), None)
    if score is None:
        return ""
    listed = sorted(score.floors.items(), key=lambda item: -item[1])
    return "Without the skill, within training: " + "; ".join(f"{name} {100 * v:.1f} %" for name, v in listed) + "."


def _table_row(row: Row) -> str:
    within = (
        _scored(row.within)
        if row.within
        else html.escape("; ".join(sorted({*row.failed.values(), *row.damaged.values()})))
    )
    beyond = _scored(row.shown_beyond) if row.shown_beyond else ""
    lost = len(row.failed) + len(row.damaged)
    failed = f" · {lost} failed or damaged, not averaged" if lost and row.within else ""
    chosen = "".join(f" <span class=note>{html.escape(choice)}</span>" for choice in row.choices)
    share = row.within.exact_share if row.within else None
    exact = "" if share is None else f"{100 * share:.1f}"
    speed = f"{row.seconds:.0f} s · {row.tokens / row.seconds / 1000:.1f}k tokens/s" if row.seconds else ""
    return (
        f"<tr><td>{swatch(row.encoding)}{html.escape(row.encoding)}{chosen}"
        f"<td class=n>{within}<td>{badge(row.verdict)}{failed}<td class=n>{beyond}<td>{badge(row.beyond_verdict)}"
        f"<td>{_dots(row)}<td class=n>{'' if row.gap is None else f'{100 * row.gap:.1f}'}<td class=n>{exact}"
        f"<td class=n>{f'{row.within.solved} of {row.finished}' if row.within else ''}"
        f"<td class=n>{f'{row.within.loss:.3f}' if row.within else ''}<td class=cost>{speed}</tr>"
    )


def _dots(row: Row) -> str:
    """Every seed: filled within training, hollow beyond it; the floor as a tick. HTML, because the app shows no SVG."""
    if row.within is None:
        return ""
    colour = line_style(row.encoding)["color"]
    shown = [(row.within, colour), *([(row.shown_beyond, "transparent")] if row.shown_beyond else [])]
    marks = "".join(
        f'<i style="left:{100 * value:.1f}%;top:{25 + 50 * level}%;color:{colour};background:{fill}" '
        f'title="{100 * value:.1f} %"></i>'
        for level, (score, fill) in enumerate(shown)
        for value in score.per_seed
    )
    words = ", ".join(f"{100 * value:.1f}" for value in row.within.per_seed)
    return (
        f'<div class=seeds role=img aria-label="seeds within training: {words}">'
        f'<b style="left:{100 * row.within.floor:.1f}%"></b>{marks}</div>'
    )


def _scored(score: Score) -> str:
    mean, interval = score.percents
    return f"{mean} <span class=note>{interval}</span>"
