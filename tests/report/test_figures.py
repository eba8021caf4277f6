"""Figures: a name alone decides how something is drawn."""

from __future__ import annotations

import pytest

from whence.report.figures import COLOURS, DASHES, line_style


@pytest.mark.parametrize("encoding", ["rope", "randomized+rope", "new_one"])
def test_an_encoding_looks_the_same_on_every_page(encoding: str) -> None:
    style = line_style(encoding)
    assert style == line_style(encoding)
    assert style["color"] in COLOURS
    assert style["dash"] in DASHES
    assert (style == line_style("rope")) == (encoding == "rope")
