"""One self-contained page per comparison: table, curves, spec, and the command that makes it again."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path

from plotly.io import to_html

from whence import stats
from whence.arena.spec import ArenaSpec
from whence.arena.table import Row, Score, floors_of, seeds_in
from whence.report.figures import learning_curves, line_style
from whence.runs.files import addressed_name, digest, write_atomically
from whence.runs.store import Store

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c1c1c; background: #fff; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.5rem }
table { border-collapse: collapse; width: 100% } .scroll { overflow-x: auto }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid #ddd; vertical-align: top }
td.n { font-variant-numeric: tabular-nums } .note { color: #555 }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .5em }
.badge { border: 1px solid #999; border-radius: 1em; padding: .05em .6em; font-size: .85em; white-space: nowrap }
pre, code { font: 13px/1.45 ui-monospace, monospace; background: #f5f5f5 } pre { padding: .8rem; overflow-x: auto }
"""


def keep_spec(spec: ArenaSpec, store: Store) -> Path:
    """The comparison as a config file beside its report, so that one short command makes it again."""
    data = (json.dumps(spec.model_dump(mode="json"), indent=1) + "\n").encode()
    path = store.reports / addressed_name("arena", data, ".json")
    write_atomically(path, data)
    return path


def write_report(spec: ArenaSpec, rows: Sequence[Row], store: Store, again: str) -> Path:
    """Named by its checksum: a report never changes under its name."""
    title = " · ".join([*dict.fromkeys(row.task for row in rows), str(spec.model.mixer)])
    document = json.dumps(spec.model_dump(mode="json"), indent=1)
    parts = [
        f"<h1>whence arena: {html.escape(title)}</h1>",
        f"<p class=note>{html.escape(stats.heading(seeds_in(rows)))}</p>",
    ]
    for number, task in enumerate(dict.fromkeys(row.task for row in rows)):
        parts += _task_section(spec, task, [row for row in rows if row.task == task], with_script=number == 0)
    parts += [
        "<h2>Make it again</h2>",
        f"<pre>{html.escape(again)}</pre>",
        f"<details><summary>The whole specification</summary><pre>{html.escape(document)}</pre></details>",
    ]
    page = (
        f'<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content="width=device-width">'
        f"<title>whence arena: {html.escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>"
    ).encode()
    path = store.reports / addressed_name("arena", page, ".html")
    write_atomically(path, page)
    return path


def _task_section(spec: ArenaSpec, task: str, rows: Sequence[Row], *, with_script: bool) -> list[str]:
    lengths = spec.lengths
    floors = floors_of(rows)
    floor = next((row.within for row in rows if row.within), None)
    figure = learning_curves(
        {row.encoding: row.curves for row in rows}, floor.floor if floor else None, floor.floor_name if floor else ""
    )
    beyond = ", ".join(map(str, lengths.test_lengths)) or "no longer sequences"
    return [
        f"<h2>{html.escape(task)}</h2>",
        f"<p>Trained on lengths up to {lengths.train_length}; beyond training scored at {beyond}, "
        f"on what lies beyond alone. {html.escape(floors)}</p>",
        "<div class=scroll><table><tr><th>encoding<th>within training (%)<th>verdict"
        "<th>beyond training (%)<th>verdict<th>each seed<th>runs</tr>",
        *(_table_row(row) for row in rows),
        "</table></div>",
        to_html(
            figure,
            full_html=False,
            include_plotlyjs=with_script,
            config={"displaylogo": False},
            div_id=f"curves-{digest(task)[:8]}",
        ),
    ]


def _table_row(row: Row) -> str:
    swatch = f'<span class=swatch style="background:{line_style(row.encoding)["color"]}"></span>'
    within = _scored(row.within) if row.within else html.escape("; ".join(sorted(set(row.failed.values()))))
    beyond = _scored(row.beyond) if row.beyond and row.mastered else ""
    seeds = " ".join(f"{100 * value:.1f}" for value in row.within.per_seed) if row.within else ""
    failed = f" · {len(row.failed)} failed, not averaged" if row.failed and row.within else ""
    return (
        f"<tr><td>{swatch}{html.escape(row.encoding)}<td class=n>{within}<td>{_badge(row.verdict)}{failed}"
        f"<td class=n>{beyond}<td>{_badge(row.beyond_verdict)}<td class=n>{seeds}"
        f"<td><code>{' '.join(row.runs)}</code></tr>"
    )


def _badge(verdict: str) -> str:
    return f"<span class=badge>{verdict}</span>" if verdict else ""


def _scored(score: Score) -> str:
    low, high = score.interval
    return f"{100 * score.accuracy:.1f} <span class=note>[{100 * low:.1f}, {100 * high:.1f}]</span>"
