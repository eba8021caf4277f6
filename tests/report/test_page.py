"""The page: complete, self-contained, and alive in a browser."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.report.conftest import some_maps
from whence.arena.attention_page import attention_section
from whence.arena.findings import findings
from whence.arena.page import Page
from whence.runs.files import check_addressed
from whence.runs.store import Store

HOSTILE = """<img src=x onerror=alert(1)>&"'</script><!--<script>"""


def own_part(text: str) -> str:
    """Without scripts: the drawing library has addresses in its comments."""
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_nothing_is_fetched(page: Page) -> None:
    text = page.render().decode()
    assert not re.search(r"<(script|link|img|iframe|source|video|object|embed)[^>]*\s(src|href|data)\s*=", text)
    assert not re.search(r"url\(|@import|https?://", own_part(text))
    assert text.count("plotly.js v") == 1, "the drawing library is inside, once"


def test_every_run_and_every_seed_is_shown(page: Page) -> None:
    text = page.render().decode()
    for table in page.tables:
        for row in table.rows:
            assert all(run_id in text for run_id in row.runs)
    dots = own_part(text).count("<i style=")
    within = sum(row.finished for table in page.tables for row in table.rows)
    beyond = sum(row.finished for table in page.tables for row in table.rows if row.mastered)
    assert (within, beyond) == (52, 18)
    assert dots == within + beyond, "one dot per seed, within and, where it is claimed, beyond training"
    assert "1 failed or damaged, not averaged" in text


def test_findings_floors_and_headings_are_in_the_page(page: Page) -> None:
    text = html.unescape(page.render().decode())
    for table in page.tables:
        assert table.heading in text
        assert len(findings(table)) > 2
        for line in findings(table):
            assert line in text
        floors = table.run.floors(8)
        assert all(f"{name} {100 * value:.1f} %" in text for name, value in floors.items())
    assert "rope beats alibi in distribution" in text
    assert "Across tasks" in text


def test_the_specification_and_the_command_can_be_copied_out(page: Page) -> None:
    text = page.render().decode()
    blocks = [html.unescape(block) for block in re.findall(r"<pre>(.*?)</pre>", text, flags=re.DOTALL)]
    assert blocks[0] == page.again
    assert json.loads(blocks[1]) == page.document


def test_whatever_a_user_wrote_stays_text(page: Page) -> None:
    table = page.tables[0]
    row = replace(table.rows[0], encoding=HOSTILE, failed={"0" * 12: HOSTILE}, chosen={"lr": HOSTILE})
    broken = replace(row, within=None, beyond=None)
    strange = replace(table, title=HOSTILE, task=HOSTILE, rows=(row, broken))
    text = Page([strange], {"x": HOSTILE}, HOSTILE, {(HOSTILE, HOSTILE): some_maps()}).render().decode()
    for wrong in ("<img", "</script><!--", "<!--<script>"):
        assert wrong not in own_part(text)
        assert wrong not in text.replace(re.findall(r"<script[^>]*>/\*\*?.*?</script>", text, re.DOTALL)[0], "")
    assert text.count("&lt;img") >= 6


def test_a_page_has_the_name_of_its_content(page: Page, store: Store) -> None:
    path = page.write(store.reports)
    check_addressed(path)
    assert page.write(store.reports) == path
    assert replace(page, again="another").write(store.reports) != path


def test_models_of_different_shapes_do_not_share_a_canvas() -> None:
    """Tuning may choose two heads for one encoding and four for another: maps must not be read with a wrong stride."""
    section = attention_section("x", {"rope": some_maps(), "alibi": some_maps(heads=4), "t5": some_maps()})
    documents = [json.loads(d) for d in re.findall(r"<script type=application/json>(.*?)</script>", section)]
    assert [(d["heads"], list(d["encodings"])) for d in documents] == [(2, ["rope", "t5"]), (4, ["alibi"])]
    names = re.findall(r'id="(maps-[^"]*)"', section)
    assert len(set(names)) == 2
    assert attention_section("x", {}) == ""


WATCH = b"""<script>
window.addEventListener('error', e => { document.documentElement.dataset.error = e.message; });
</script>"""
TRY = b"""<script>
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
  root.dataset.fetched = performance.getEntriesByType('resource').map(r => r.name).join(' ') || 'nothing';
  root.dataset.plots = document.querySelectorAll('.main-svg').length > 0;
}, 500));
</script>"""


def test_a_browser_draws_maps_and_curves_and_fetches_nothing(page: Page, browse: Callable[[bytes], str]) -> None:
    table = page.tables[0]
    strange = replace(table, rows=(table.rows[0], replace(table.rows[1], encoding=HOSTILE)))
    maps = {(table.title, "rope"): some_maps(), (table.title, HOSTILE): some_maps()}
    text = Page([strange], page.document, page.again, maps).render()
    script = TRY.replace(b"HOSTILE", json.dumps(HOSTILE).replace("<", "\\u003c").encode())
    text = text.replace(b"<head>", b"<head>" + WATCH).replace(b"</body>", script + b"</body>")
    shown = browse(text)
    found = dict(re.findall(r'data-(\w+)="([^"]*)"', shown[: shown.index("<head>")]))
    assert "error" not in found
    assert found["before"] == "looks 0.5 places away on average"
    assert found["after"] == "looks 3.5 places away on average", "a choice changes what is drawn"
    assert found["redrawn"] == "true"
    assert found["canvases"] == "1"
    assert found["fetched"] == "nothing"
    assert found["plots"] == "true"


def test_a_page_without_maps_or_lengths_beyond(page: Page) -> None:
    table = page.tables[1]
    rows = tuple(replace(row, members=(), within=None, beyond=None) for row in table.rows)
    text = Page([replace(table, rows=rows, comparisons={})], {}, "again", {}).render().decode()
    assert "<canvas" not in own_part(text)
    assert "<circle" not in own_part(text)


@pytest.mark.parametrize("encoding", ["rope", "randomized+rope", "new_one"])
def test_an_encoding_looks_the_same_on_every_page(encoding: str) -> None:
    from whence.report.figures import COLOURS, DASHES, line_style

    style = line_style(encoding)
    assert style == line_style(encoding)
    assert style["color"] in COLOURS
    assert style["dash"] in DASHES
    assert (style == line_style("rope")) == (encoding == "rope")
