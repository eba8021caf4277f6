"""A whole page: one self-contained file, which loads nothing from the network."""

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

SHARED_STYLE = """
.seeds { position: relative; width: 8rem; height: 1.5rem; margin: 0 .5rem }
.seeds { background: linear-gradient(#8886, #8886) center / 100% 1px no-repeat }
.seeds i { position: absolute; width: .5rem; height: .5rem; border: 1px solid; border-radius: 50%; opacity: .75;
  transform: translate(-50%, -50%) }
.seeds b { position: absolute; top: 0; height: 100%; border-left: 2px dotted #888 }
@media (max-width: 45rem) {
  .stack thead { display: none } .stack tr { display: block; padding: .6rem 0; border-bottom: 1px solid var(--line) }
  .stack th[scope=row] { display: block; border: 0; padding: 0 } .stack td { border: 0; padding: .15rem 0 }
  .stack td { display: grid; grid-template-columns: 9.5rem 1fr; justify-items: start; white-space: normal }
  .stack td::before { content: attr(data-column); color: var(--soft) } .stack td > * { grid-column: 2 }
  .stack td:empty { display: none }
}
"""
"""Styles that report pages and the app share."""

STYLE = (
    """
:root { color-scheme: light dark; --text: light-dark(#1c1c1c, #e6e6e6); --page: light-dark(#fff, #161616);
  --line: light-dark(#ddd, #3a3a3a); --soft: light-dark(#555, #a8a8a8); --code: light-dark(#f5f5f5, #232323) }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); overflow-wrap: break-word }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; line-height: 1.25 } h2 { font-size: 1.3rem; margin-top: 3.5rem; line-height: 1.3 }
h3 { font-size: 1.05rem; margin: 2.2rem 0 .3rem } h4 { font-size: 1rem; margin: 1.2rem 0 .3rem }
.lead { font-size: 1.2rem; line-height: 1.45; max-width: 60rem } ul.lead { font-size: 1.05rem; padding-left: 1.2rem }
a { color: light-dark(#0060a0, #6cbcf0) } .note { color: var(--soft) } summary { cursor: pointer }
table { border-collapse: collapse; width: 100% } .scroll { overflow-x: auto }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th[scope=row] { font-weight: 600; overflow-wrap: anywhere; min-width: 6rem }
td.n { font-variant-numeric: tabular-nums; white-space: nowrap } td.cost { min-width: 6rem }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .5em }
.badge { border: 1px solid #999; border-radius: 1em; padding: .05em .6em; font-size: .85em; white-space: nowrap }
.badge.good { border-color: #009E73; color: light-dark(#00654a, #4fd8a8) }
.badge.bad { border-color: #D55E00; color: light-dark(#a04400, #ffa36b) }
.badge.unsure { color: light-dark(#6b6b6b, #a8a8a8); border-style: dashed }
pre, code { font: 13px/1.45 ui-monospace, monospace; background: var(--code) } pre, code { overflow-wrap: anywhere }
pre { padding: .8rem; white-space: pre-wrap }
ul.findings li, ul.runs li { margin: .2rem 0 } ul.runs { padding-left: 1.2rem }
canvas { max-width: 100%; border: 1px solid var(--line) }
.maps { display: flex; flex-wrap: wrap; gap: 1rem 2rem; align-items: flex-start } .maps > div { min-width: 0; flex: 1 }
.maps label { display: inline-block; margin: .2rem 1rem .2rem 0 }
@media (max-width: 45rem) {
  body { margin: 1rem auto } .lead { font-size: 1.1rem }
}
@media print { :root { color-scheme: light } }
"""
    + SHARED_STYLE
)
POLICY = (
    "default-src 'none'; script-src{}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
"""Content-security policy of a page. Plotly.js and the colours of tables need inline styles, which run nothing."""
PAGE = """\
<!doctype html><html lang=en><head><meta charset=utf-8>
<meta http-equiv=Content-Security-Policy content="{{ policy }}">
<meta name=viewport content="width=device-width, initial-scale=1">
<title>{{ title }}</title><style>{{ style }}</style></head><body>
{% for part in parts %}{{ part }}{% endfor %}
{% for script in scripts %}<script>{{ script }}</script>{% endfor %}</body></html>"""
FIGURE = '<div class=figure><script type="application/json">{{ figure }}</script></div>'
DRAW_FIGURES = """
const dark = matchMedia('(prefers-color-scheme: dark)');
const darken = layout => {
  const defaults = layout.template?.layout ?? {};
  const axis = {gridcolor: '#3a3a3a', linecolor: '#555', zerolinecolor: '#555'};
  const clear = 'rgba(0,0,0,0)', menu = {bgcolor: '#2a2a2a', bordercolor: '#555'};
  Object.assign(defaults, {paper_bgcolor: clear, plot_bgcolor: clear, font: {...defaults.font, color: '#d8d8d8'}});
  for (const name of ['xaxis', 'yaxis']) defaults[name] = {...defaults[name], ...axis};
  Object.assign(defaults, {updatemenudefaults: menu, legend: {bgcolor: clear}});
  layout.template = {...layout.template, layout: defaults};
};
const drawFigures = () => document.querySelectorAll('.figure').forEach(box => {
  box.document ??= box.textContent;
  const figure = JSON.parse(box.document), layout = figure.layout;
  if (dark.matches) darken(layout);
  if (box.clientWidth < 500) layout.margin = {...layout.margin, l: 45, r: 5};
  Plotly.react(box, figure.data, layout, {displaylogo: false, responsive: true});
});
drawFigures();
dark.addEventListener('change', drawFigures);
"""
REPRODUCE = """\
<h2>Reproduce</h2><pre>{{ command }}</pre>
<details><summary>Configuration</summary><pre>{{ document }}</pre></details>"""


class Script(Markup):
    """The text of a script, as a part of a page. No other script on the page can run.

    The content-security policy allows a script by the hash of its text. The text is therefore the same on all pages,
    and what differs between pages is data.
    """


@functools.cache
def figure_scripts() -> tuple[Script, Script]:
    return Script(get_plotlyjs()), Script(DRAW_FIGURES)


def shell(title: str, parts: Sequence[str]) -> bytes:
    """The page as bytes. `parts` are HTML or scripts; each script runs once, after all HTML is parsed."""
    body = [Markup(part) for part in parts if not isinstance(part, Script)]
    scripts = dict.fromkeys(part for part in parts if isinstance(part, Script))
    if any("<div class=figure>" in part for part in body):
        scripts = dict.fromkeys([*figure_scripts(), *scripts])
    policy = Markup(POLICY.format("".join(f" {script_hash(script)}" for script in scripts)))
    return render(PAGE, title=title, style=Markup(STYLE), policy=policy, parts=body, scripts=scripts).encode()


def script_hash(script: str) -> str:
    """The source expression by which a content-security policy allows an inline script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def with_script(page: bytes, script: str) -> bytes:
    """A page with one more script, which runs before all others and before the body is parsed."""
    page = page.replace(b"script-src", f"script-src {script_hash(script)}".encode(), 1)
    return page.replace(b"<title>", f"<script>{script}</script><title>".encode(), 1)


def embedded(document: str) -> Markup:
    """JSON that is safe inside a script element."""
    return Markup(document.replace("<", "\\u003c"))


def regenerate(command: str, document: Any) -> list[Markup]:
    """The section "Reproduce": the command and the configuration."""
    return [render(REPRODUCE, command=command, document=json.dumps(document, indent=1))]


def write(name: str, data: bytes, folder: Path) -> Path:
    """Write a page under a name that includes its checksum, so that a file never changes under its name."""
    path = folder / addressed_name(name, data, ".html")
    disk.write_atomically(path, data)
    return path


def plot(figure: go.Figure) -> Markup:
    """A figure as data. `shell` adds the scripts that draw it."""
    return render(FIGURE, figure=embedded(str(figure.to_json())))
