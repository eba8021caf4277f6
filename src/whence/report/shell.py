"""What all pages share: style, figures, how to make them again. No page of ours asks the network for anything."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.io import to_html

from whence.runs.files import addressed_name, write_atomically

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c1c1c; background: #fff; }
body { max-width: 68rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 3rem } h3 { font-size: 1rem; margin: 2rem 0 .3rem }
table { border-collapse: collapse; width: 100% } .scroll { overflow-x: auto }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid #ddd; vertical-align: top }
td.n { font-variant-numeric: tabular-nums; white-space: nowrap } td.cost { min-width: 6rem } .note { color: #555 }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .5em }
.badge { border: 1px solid #999; border-radius: 1em; padding: .05em .6em; font-size: .85em; white-space: nowrap }
.badge.good { border-color: #009E73; color: #00654a } .badge.bad { border-color: #D55E00; color: #a04400 }
.badge.unsure { color: #777; border-style: dashed }
pre, code { font: 13px/1.45 ui-monospace, monospace; background: #f5f5f5 } pre { padding: .8rem; overflow-x: auto }
code { overflow-wrap: anywhere } ul.findings li { margin: .2rem 0 } 
canvas { image-rendering: pixelated; max-width: 100%; border: 1px solid #ccc }
.maps { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start }
.maps label { display: block; margin: .3rem 0 }
"""


def shell(title: str, parts: Sequence[str]) -> bytes:
    """One file with all it needs inside."""
    return (
        '<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>{''.join(parts)}</body></html>"
    ).encode()


def regenerate(again: str, document: Any) -> list[str]:
    return [
        "<h2>Make it again</h2>",
        f"<pre>{html.escape(again)}</pre>",
        "<details><summary>The whole specification</summary>"
        f"<pre>{html.escape(json.dumps(document, indent=1))}</pre></details>",
    ]


def write(name: str, data: bytes, folder: Path) -> Path:
    """Named by what it is of and by its checksum: a report never changes under its name."""
    path = folder / addressed_name(name, data, ".html")
    write_atomically(path, data)
    return path


def plot(figure: go.Figure, name: str, with_script: bool) -> str:
    return to_html(
        figure, full_html=False, include_plotlyjs=with_script, config={"displaylogo": False}, div_id=f"figure-{name}"
    )
