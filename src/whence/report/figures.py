"""Figures. An encoding has the same colour and dash wherever it is drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import plotly.graph_objects as go

# Okabe and Ito's palette: told apart with any kind of colour vision; the dash tells the rest apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C6D1F", "#7A7A7A")
DASHES = ("solid", "dash", "dot", "dashdot")
KNOWN = ("rope", "alibi", "learned", "sinusoidal", "t5", "none", "fire", "kerple")


def line_style(encoding: str) -> dict[str, str]:
    """From the name alone, so that a figure made next year, of other runs, looks the same."""
    name = encoding.split("+")[-1].split(":")[0]
    place = KNOWN.index(name) if name in KNOWN else _hash(name) % len(COLOURS)
    dash = 0 if encoding == name and name in KNOWN else 1 + _hash(encoding) % (len(DASHES) - 1)
    return {"color": COLOURS[place], "dash": DASHES[dash]}


def swatch_of(style: Mapping[str, str]) -> str:
    """Its colour, as a dot of HTML."""
    return f'<span class=swatch style="background:{style["color"]}"></span>'


def _hash(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0]


def figure_of(across: str, up: str) -> go.Figure:
    """Empty, with its axes named."""
    figure = go.Figure()
    figure.update_layout(
        xaxis_title=across,
        yaxis_title=up,
        template="plotly_white",
        height=380,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},  # grows upwards, away from the lines
    )
    return figure
