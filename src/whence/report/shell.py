"""A whole page: one file with all it needs inside, which asks the network for nothing."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

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
POLICY = (
    "default-src 'none'; script-src{}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
"""Content-security policy of a page. Plotly.js and the colours of tables need inline styles, which run nothing."""
PAGE = """\
<!doctype html><html lang=en><head><meta charset=utf-8>
<meta http-equiv=Content-Security-Policy content="{{ policy }}"><meta name=viewport content="width=device-width">
<title>{{ title }}</title><style>{{ style }}</style></head><body>
{% for part in parts %}{{ part }}{% endfor %}
{% for script in scripts %}<script>{{ script }}</script>{% endfor %}</body></html>"""
FIGURE = '<div class=figure><script type="application/json">{{ figure }}</script></div>'
DRAW_FIGURES = """
for (const box of document.querySelectorAll('.figure')) {
  const figure = JSON.parse(box.textContent);
  Plotly.newPlot(box, figure.data, figure.layout, {displaylogo: false, responsive: true});
}
"""
REPRODUCE = """\
<h2>Make it again</h2><pre>{{ command }}</pre>
<details><summary>The whole specification</summary><pre>{{ document }}</pre></details>"""


class Script(Markup):
    """The text of a script of ours, as a part of a page. Nothing else on the page may run.

    A script is allowed by the hash of its text. So it is always the same text, and what differs between pages is data.
    """


@functools.cache
def figure_scripts() -> tuple[Script, Script]:
    return Script(get_plotlyjs()), Script(DRAW_FIGURES)


def shell(title: str, parts: Sequence[str]) -> bytes:
    """The file. Parts are HTML or scripts; scripts run after all HTML is there, each once."""
    body = [Markup(part) for part in parts if not isinstance(part, Script)]
    scripts = dict.fromkeys(part for part in parts if isinstance(part, Script))
    if any("<div class=figure>" in part for part in body):
        scripts = dict.fromkeys([*figure_scripts(), *scripts])
    policy = Markup(POLICY.format("".join(f" {script_hash(script)}" for script in scripts)))
    return render(PAGE, title=title, style=Markup(STYLE), policy=policy, parts=body, scripts=scripts).encode()


def script_hash(script: str) -> str:
    """How a content-security policy names an inline script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def with_script(page: bytes, script: str) -> bytes:
    """A page with one more script, which runs before all others and before there is a body."""
    page = page.replace(b"script-src", f"script-src {script_hash(script)}".encode(), 1)
    return page.replace(b"<title>", f"<script>{script}</script><title>".encode(), 1)


def embedded(document: str) -> Markup:
    """JSON as it may stand inside of a script element."""
    return Markup(document.replace("<", "\\u003c"))


def regenerate(command: str, document: Any) -> list[Markup]:
    return [render(REPRODUCE, command=command, document=json.dumps(document, indent=1))]


def write(name: str, data: bytes, folder: Path) -> Path:
    """Named by what it is of and by its checksum: a report never changes under its name."""
    path = folder / addressed_name(name, data, ".html")
    disk.write_atomically(path, data)
    return path


def plot(figure: go.Figure) -> Markup:
    """A figure, as data: the page brings the scripts that draw it."""
    return render(FIGURE, figure=embedded(str(figure.to_json())))
