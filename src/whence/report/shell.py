"""A whole page: one file with all it needs inside, which asks the network for nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup
from plotly.io import to_html

from whence.report.html import render
from whence.store import disk
from whence.store.files import addressed_name

SEED_STRIP_STYLE = """
.seeds { position: relative; width: 8rem; height: 1.5rem; margin: 0 .5rem }
.seeds { background: linear-gradient(#8886, #8886) center / 100% 1px no-repeat }
.seeds i { position: absolute; width: .5rem; height: .5rem; border: 1px solid; border-radius: 50%; opacity: .75;
  transform: translate(-50%, -50%) }
.seeds b { position: absolute; top: 0; height: 100%; border-left: 2px dotted #888 }
"""
"""Of what pages and the app show alike."""

STYLE = (
    SEED_STRIP_STYLE
    + """
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
)
PAGE = """\
<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>{{ title }}</title><style>{{ style }}</style></head><body>
{% for part in parts %}{{ part }}{% endfor %}</body></html>"""
REPRODUCE = """\
<h2>Make it again</h2><pre>{{ command }}</pre>
<details><summary>The whole specification</summary><pre>{{ document }}</pre></details>"""


def shell(title: str, parts: Sequence[str]) -> bytes:
    """The file. Parts are HTML."""
    return render(PAGE, title=title, style=Markup(STYLE), parts=[Markup(part) for part in parts]).encode()


def regenerate(command: str, document: Any) -> list[Markup]:
    return [render(REPRODUCE, command=command, document=json.dumps(document, indent=1))]


def write(name: str, data: bytes, folder: Path) -> Path:
    """Named by what it is of and by its checksum: a report never changes under its name."""
    path = folder / addressed_name(name, data, ".html")
    disk.write_atomically(path, data)
    return path


def plot(figure: go.Figure, name: str, with_script: bool) -> Markup:
    config = {"displaylogo": False}
    return Markup(
        to_html(figure, full_html=False, include_plotlyjs=with_script, config=config, div_id=f"figure-{name}")
    )
