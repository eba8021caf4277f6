"""docs/scan.svg from bench/results.json: µs per token against length, both axes logarithmic.

python bench/scan_plot.py
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from record import RESULTS

PICTURE = RESULTS.parent.parent / "docs" / "scan.svg"
WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 64, 56  # margins; the names of the curves stand in the right one
# Its own background, so that it can be read wherever it is shown.
STYLE = """
  svg { --paper: #ffffff; --ink: #1f2328; --faint: #59636e; --grid: #e4e7eb; --ours: #0969da; --other: #bc4c00; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #0d1117; --ink: #e6edf3; --faint: #9198a1; --grid: #262c34; --ours: #58a6ff; --other: #f0883e; }
  }
  text { font: 13px system-ui, sans-serif; fill: var(--ink); }
  .title { font-size: 16px; font-weight: 600; }
  .faint { fill: var(--faint); }
  .grid { stroke: var(--grid); }
  .curve { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
  .mark { stroke: var(--faint); stroke-dasharray: 4 4; }
"""
Curve = dict[int, float]


class Axes:
    """Where numbers are on the page."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.lengths, self.costs = x, y

    def x(self, length: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * _share(length, *self.lengths)

    def y(self, cost: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _share(cost, *self.costs)


def _share(value: float, low: float, high: float) -> float:
    return math.log(value / low) / math.log(high / low)


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}"{more}>{words}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def strokes(axes: Axes, points: Curve, colour: str, more: str = "") -> tuple[str, list[tuple[float, float]]]:
    places = [(axes.x(length), axes.y(cost)) for length, cost in sorted(points.items())]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline class="curve" style="stroke: var(--{colour}){more}" points="{joined}"/>', places


def curve(axes: Axes, points: Curve, colour: str, name: str, note: str) -> list[str]:
    polyline, places = strokes(axes, points, colour)
    x, y = places[-1]
    return [
        polyline,
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" style="fill: var(--{colour})"/>' for x, y in places),
        text(x + 10, y, name, more=f' style="fill: var(--{colour}); font-weight: 600"'),
        text(x + 10, y + 16, note, "faint"),
    ]


def draw(ours: Curve, pooled: Curve, other: Curve, crossing: float | None, caption: str) -> str:
    """`kept`: as `ours`, with an allocator that keeps freed memory."""
    costs = [*ours.values(), *other.values()]
    low, high = 10 ** math.floor(math.log10(min(costs))), 10 ** math.ceil(math.log10(max(costs)))
    axes = Axes((min(ours) / 1.2, max(ours) * 1.2), (low, high))
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" style="fill: var(--paper)"/>',
        text(24, 30, "Time per token against length", "title"),
        text(24, 50, caption, "faint"),
    ]
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        y = axes.y(10**power)
        parts += [line(LEFT, y, right, y, "grid"), text(LEFT - 8, y + 4, f"{10**power:,}", "faint", "end")]
    for length in sorted(ours)[::2]:
        x = axes.x(length)
        parts += [line(x, TOP, x, bottom, "grid"), text(x, bottom + 20, f"{length:,}", "faint", "middle")]
    parts += [
        text((LEFT + right) / 2, HEIGHT - 14, "length in tokens", "faint", "middle"),
        text(20, (TOP + bottom) / 2, "µs", "faint", "middle"),
    ]
    if crossing:
        x = axes.x(crossing)
        parts += [line(x, TOP, x, bottom, "mark"), text(x + 8, TOP + 18, f"cross at {crossing:,.0f} tokens")]
    parts += curve(axes, other, "other", "causal attention", "torch SDPA, 4 heads")
    parts += curve(axes, ours, "ours", "selective scan", "whence, N = 16")
    polyline, places = strokes(axes, pooled, "ours", "; stroke-width: 1.5; stroke-dasharray: 2 3")
    x, y = places[-1]
    below = axes.y(ours[max(ours)]) + 34  # the two lines of text beside the curve itself
    parts += [polyline, text(x + 10, max(y + 12, below), "dotted: memory kept", "faint")]
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="Time per token against length, selective scan and causal attention">\n'
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def plot() -> Path:
    results = json.loads(RESULTS.read_text())["scan"]
    measured = results["length"]["us_per_token"]
    ours, pooled, other = (
        {int(length): cost for length, cost in each.items()}
        for each in (measured["scan"], results["memory_kept"]["us_per_token"], measured["attention"])
    )
    caption = f"forward and backward, width 256, batch 1, float32, {results['machine']}, {results['threads']} threads"
    PICTURE.write_text(draw(ours, pooled, other, results["length"]["crossing"], caption))
    return PICTURE


if __name__ == "__main__":
    print(plot())
