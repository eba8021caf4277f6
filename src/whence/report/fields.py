"""Pages of the fields instrument: what a trained model makes of pictures, and what it rests on."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from torch import Tensor

from whence.fields.analysis import Analysis
from whence.fields.run import Run
from whence.report.figures import COLOURS, DASHES, figure_of
from whence.report.shell import plot, regenerate, shell

WIDTH = 128
"""Of one picture on the page, in CSS pixels."""


def analysis_page(run: Run, found: Analysis, status: Mapping[str, Any], again: str) -> bytes:
    numbers = found.numbers
    title = f"whence fields: {run.id}"
    parts = [f"<h1>{html.escape(title)}</h1>", f"<p class=note>{html.escape(' · '.join(run.labels().values()))}</p>"]
    parts.append(
        "<ul class=findings>" + "".join(f"<li>{html.escape(line)}</li>" for line in findings(numbers)) + "</ul>"
    )
    parts += ["<h2>Pictures never trained on</h2>", _pictures(found.pictures)]
    parts += ["<h2>Quality by scale</h2>", plot(_scales(status["latest"]["test"]["scales"]), "scales", True)]
    parts += ["<h2>What the field rests on</h2>", plot(_robustness(numbers), "robust", False)]
    parts += ["<h2>What each position token contributes</h2>", plot(_contributions(numbers["pruning"]), "lps", False)]
    return shell(title, [*parts, *regenerate(again, run.document())])


def findings(numbers: Mapping[str, Any]) -> list[str]:
    own, swapped = numbers["own"], numbers["swapped"]
    lines = [
        f"With another picture's position tokens the field falls from {own:.1f} to {swapped:.1f} dB: "
        + ("what it shows comes through them." if own - swapped > 3 else "it hardly uses them.")
    ]
    if "render" in numbers:
        lost = numbers["render"] - numbers["render_swapped"]
        lines.append(
            f"The render loses {lost:.2f} dB that way: " + ("it owes little to them." if lost < 1 else "it uses them.")
        )
    left = numbers["pruning"]["left"]
    lines.append(
        "Without the least useful position tokens: "
        + ", ".join(f"{100 * float(share):g} % gone {value:.1f} dB" for share, value in left.items() if float(share))
        + f" (all: {left['0']:.1f} dB)."
    )
    told = numbers["diversity"]
    lines.append(f"Diversity of position tokens, 1 − mean cosine: {told['raw']:.2f}, centred {told['centred']:.2f}.")
    return lines


def _pictures(columns: Mapping[str, Sequence[Tensor]]) -> str:
    if not columns:
        return "<p class=note>Not a picture.</p>"
    head = "".join(f"<th>{html.escape(name)}" for name in columns)
    rows = zip(*columns.values(), strict=True)
    body = "".join(
        "<tr>" + "".join(f"<td>{_image(picture, name)}" for picture, name in zip(row, columns, strict=True))
        for row in rows
    )
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def _image(picture: Tensor, name: str) -> str:
    from PIL import Image

    values = (picture.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous().numpy()
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img width={WIDTH} height={WIDTH} alt="{html.escape(name)}" src="data:image/png;base64,{data}">'


def _scales(scales: Mapping[str, Any]) -> go.Figure:
    figure = figure_of("scale", "PSNR (dB)")
    names = list(dict.fromkeys(name for found in scales.values() for name in found))
    for place, name in enumerate(names):
        there = {scale: found[name]["psnr"] for scale, found in scales.items() if name in found}
        line = {"color": COLOURS[place % len(COLOURS)], "dash": DASHES[0 if name in ("field", "render") else 1]}
        figure.add_scatter(
            x=[f"×{s}" for s in there], y=list(there.values()), name=name, mode="lines+markers", line=line
        )
    return figure


def _robustness(numbers: Mapping[str, Any]) -> go.Figure:
    figure = figure_of("in spacings of position tokens", "PSNR (dB)")
    for place, (key, name) in enumerate(
        (("jitter", "places of tokens moved at random by"), ("listening", "listened to beside the point by"))
    ):
        values = numbers[key]
        figure.add_scatter(
            x=[float(by) for by in values],
            y=list(values.values()),
            name=name,
            mode="lines+markers",
            line={"color": COLOURS[place]},
        )
    figure.add_hline(
        y=numbers["swapped"], line={"dash": "dot", "color": "#888"}, annotation_text="another picture's tokens"
    )
    return figure


def _contributions(pruning: Mapping[str, Any]) -> go.Figure:
    figure = figure_of("position token, by contribution", "dB lost without it")
    values = sorted(pruning["contribution"], reverse=True)
    figure.add_bar(x=list(range(len(values))), y=values, marker={"color": COLOURS[0]})
    return figure
