"""Images of one size, to compare: two with a divider that is dragged between them, or all side by side.

Everything that moves, moves in the browser (divider.js): the divider, by finger, mouse or arrow keys, and the zoom.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streamlit.components.v2 import component
from torch import Tensor

from whence.fields.images import data_uri

HTML, CSS, JS = (Path(__file__).with_suffix(suffix).read_text() for suffix in (".html", ".css", ".js"))
_mounted = component("whence_divider", html=HTML, css=CSS, js=JS)


def compare(images: Mapping[str, Tensor], key: str, *, divided: bool) -> None:
    """By name, (3, height, width). divided: the first and the last, else all."""
    shown = [{"name": name, "src": data_uri(image)} for name, image in images.items()]
    _mounted(key=key, data={"pictures": shown, "divided": divided})
