"""What a comparison of encodings shows beside its table: figures, and attention maps on a canvas."""

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
    """By heading; only what the table's runs have."""
    made = {
        "Learning curves": accuracy_over_steps(table),
        "Accuracy by length": accuracy_over_lengths(table),
        "Accuracy by position": accuracy_over_positions(table),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def accuracy_over_steps(table: Table[ArenaRun]) -> go.Figure:
    """ID accuracy: every seed a thin line, their mean a thick one."""
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
    """Accuracy at every length: seeds as dots, their mean as a line, the end of training marked."""
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
    end = [(run.train_length, 0.0), (run.train_length, 1.0)]  # a line of its own: marks ignore a log axis
    _add_line(figure, end, "end of training", "length", width=1, style={"color": "#888", "dash": "dash"})
    return figure


def accuracy_over_positions(table: Table[ArenaRun]) -> go.Figure | None:
    """Accuracy at every position of the longest sequences, for tasks with an answer per token."""
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
        figure.add_vline(run.train_length, line_dash="dot", line_color="#888", annotation_text="end of training")
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
    """Over seeds, for tasks with an answer per token: (first position of a bin, accuracy), where anything was asked."""
    bins = position_counts(row, length)
    if not bins:
        return []
    width, total = bins[0].width, bins[0].total
    correct = [sum(counts) for counts in zip(*(of.correct for of in bins), strict=True)]
    return [(i * width, c / (n * len(bins))) for i, (c, n) in enumerate(zip(correct, total, strict=True)) if n]


def position_counts(row: Row[ArenaRun], length: int) -> list[PositionCounts]:
    """Of every seed; none where sequences have one answer."""
    counts = [final_metrics(result).lengths[length].positions for result in row.finished]
    return [positions for positions in counts if positions]


def accuracy_by_length(row: Row[ArenaRun]) -> dict[int, list[float]]:
    """Per length, the accuracy of every seed."""
    metrics = [final_metrics(result) for result in row.finished]
    return {
        n: [m.lengths[n].accuracy for m in metrics] for n in (row.finished[0].run.lengths_scored if metrics else ())
    }


MAP_SCRIPT = """
const drawMaps = root => root.querySelectorAll('.maps:not([data-drawn])').forEach(box => {
  box.dataset.drawn = '';
  const data = JSON.parse(box.querySelector('script').textContent), canvas = box.querySelector('canvas');
  const pick = name => box.querySelector(`[name=${name}]`), output = box.querySelector('output');
  const bytes = {}, size = data.tokens;
  let shown = null;
  const draw = () => {
    const m = data.encodings[pick('encoding').value];
    const key = pick('encoding').value;
    bytes[key] ??= Uint8Array.from(atob(m.weights), c => c.charCodeAt(0));
    const [layer, example, head] = ['layer', 'example', 'head'].map(name => +pick(name).value);
    const at = ((layer * data.examples + example) * data.heads + head) * size * size;
    shown = bytes[key].subarray(at, at + size * size);
    const image = new ImageData(size, size);
    for (let i = 0; i < size * size; i++) {
      const w = Math.sqrt(shown[i] / 255);
      image.data.set([255 - 255 * w, 255 - 141 * w, 255 - 77 * w, 255], 4 * i);
    }
    canvas.getContext('2d').putImageData(image, 0, 0);
    output.textContent = `looks ${m.distance[layer][head].toFixed(1)} places away on average`;
  };
  canvas.addEventListener('mousemove', e => {
    const r = canvas.getBoundingClientRect(), at = v => Math.min(size - 1, Math.max(0, Math.floor(v * size)));
    const key = at((e.clientX - r.left) / r.width), query = at((e.clientY - r.top) / r.height);
    const tokens = data.encodings[pick('encoding').value].inputs[+pick('example').value];
    output.textContent = `place ${query} (symbol ${tokens[query]}) looks at place ${key} (symbol ${tokens[key]}): ` +
      `${(100 * shown[query * size + key] / 255).toFixed(0)} %`;
  });
  canvas.addEventListener('mouseleave', draw);
  box.querySelectorAll('select').forEach(s => s.addEventListener('change', draw));
  draw();
});
"""
"""Defines `drawMaps(root)`, which draws all maps inside an element, on a page or in the app."""


ATTENTION_HEADING = (
    "One seed, on test sequences of the training length. Rows look, columns are looked at; darker is more (the square "
    "root of the weight is drawn)."
)
MAPS = """\
<div class=maps id="maps-{{ name }}">
<canvas width={{ tokens }} height={{ tokens }} style="width:22rem;height:22rem" role=img aria-label="attention map">
</canvas><div>
{% for field, options in choices.items() %}
<label>{{ field }} <select name={{ field }} aria-label="{{ field }}">
{% for value, text in options %}<option value="{{ value }}">{{ text }}</option>{% endfor %}</select></label>
{% endfor %}
<p><output></output></p><p class=note>Mean attention distance in places, by layer and head:</p>{{ distances }}</div>
<script type=application/json>{{ document }}</script></div>"""


def stored_maps(table: Table[ArenaRun], store: Store) -> dict[str, AttentionMaps]:
    """By encoding, of the one seed that was measured; none where nothing attends."""
    maps: dict[str, AttentionMaps] = {}
    for row in table.rows:
        for result in row.finished[:1]:
            artifact = ATTENTION.find(AttentionRequest(run=result.run.id), store)
            if artifact and artifact.result.layers:
                maps[row.name] = artifact.result
    return maps


def attention_section(name: str, maps: Mapping[str, AttentionMaps]) -> Markup:
    """Empty where nothing attends. Models of different shapes, as tuning may choose, do not share a canvas."""
    alike: dict[tuple[int, ...], dict[str, AttentionMaps]] = {}
    for encoding, of in maps.items():
        alike.setdefault((of.layers, of.examples, of.heads, of.tokens), {})[encoding] = of
    drawn = [_canvas(f"{name}-{number}", group) for number, group in enumerate(alike.values())]
    head = heading("Where attention goes", ATTENTION_HEADING, level=3)
    return Markup("").join([head, *drawn]) if drawn else Markup("")


def attention_of(table: Table[ArenaRun], store: Store) -> list[Markup]:
    """The section of one table, with the script that draws it."""
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
                "distance": [[round(distance, 2) for distance in layer] for layer in of.distance],
                "inputs": of.inputs,
            }
            for encoding, of in maps.items()
        },
    }
    numbered = {"layer": one.layers, "head": one.heads, "example": one.examples}
    choices = {"encoding": [(encoding, encoding) for encoding in maps]}
    choices |= {field: [(str(i), str(i + 1)) for i in range(count)] for field, count in numbered.items()}
    names = [f"{layer + 1}.{head + 1}" for layer in range(one.layers) for head in range(one.heads)]
    rows = [[encoding, *(f"{v:.1f}" for layer in of.distance for v in layer)] for encoding, of in maps.items()]
    distances = html_table(["", *names], rows, label="Mean attention distance")
    return render(
        MAPS,
        name=name,
        tokens=one.tokens,
        choices=choices,
        distances=distances,
        document=embedded(json.dumps(document)),
    )
