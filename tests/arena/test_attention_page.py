"""Attention maps on a page: drawn in a browser, each from the numbers of its own model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.arena.made_report import made_report, show_maps, some_maps
from whence.arena.page import attention_section
from whence.report.shell import embedded, with_script
from whence.store.runs import Store

HOSTILE = """<img src=x onerror=alert(1)>&"'</script><!--<script>"""
TRY = """
addEventListener('DOMContentLoaded', () => {
const root = document.documentElement, box = document.querySelector('.maps');
const words = () => box.querySelector('output').textContent;
const drawn = () => box.querySelector('canvas').getContext('2d').getImageData(0, 0, 8, 8).data.join();
const before = [words(), drawn()];
for (const [name, value] of [['head', '1'], ['layer', '1'], ['encoding', HOSTILE]]) {
  const select = box.querySelector(`[name=${name}]`);
  select.value = value;
  select.dispatchEvent(new Event('change'));
}
root.dataset.before = before[0];
root.dataset.after = words();
root.dataset.redrawn = before[1] !== drawn();
root.dataset.canvases = document.querySelectorAll('canvas').length;
addEventListener('load', () => setTimeout(() => {
  root.dataset.plots = document.querySelectorAll('.main-svg').length > 0;
}, 500));
})"""


def test_models_of_different_shapes_do_not_share_a_canvas() -> None:
    """Tuning may choose two heads for one encoding and four for another: maps must not be read with a wrong stride."""
    section = attention_section("x", {"rope": some_maps(), "alibi": some_maps(heads=4), "t5": some_maps()})
    documents = [json.loads(d) for d in re.findall(r"<script type=application/json>(.*?)</script>", section)]
    assert [(d["heads"], list(d["encodings"])) for d in documents] == [(2, ["rope", "t5"]), (4, ["alibi"])]
    names = re.findall(r'id="(maps-[^"]*)"', section)
    assert len(set(names)) == 2
    assert attention_section("x", {}) == ""


def test_a_browser_draws_maps_and_curves_and_fetches_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, browse: Callable[[bytes], str]
) -> None:
    report = made_report(store, monkeypatch)
    table = report.tables[0]
    strange = replace(table, rows=(table.rows[0], replace(table.rows[1], name=HOSTILE)))
    show_maps({"rope": some_maps(), HOSTILE: some_maps()}, monkeypatch)
    text = replace(report, tables=[strange]).html()
    shown = browse(with_script(text, TRY.replace("HOSTILE", embedded(json.dumps(HOSTILE)))))
    found = dict(re.findall(r'data-(\w+)="([^"]*)"', shown[: shown.index("<head>")]))
    assert found["before"] == "looks 0.5 places away on average"
    assert found["after"] == "looks 3.5 places away on average", "a choice changes what is drawn"
    assert found["redrawn"] == "true"
    assert found["canvases"] == "1"
    assert found["plots"] == "true"
