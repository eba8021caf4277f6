"""What all pages share: figures, how to make them again. No page of ours asks the network for anything."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.io import to_html

from whence.report.style import STYLE
from whence.store.files import addressed_name, write_atomically


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
