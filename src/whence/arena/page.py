"""Figures and attention maps of a comparison of encodings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from markupsafe import Markup

from whence.arena.attention import ATTENTION, AttentionMaps, AttentionRequest
from whence.arena.metrics import PositionCounts
from whence.arena.run import ArenaRun
from whence.arena.score import id_score
from whence.experiments.results import evaluations_of, final_metrics
from whence.experiments.table import Row, Table
from whence.report.figures import figure_of, learning_curves, line_style
from whence.report.html import heading, html_table, render
from whence.report.shell import Script, embedded
from whence.shortcuts.search import baseline_by_position
from whence.store.files import digest
from whence.store.runs import Store

BASELINE_STYLE = {"color": "#888", "dash": "dot"}
Points = Sequence[tuple[int, float]]


def figures(table: Table[ArenaRun]) -> dict[str, go.Figure]:
    """By heading, the one that shows the result first; without figures that the runs have no data for."""
    made = {
        "Accuracy by length": accuracy_over_lengths(table),
        "Accuracy by position": accuracy_over_positions(table),
        "Learning curves": accuracy_over_steps(table),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def accuracy_over_steps(table: Table[ArenaRun]) -> go.Figure:
    """ID accuracy by training step: a thin line per seed, a thick one for their mean."""
    curves = {
        row.name: [{e.step: 100 * e.metrics.id.accuracy for e in evaluations_of(result)} for result in row.finished]
        for row in table.rows
    }
    styles = {row.name: line_style(row.name) for row in table.rows}
    figure = learning_curves(curves, "ID accuracy (%)", styles, unit=" %").update_layout(yaxis_range=[0, 103])
    score = next(filter(None, map(id_score, table.rows)), None)
    if score is not None:
        figure.add_hline(
            100 * score.baseline,
            line_dash="dot",
            line_color="#888",
            annotation_text=f"shortcut baseline: {score.baseline_name}",
            annotation_position="bottom right",
        )
    return figure


def accuracy_over_lengths(table: Table[ArenaRun]) -> go.Figure | None:
    """Accuracy by sequence length: a dot per seed, a line for their mean. The training length is marked."""
    run = table.planned.run
    if not run.test_lengths:
        return None
    figure = _figure("length", "accuracy (%)")
    for row in table.rows:
        by_length = accuracy_by_length(row)
        dots = [(n, value) for n, values in by_length.items() for value in values]
        _add_line(figure, dots, row.name, "length", width=0, legend=False, mode="markers")
        mean = [(n, sum(values) / len(values)) for n, values in by_length.items()]
        _add_line(figure, mean, row.name, "length", width=3)
    if any(row.finished for row in table.rows):
        baselines = [(n, run.stated_baseline(n).accuracy) for n in run.lengths_scored]
        _add_line(figure, baselines, "shortcut baseline", "length", width=1, style=BASELINE_STYLE)
        figure.update_xaxes(type="log", tickvals=run.lengths_scored, ticktext=[str(n) for n in run.lengths_scored])
    end = [(run.train_length, 0.0), (run.train_length, 1.0)]  # a trace, because shapes ignore a logarithmic axis
    _add_line(figure, end, "training length", "length", width=1, style={"color": "#888", "dash": "dash"})
    return figure


def accuracy_over_positions(table: Table[ArenaRun]) -> go.Figure | None:
    """Accuracy by position in the longest sequences, for tasks with an answer per token."""
    run = table.planned.run
    length = run.longest
    lines = {row.name: accuracy_by_position(row, length) for row in table.rows if row.finished}
    if not any(lines.values()):
        return None
    figure = _figure("position", f"accuracy in sequences of length {length} (%)")
    for encoding, points in lines.items():
        _add_line(figure, points, encoding, "position", width=2)
    task = run.task.build()
    if task.dense:
        figure.add_vline(run.train_length, line_dash="dot", line_color="#888", annotation_text="training length")
    baselines = list(baseline_by_position(task, length).items())
    _add_line(figure, baselines, "shortcut baseline", "position", width=1, style=BASELINE_STYLE)
    return figure


def _figure(across: str, up: str) -> go.Figure:
    return figure_of(across, up).update_layout(yaxis_range=[0, 103])


def _add_line(
    figure: go.Figure,
    points: Points,
    name: str,
    unit: str,
    *,
    width: int,
    legend: bool = True,
    mode: str = "lines",
    style: dict[str, str] | None = None,
) -> None:
    style = style or line_style(name)
    figure.add_scatter(
        x=[x for x, _ in points],
        y=[100 * y for _, y in points],
        mode=mode,
        name=name,
        legendgroup=name,
        line={**style, "width": width},
        marker={"color": style["color"], "size": 7, "opacity": 0.7},
        showlegend=legend,
        hovertemplate=unit + " %{x}: %{y:.1f} %<extra>" + name.replace("%", "") + "</extra>",
    )


def accuracy_by_position(row: Row[ArenaRun], length: int) -> list[tuple[int, float]]:
    """(first position of a bin, accuracy over all seeds) of every bin; empty for tasks with one answer."""
    bins = position_counts(row, length)
    if not bins:
        return []
    width, total = bins[0].width, bins[0].total
    correct = [sum(counts) for counts in zip(*(of.correct for of in bins), strict=True)]
    return [(i * width, c / (n * len(bins))) for i, (c, n) in enumerate(zip(correct, total, strict=True)) if n]


def position_counts(row: Row[ArenaRun], length: int) -> list[PositionCounts]:
    """Counts of every seed; empty for tasks with one answer per sequence."""
    counts = [final_metrics(result).lengths[length].positions for result in row.finished]
    return [positions for positions in counts if positions]


def accuracy_by_length(row: Row[ArenaRun]) -> dict[int, list[float]]:
    """By length, the accuracy of every seed."""
    metrics = [final_metrics(result) for result in row.finished]
    return {
        n: [m.lengths[n].accuracy for m in metrics] for n in (row.finished[0].run.lengths_scored if metrics else ())
    }


MAP_SCRIPT = """
const drawMaps = root => root.querySelectorAll('.maps:not([data-drawn])').forEach(box => {
  box.dataset.drawn = '';
  const data = JSON.parse(box.querySelector('script').textContent), canvas = box.querySelector('canvas');
  const pick = name => box.querySelector(`[name=${name}]`), output = box.querySelector('output');
  const bytes = {}, size = data.tokens, cell = Math.max(4, Math.floor(704 / size));
  const percent = share => (100 * share).toFixed(0) + ' %';
  let shown = null;
  canvas.width = canvas.height = size * cell;
  const best = name => {  // [weight on the answer, layer, head] of the head with the most
    const heads = data.encodings[name].on_answer.flatMap((of, layer) => of.map((share, head) => [share, layer, head]));
    return heads.reduce((one, other) => other[0] > one[0] ? other : one, [-1, 0, 0]);
  };
  const choose = name => {
    const [share, layer, head] = best(name);
    pick('encoding').value = name;
    if (share >= 0) [pick('layer').value, pick('head').value] = [layer, head];
  };
  const draw = () => {
    const key = pick('encoding').value, m = data.encodings[key], context = canvas.getContext('2d');
    bytes[key] ??= Uint8Array.from(atob(m.weights), c => c.charCodeAt(0));
    const [layer, example, head] = ['layer', 'example', 'head'].map(name => +pick(name).value);
    const at = ((layer * data.examples + example) * data.heads + head) * size * size;
    shown = bytes[key].subarray(at, at + size * size);
    context.clearRect(0, 0, canvas.width, canvas.height);
    shown.forEach((weight, i) => {
      context.fillStyle = `rgba(40, 140, 215, ${Math.sqrt(weight / 255)})`;
      context.fillRect(i % size * cell, Math.floor(i / size) * cell, cell, cell);
    });
    context.strokeStyle = '#E69F00';
    context.lineWidth = Math.max(2, cell / 6);
    (m.answer_keys[example] ?? []).forEach((key, query) => {
      if (key >= 0) context.strokeRect((key + .1) * cell, (query + .1) * cell, .8 * cell, .8 * cell);
    });
    const share = m.on_answer[layer]?.[head];
    output.textContent = `Layer ${layer + 1}, head ${head + 1}: ` +
      (share === undefined ? '' : `${percent(share)} of the attention is on the token that holds the answer; `) +
      `mean attention distance ${m.distance[layer][head].toFixed(1)} positions.`;
  };
  canvas.addEventListener('mousemove', e => {
    const r = canvas.getBoundingClientRect(), at = v => Math.min(size - 1, Math.max(0, Math.floor(v * size)));
    const key = at((e.clientX - r.left) / r.width), query = at((e.clientY - r.top) / r.height);
    const tokens = data.encodings[pick('encoding').value].inputs[+pick('example').value];
    output.textContent = `Query ${query} (token ${tokens[query]}), key ${key} (token ${tokens[key]}): ` +
      `attention weight ${percent(shown[query * size + key] / 255)}`;
  });
  canvas.addEventListener('mouseleave', draw);
  box.querySelectorAll('select').forEach(s => s.addEventListener('change', () => {
    if (s.name === 'encoding') choose(s.value);
    draw();
  }));
  choose(Object.keys(data.encodings).reduce((one, other) => best(other)[0] > best(one)[0] ? other : one));
  draw();
});
"""
"""Defines `drawMaps(root)`, which draws all maps inside an element, on a page or in the app.

A map opens on the head with the largest attention weight on the answer, where the task declares the answer keys.
"""


ATTENTION_NOTE = (
    "Attention weights of one seed on test sequences of the training length. Rows are queries and columns are keys; a "
    "stronger colour is a larger weight (square-root scale)."
)
ANSWER_NOTE = " An orange square marks the token that holds the answer to the query of its row."
MAPS = """\
<div class=maps id="maps-{{ name }}">
<canvas style="width:22rem;aspect-ratio:1;image-rendering:auto" role=img
 aria-label="attention weights: rows are queries, columns are keys"></canvas><div>
{% for field, options in choices.items() %}
<label>{{ field }} <select name={{ field }} aria-label="{{ field }}">
{% for value, text in options %}<option value="{{ value }}">{{ text }}</option>{% endfor %}</select></label>
{% endfor %}
<p><output></output></p>
{% for title, table in tables.items() %}<p class=note>{{ title }}, by layer and head:</p>{{ table }}{% endfor %}</div>
<script type=application/json>{{ document }}</script></div>"""


def stored_maps(table: Table[ArenaRun], store: Store) -> dict[str, AttentionMaps]:
    """By encoding, the maps of the one seed that was measured, for models with attention."""
    maps: dict[str, AttentionMaps] = {}
    for row in table.rows:
        for result in row.finished[:1]:
            artifact = ATTENTION.find(AttentionRequest(run=result.run.id), store)
            if artifact and artifact.result.layers:
                maps[row.name] = artifact.result
    return maps


def attention_section(name: str, maps: Mapping[str, AttentionMaps]) -> Markup:
    """Attention maps by encoding; empty without any. Models of different shapes do not share a canvas."""
    groups: dict[tuple[int, ...], dict[str, AttentionMaps]] = {}
    for encoding, of in maps.items():
        groups.setdefault((of.layers, of.examples, of.heads, of.tokens), {})[encoding] = of
    if not groups:
        return Markup("")
    note = ATTENTION_NOTE + ANSWER_NOTE * any(of.answer_keys for of in maps.values())
    drawn = [_canvas(f"{name}-{number}", group) for number, group in enumerate(groups.values())]
    return Markup("").join([heading("Attention maps", note, level=3), *drawn])


def attention_of(table: Table[ArenaRun], store: Store) -> list[Markup]:
    """The section of one table and the script that draws it."""
    section = attention_section(digest(table.title)[:8], stored_maps(table, store))
    return [section, Script(f"{MAP_SCRIPT}drawMaps(document)")] if section else []


def _canvas(name: str, maps: Mapping[str, AttentionMaps]) -> Markup:
    one = next(iter(maps.values()))
    document = {
        "tokens": one.tokens,
        "heads": one.heads,
        "examples": one.examples,
        "encodings": {
            encoding: {
                "weights": of.weights,
                "distance": _rounded(of.distance, 2),
                "on_answer": _rounded(of.on_answer, 4),
                "answer_keys": of.answer_keys,
                "inputs": of.inputs,
            }
            for encoding, of in maps.items()
        },
    }
    numbered = {"layer": one.layers, "head": one.heads, "example": one.examples}
    choices = {"encoding": [(encoding, encoding) for encoding in maps]}
    choices |= {field: [(str(i), str(i + 1)) for i in range(count)] for field, count in numbered.items()}
    on_answer = {encoding: _rounded(of.on_answer, 4, scale=100) for encoding, of in maps.items() if of.on_answer}
    tables: dict[str, Mapping[str, Heads]] = {"Attention on the answer (%)": on_answer} if on_answer else {}
    tables["Mean attention distance (positions)"] = {encoding: of.distance for encoding, of in maps.items()}
    return render(
        MAPS,
        name=name,
        choices=choices,
        tables={title: _by_head(title, rows) for title, rows in tables.items()},
        document=embedded(json.dumps(document)),
    )


Heads = Sequence[Sequence[float]]
"""One number by layer and head"""


def _rounded(numbers: Heads, digits: int, scale: float = 1) -> list[list[float]]:
    return [[round(scale * number, digits) for number in layer] for layer in numbers]


def _by_head(title: str, encodings: Mapping[str, Heads]) -> Markup:
    one = next(iter(encodings.values()))
    names = [f"{layer + 1}.{head + 1}" for layer, heads in enumerate(one) for head in range(len(heads))]
    rows = [[encoding, *(f"{v:.1f}" for layer in of for v in layer)] for encoding, of in encodings.items()]
    return html_table(["encoding", *names], rows, label=title)
