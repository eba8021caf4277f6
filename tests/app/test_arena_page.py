"""A comparison as a person makes one: fill in the form, watch, read the verdict, look at heads, stop, go on."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from tests.app.browse import App, Visitor, until
from whence.app.jobs import ALIVE, jobs
from whence.arena.config import ArenaConfig
from whence.experiments.saved import save_config


def test_a_comparison_from_the_form_to_the_attention_maps(visitor: Visitor, app: App) -> None:
    visitor.open("arena")
    visitor.pick("Tasks", "k_back_recall:k=1,symbols=4")
    visitor.pick("Encodings", "rope", "none")
    visitor.write("Number of seeds", "1")
    visitor.write("Training steps", "60")
    visitor.sees("2 runs (0 cached).")
    visitor.press("Start")
    visitor.sees(re.compile("^ID: "))
    expect(visitor.page.get_by_text("exploratory").first).to_be_visible()
    until(lambda: [run.state for run in app.store.summaries()] == ["finished", "finished"])
    expect(visitor.page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    visitor.settled()
    for tab in ("Accuracy by length", "Accuracy by position"):
        visitor.page.get_by_role("tab", name=tab, exact=True).click()
        expect(visitor.page.get_by_role("figure", name=re.compile(f"^{tab}"))).to_be_visible()
    before = visitor.sees(re.compile(r"^Layer ., head .*mean attention distance .* positions\.$")).inner_text()
    visitor.page.get_by_label("head", exact=True).select_option("1" if "head 2" in before else "2")
    expect(
        visitor.page.get_by_text(re.compile(r"^Layer ., head .*mean attention distance .* positions\.$"))
    ).not_to_have_text(before)


@pytest.mark.slow
def test_what_is_missing_of_a_comparison_can_be_run(visitor: Visitor, app: App) -> None:
    small = {"tasks": ["k_back_recall:k=1,symbols=4"], "encodings": ["rope"], "seeds": 1, "training": {"steps": 7}}
    visitor.open(f"arena?comparison={save_config('arena', ArenaConfig.read(small), app.store).stem}")
    visitor.press("Start missing runs")
    visitor.sees(re.compile("^ID: "))
    assert ("finished", 7) in {(run.state, run.step) for run in app.store.summaries()}


@pytest.mark.slow
def test_comparisons_with_the_same_title_are_told_apart(visitor: Visitor, app: App) -> None:
    """Streamlit finds an option by its label."""
    alike = [ArenaConfig.read({"seeds": 1, "training": {"steps": steps}}) for steps in (8, 9)]
    names = [save_config("arena", config, app.store).stem for config in alike]
    for name, other in (names, reversed(names)):
        visitor.open(f"arena?comparison={name}")
        visitor.choose("Comparison", re.compile(other))
        expect(visitor.page).to_have_url(re.compile(other))
        expect(visitor.page.get_by_role("combobox", name="Comparison")).to_have_value(re.compile(other))


def start_a_long_one(visitor: Visitor) -> None:
    visitor.open("arena")
    visitor.pick("Tasks", "k_back_recall:k=1,symbols=4")
    visitor.pick("Encodings", "rope")
    visitor.write("Number of seeds", "1")
    visitor.write("Training steps", "200000")
    visitor.press("Start")


def steps(app: App) -> int:
    return max((run.step for run in app.store.summaries()), default=0)


def test_the_app_is_killed_and_the_run_goes_on(visitor: Visitor, app: App) -> None:
    start_a_long_one(visitor)
    until(lambda: steps(app) > 0)
    visitor.sees(re.compile("1 running"))
    [job] = [job for job in jobs(app.store) if job.state == "running"]
    assert job.started is not None
    assert app.token not in Path(f"/proc/{job.started.process}/environ").read_text()
    before = steps(app)
    app.kill()
    until(lambda: steps(app) > before)
    app.start()
    visitor.open("arena?" + visitor.page.url.partition("?")[2])
    visitor.sees(re.compile("1 running"))
    before = steps(app)
    until(lambda: steps(app) > before)
    visitor.press("Stop")
    visitor.sees("Stopped. All progress is saved.")
    at_rest = steps(app)
    visitor.press("Resume")
    until(lambda: steps(app) > at_rest)
    visitor.press("Stop")
    visitor.sees("Stopped. All progress is saved.")
    [long] = [run for run in app.store.summaries() if run.steps == 200_000]
    assert (long.state, long.step > at_rest) == ("interrupted", True)


@pytest.mark.slow
def test_two_tabs_with_the_same_form_do_not_disturb_each_other(visitor: Visitor, browser: Browser, app: App) -> None:
    other = Visitor(browser, app)
    other.open("arena")
    other.write("Training steps", "77")
    start_a_long_one(visitor)
    visitor.sees("Stop")
    expect(other.page.get_by_label("Training steps", exact=True)).to_have_value("77")
    start_a_long_one(other)  # the very same: it is shown, not started twice
    other.sees(re.compile("1 running"))
    assert [job.state in ALIVE for job in jobs(app.store)].count(True) == 1
    other.leave()
    visitor.press("Stop")
    visitor.sees("Stopped. All progress is saved.")


def test_what_cannot_be_is_said_at_its_field_and_cannot_be_started(visitor: Visitor) -> None:
    visitor.open("arena")
    visitor.page.get_by_text("Training", exact=True).click()
    visitor.write("Learning rate", "quick")
    visitor.sees(re.compile("expected a valid number.*, got 'quick'"))
    expect(visitor.page.get_by_role("button", name="Start", exact=True)).to_be_disabled()
    visitor.write("Learning rate", "0.001")
    visitor.write("Number of seeds", "0")
    visitor.sees(re.compile("seeds: expected a value greater than or equal to 1, got 0"))
    expect(visitor.page.get_by_role("button", name="Start", exact=True)).to_be_disabled()
    visitor.write("Number of seeds", "2")
    visitor.pick("Encodings", "rope", "rope:bas=500")
    visitor.sees(re.compile("no such field.*Did you mean 'base'"))
    visitor.pick("Encodings", "rope")
    expect(visitor.page.get_by_role("button", name="Start", exact=True)).to_be_enabled()
    visitor.page.get_by_text("Copy as a command or as YAML").click()
    visitor.sees("whence arena compare --seeds 2 --encodings rope --lr 0.001")


TAMPERED = [
    "../../../../etc/passwd",
    "arena-../../x",
    "<script>document.title='taken'</script>",
    "%00",
    "arena-" + "f" * 4000,
    "[a](javascript:alert(1))",
]


def test_tampered_addresses_get_a_message(visitor: Visitor, app: App) -> None:
    places = (app.store.root.parent, app.store.root, app.store.reports, app.store.runs)
    before = [sorted(place.iterdir()) for place in places]
    for value in TAMPERED:
        visitor.open(f"arena?comparison={quote(value)}")
        expect(visitor.page.get_by_role("heading", name="Arena")).to_be_visible()
        expect(visitor.page.get_by_text("could not be displayed")).to_have_count(0)
        assert visitor.page.title() != "taken"
    assert [sorted(place.iterdir()) for place in places] == before


@pytest.mark.slow
def test_by_keyboard_and_on_a_telephone(browser: Browser, app: App) -> None:
    small = Visitor(browser, app, width=390, scheme="dark")
    small.open("arena")
    assert small.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    small.page.get_by_label("Training steps", exact=True).focus()
    small.page.keyboard.press("ArrowUp")
    small.page.keyboard.press("Tab")
    small.settled()
    expect(small.page.get_by_label("Training steps", exact=True)).to_have_value("301")
    small.leave()
