"""A comparison as a person makes one: fill in the form, watch, read the verdict, look at heads, stop, go on."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.app.browse import PATIENCE_MS, App, Visitor


def test_a_comparison_from_the_form_to_the_attention_maps(visitor: Visitor, app: App) -> None:
    visitor.open("arena")
    visitor.pick("tasks", "k_back_recall:k=1,symbols=4")
    visitor.pick("encodings", "rope", "none")
    visitor.write("seeds", "1")
    visitor.write("steps", "60")
    visitor.sees("2 runs. What the store has already is not run again.")
    visitor.press("Start")
    visitor.sees(re.compile("Within training"))
    expect(visitor.page.get_by_text("exploratory").first).to_be_visible(timeout=PATIENCE_MS)
    assert [run["state"] for run in app.store.summaries()] == ["finished", "finished"]
    visitor.page.get_by_role("tab", name="Attention", exact=True).click()
    before = visitor.sees(re.compile(r"head 1 looks")).inner_text()
    visitor.choose("Head", "2")
    assert visitor.sees(re.compile(r"head 2 looks")).inner_text() != before
