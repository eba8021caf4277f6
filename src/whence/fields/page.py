"""Pages of the fields instrument: what a trained model makes of pictures, and what it rests on."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from whence.fields.analysis import Analysis, as_pictures
from whence.fields.baselines import resize
from whence.fields.cost import crossing
from whence.fields.metrics import WINDOW, psnr, ssim
from whence.fields.run import FieldsRun
from whence.report.figures import COLOURS, DASHES, figure_of
from whence.report.shell import plot, regenerate, shell
from whence.stats import PSNR


def analysis_page(run: FieldsRun, found: Analysis, status: Mapping[str, Any], again: str) -> bytes:
    numbers = found.numbers
    parts = _head(run, findings(numbers))
    parts += ["<h2>Pictures never trained on</h2>", pictures_table(found.pictures)]
    parts += _neighbours(numbers["neighbours"], found.pictures.get("original", []))
    parts += [
        "<h2>Quality by scale</h2>",
        plot(quality_over_scales(status["latest"]["test"]["scales"]), "scales", True),
    ]
    parts += ["<h2>What the field rests on</h2>", plot(_robustness(numbers), "robust", False)]
    parts += ["<h2>What each position token contributes</h2>", plot(_contributions(numbers["pruning"]), "lps", False)]
    return shell(_title(run), [*parts, *regenerate(again, run.document())])


def _title(run: FieldsRun) -> str:
    return f"whence fields: {run.id}"


def _head(run: FieldsRun, lines: Sequence[str]) -> list[str]:
    found = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    labels = html.escape(" · ".join(run.labels().values()))
    return [f"<h1>{html.escape(_title(run))}</h1>", f"<p class=note>{labels}</p>", f"<ul class=findings>{found}</ul>"]


def run_page(
    run: FieldsRun,
    status: Mapping[str, Any],
    evaluations: Sequence[Mapping[str, Any]],
    columns: Mapping[str, Tensor],
    shown: Tensor,
    facts: Mapping[str, float],
    cost: Mapping[str, Mapping[int, Mapping[str, float]]],
    again: str,
) -> bytes:
    """What a training run came to. columns: by name (rows, channels, *true); shown: what the model was given."""
    scales = status["latest"]["test"]["scales"]
    parts = _head(run, results(scales))
    parts.append(
        f"<p>{facts['parameters']:,} parameters · {facts['encode']:.1f} ms to encode a signal, "
        f"{facts['decode']:.1f} ms to decode it at its own size (one thread)</p>"
    )
    parts += ["<h2>Quality by scale, on signals never trained on</h2>", quality_table(scales)]
    parts.append(plot(quality_over_scales(scales), "scales", True))
    if shown.ndim == 3:
        parts += ["<h2>Signals never trained on</h2>", plot(curves(columns, shown), "curves", False)]
    else:
        pictures = {name: list(values) for name, values in as_pictures(dict(columns)).items()}
        parts += ["<h2>Pictures never trained on</h2>", pictures_table(pictures)]
    parts += ["<h2>As it was trained</h2>", plot(learning_curve(evaluations), "learning", False)]
    if cost:
        parts += ["<h2>Time and memory by number of tokens</h2>", f"<p class=note>{html.escape(faster_from(cost))}</p>"]
        parts.append(plot(_by_tokens(cost, "ms", "milliseconds to encode"), "time", False))
        parts.append(plot(_by_tokens(cost, "mib", "MiB to encode, beyond the model"), "memory", False))
    return shell(_title(run), [*parts, *regenerate(again, run.document())])


def results(scales: Mapping[str, Any]) -> list[str]:
    """Each output against what it must beat."""
    lines = []
    for scale, made in scales.items():
        for output in ("field", "render"):
            beaten = made.get(output, {}).get("above", {})
            if beaten:
                told = ", ".join(
                    f"{name} {made[output]['psnr'] - made[name]['psnr']:+.2f} dB (above on {100 * share:.0f} %)"
                    for name, share in beaten.items()
                )
                lines.append(f"×{scale}: the {output} reaches {made[output]['psnr']:.2f} dB; against {told}.")
    return lines


def quality_table(scales: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(name for made in scales.values() for name in made))
    head = "".join(f"<th>{html.escape(name)}" for name in names)
    body = ""
    for scale, made in scales.items():
        cells = "".join(f"<td class=n>{_cell(made.get(name))}" for name in names)
        body += f"<tr><td>×{scale}{cells}</tr>"
    return f"<div class=scroll><table><tr><th>PSNR (dB) · SSIM{head}</tr>{body}</table></div>"


def _cell(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "–"
    return f"{found['psnr']:.2f}" + (f" · {found['ssim']:.3f}" if found.get("ssim") is not None else "")


def curves(columns: Mapping[str, Tensor], shown: Tensor) -> go.Figure:
    """The first signal of one axis, its first channel."""
    figure = figure_of("place", "value")

    def places(count: int) -> list[float]:
        return [(index + 0.5) / count for index in range(count)]

    for place, (name, values) in enumerate(columns.items()):
        curve = values[0, 0].tolist()
        line = {"color": COLOURS[place], "dash": DASHES[0 if name == "original" else 1]}
        figure.add_scatter(x=places(len(curve)), y=curve, name=name, mode="lines", line=line)
    given = shown[0, 0].tolist()
    figure.add_scatter(x=places(len(given)), y=given, name="shown to the model", mode="markers")
    return figure


def learning_curve(evaluations: Sequence[Mapping[str, Any]]) -> go.Figure:
    figure = figure_of("step", "PSNR (dB) of the field, ×1")
    for place, split in enumerate(("validation", "test")):
        values = [next(iter(e["metrics"][split]["scales"].values()))["field"]["psnr"] for e in evaluations]
        line = {"color": COLOURS[place]}
        figure.add_scatter(x=[e["step"] for e in evaluations], y=values, name=split, mode="lines+markers", line=line)
    return figure


def faster_from(cost: Mapping[str, Mapping[int, Mapping[str, float]]]) -> str:
    """In words: from how many tokens on the first encoder is faster than the second."""
    if len(cost) < 2:
        return ""
    first, second = cost
    at = crossing(*({tokens: found["ms"] for tokens, found in cost[name].items()} for name in (first, second)))
    counts = sorted(cost[first])
    if at is None:
        return f"{second} is faster up to {counts[-1]:,} tokens."
    if at <= counts[0]:
        return f"{first} is faster from {counts[0]:,} tokens to {counts[-1]:,}."
    return f"{first} is faster than {second} from about {at:,.0f} tokens on."


def _by_tokens(cost: Mapping[str, Mapping[int, Mapping[str, float]]], what: str, label: str) -> go.Figure:
    figure = figure_of("tokens, position tokens among them", label)
    for place, (name, counts) in enumerate(cost.items()):
        figure.add_scatter(
            x=list(counts),
            y=[found[what] for found in counts.values()],
            name=name,
            mode="lines+markers",
            line={"color": COLOURS[place], "dash": DASHES[place]},
        )
    figure.update_xaxes(type="log", tickvals=list(next(iter(cost.values()))))
    figure.update_yaxes(type="log")
    return figure


def findings(numbers: Mapping[str, Any]) -> list[str]:
    own, swapped = numbers["own"], numbers["swapped"]
    lines = [
        f"With another signal's position tokens the field falls from {own:.1f} to {swapped:.1f} dB: "
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


def _neighbours(nearest: Sequence[int], originals: Sequence[Tensor]) -> list[str]:
    """For every signal, in words, the one whose position tokens are most like its own."""
    if not originals:
        return []
    told = ", ".join(f"{one + 1} → {other + 1}" for one, other in enumerate(nearest))
    return ["<h2>Nearest neighbours by mean position token</h2>", f"<p class=note>signal → nearest: {told}</p>"]


def quality_over_scales(scales: Mapping[str, Any]) -> go.Figure:
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
        y=numbers["swapped"], line={"dash": "dot", "color": "#888"}, annotation_text="another signal's tokens"
    )
    return figure


def _contributions(pruning: Mapping[str, Any]) -> go.Figure:
    figure = figure_of("position token, by contribution", "dB lost without it")
    values = sorted(pruning["contribution"], reverse=True)
    figure.add_bar(x=list(range(len(values))), y=values, marker={"color": COLOURS[0]})
    return figure


WIDE, FEW, NARROW = 176, 5, 128
"""Of one picture on the page, in CSS pixels: where there are few beside each other, and where there are more."""
LEVELS = 255
MAPPED = 192
"""Points of a map's longer side; finer ones are averaged: a browser draws every one."""


def png(picture: Tensor) -> bytes:
    """(3, height, width), bytes or clipped to [0, 1]."""
    from PIL import Image

    values = picture if picture.dtype == torch.uint8 else (picture.clamp(0, 1) * LEVELS).round().byte()
    buffer = io.BytesIO()
    Image.fromarray(values.permute(1, 2, 0).contiguous().numpy()).save(buffer, "PNG")
    return buffer.getvalue()


def data_uri(picture: Tensor) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(picture)).decode()}"


def pictures_table(columns: Mapping[str, Sequence[Tensor]]) -> str:
    if not columns:
        return "<p class=note>Not a picture.</p>"
    head = "".join(f"<th>{html.escape(name)}" for name in columns)
    width = WIDE if len(columns) <= FEW else NARROW
    body = "".join(
        "<tr>" + "".join(f"<td>{_image(picture, name, width)}" for picture, name in zip(row, columns, strict=True))
        for row in zip(*columns.values(), strict=True)
    )
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def _image(picture: Tensor, name: str, width: int) -> str:
    return f'<img width={width} height={width} alt="{html.escape(name)}" src="{data_uri(picture)}">'


# --- against the truth


def quality(said: Tensor, truth: Tensor) -> dict[str, float | None]:
    """Of one picture (3, height, width) in [0, 1]; no SSIM where it is too small for that."""
    alike = float(ssim(said[None], truth[None])) if min(truth.shape[1:]) >= WINDOW else None
    return {"psnr": float(psnr(said[None], truth[None])), "ssim": alike}


def compared(name: str, mine: Mapping[str, Any], bicubic: Mapping[str, Any]) -> str:
    """In words: which of two is closer to the original, of this one picture."""
    gap = mine["psnr"] - bicubic["psnr"]
    if abs(gap) < PSNR.tie_margin:
        verdict = f"Within {PSNR.margin} of each other"
    else:
        verdict = f"{f'The {name}' if gap > 0 else 'Bicubic'} is closer to the original, by {abs(gap):.2f} dB"
    return f"{verdict}. {_told(name, mine)}; {_told('bicubic', bicubic)}."


def _told(name: str, found: Mapping[str, Any]) -> str:
    return f"{name} {found['psnr']:.2f} dB PSNR" + ("" if found["ssim"] is None else f", {found['ssim']:.3f} SSIM")


def difference(one: Tensor, other: Tensor) -> Tensor:
    """(height, width): absolute, mean over colours, in levels of 255; no larger than a map is drawn."""
    found = LEVELS * (one - other).abs().mean(0, keepdim=True)
    height, width = found.shape[1:]
    scale = min(1.0, MAPPED / max(height, width))
    return resize(found[None], (max(1, round(height * scale)), max(1, round(width * scale))), "area")[0, 0]


def difference_map(found: Tensor, most: float) -> go.Figure:
    """most: where the colour scale ends, so that two maps can have the same one."""
    figure = go.Figure()
    figure.add_heatmap(
        z=[[round(value, 1) for value in row] for row in found.tolist()],
        zmin=0,
        zmax=max(most, 1),
        colorscale="Cividis",
        colorbar={"title": {"text": "levels of 255", "side": "top"}, "thickness": 14, "orientation": "h", "y": -0.28},
        hovertemplate="%{z:.1f} levels of 255<extra></extra>",
    )
    hidden = {"visible": False, "constrain": "domain"}
    figure.update_layout(
        xaxis=hidden,
        yaxis={**hidden, "autorange": "reversed", "scaleanchor": "x"},
        height=420,
        margin={"l": 0, "r": 0, "t": 10, "b": 80},
    )
    return figure
