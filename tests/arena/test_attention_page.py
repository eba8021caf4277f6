"""Attention maps on a page: drawn in a browser, each from the numbers of its own model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.arena.made_report import made_report, show_maps, some_maps
from whence.arena.page import MAP_SCRIPT, attention_section
from whence.report.shell import Script, embedded, shell, with_script
from whence.store.runs import Store

HOSTILE = """<img src=x onerror=alert(1)>&"'</script><!--<script>"""
TRY = """
addEventListener('DOMContentLoaded', () => {
const root = document.documentElement, box = document.querySelector('.maps');
const words = () => box.querySelector('output').textContent;
const canvas = box.querySelector('canvas');
const drawn = () => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.join();
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


def test_maps_open_on_the_head_that_attends_to_the_answer(browse: Callable[[bytes], str]) -> None:
    keys = ((-1, 0, 1, 2, 3, 4, 5, 6),) * 3
    rope = some_maps().model_copy(update={"answer_keys": keys, "on_answer": ((0.1, 0.2), (0.9, 0.3))})
    alibi = some_maps().model_copy(update={"answer_keys": keys, "on_answer": ((0.1, 0.4), (0.2, 0.3))})
    section = attention_section("x", {"alibi": alibi, "rope": rope})
    assert "Attention on the answer (%)" in section
    assert "orange square" in section
    look = """
    addEventListener('load', () => {
      const root = document.documentElement, words = () => document.querySelector('output').textContent;
      const pixel = (x, y) => {
        const canvas = document.querySelector('canvas'), cell = canvas.width / 8;
        return canvas.getContext('2d').getImageData((x + .1) * cell, (y + .5) * cell, 1, 1).data.join();
      };
      root.dataset.first = words();
      root.dataset.marked = pixel(0, 1);
      const select = document.querySelector('[name=encoding]');
      select.value = 'alibi';
      select.dispatchEvent(new Event('change'));
      root.dataset.second = words();
    })"""
    shown = browse(with_script(shell("x", [section, Script(f"{MAP_SCRIPT}drawMaps(document)")]), look))
    found = dict(re.findall(r'data-(\w+)="([^"]*)"', shown[: shown.index("<head>")]))
    assert found["first"].startswith("Layer 2, head 1: 90 % of the attention is on the token that holds the answer;")
    assert found["second"].startswith("Layer 1, head 2: 40 % of the attention")
    assert found["marked"] == "230,159,0,255"
    silent = attention_section("x", {"rope": some_maps()})
    assert "orange square" not in silent
    assert "Attention on the answer" not in silent


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
    assert found["before"] == "Layer 1, head 1: mean attention distance 0.5 positions."
    assert found["after"] == "Layer 2, head 2: mean attention distance 3.5 positions.", "a choice changes the map"
    assert found["redrawn"] == "true"
    assert found["canvases"] == "1"
    assert found["plots"] == "true"
