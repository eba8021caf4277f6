"""Autoencoders as a person meets them: collect states, compare presets, open one, look at a feature and its text."""

from __future__ import annotations

import re
import shutil
from urllib.parse import quote

import pytest
import torch
from playwright.sync_api import Browser, expect
from torch import nn

from tests.app.browse import App, Visitor, until
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.experiments.saved import save_config
from whence.features.activations.collect import collect_from
from whence.features.activations.sources import of_module
from whence.features.activations.store import Collection, collections
from whence.features.config import FeaturesConfig
from whence.features.instrument import planned_runs

SMALL = "synthetic:d_in=16,features=24,context_size=8,windows=2"


@pytest.fixture(scope="module")
def trained(app: App) -> list[str]:
    """Runs of a comparison that was made in a terminal: one without a mask, one with."""
    spec = FeaturesConfig.read(
        {"presets": ["plain_topk", "static_slice"], "data": SMALL, "seeds": 1, "training": {"steps": 30}}
    )
    save_config("features", spec, app.store)
    runs = [run for runs in planned_runs(spec).values() for run in runs]
    for run in runs:
        execute(run, app.store, ExecutionOptions(threads=1, device="cpu"))
    return [run.id for run in runs]


@pytest.fixture(scope="module")
def collected(app: App) -> str:
    ids = torch.randint(20, (40, 16), generator=torch.Generator().manual_seed(0))
    source = of_module(nn.Sequential(nn.Embedding(20, 8)), "0", ids, 8)
    return collect_from(source, app.store, "tiny", {"model": "an embedding"}).path.name


def start(visitor: Visitor, data: str, *presets: str, lr: str = "") -> None:
    visitor.open("features")
    visitor.fill("Data", data)
    visitor.pick("Presets", *presets)
    visitor.write("Number of seeds", "1")
    visitor.write("Training steps", "30")
    if lr:
        visitor.page.get_by_text("Training", exact=True).click()
        visitor.write("Learning rate", lr)
    visitor.sees(re.compile(rf"^{len(presets)} runs?\. "))
    visitor.press("Start")


def drawn(visitor: Visitor, marks: str, count: int = 0) -> None:
    """Marks of figures, so many of them where that is told."""
    found = visitor.page.locator(f".js-plotly-plot {marks}")
    if count:
        expect(found).to_have_count(count)
    else:
        expect(found.first).to_be_visible()


def profile(visitor: Visitor) -> list[float]:
    """What the figure of one feature draws; nothing, before it does."""
    return visitor.page.evaluate(
        "Array.from([...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.data[0])"
        ".find(line => ['mask off', 'mean activation'].includes(line.name))?.y ?? [])"
    )


def clicked(visitor: Visitor, feature: int) -> bool:
    """On the map, sorted by number, which may just be drawn anew."""
    visitor.page.locator(".scatterlayer .point").nth(feature).click(force=True)
    visitor.page.wait_for_timeout(1000)
    return visitor.page.get_by_text(f"Feature {feature}: peak at position").count() > 0


@pytest.mark.slow
def test_two_presets_from_the_form_to_the_features_of_one(visitor: Visitor) -> None:
    start(visitor, f"{SMALL},world=1", "plain_topk", "static_slice")
    visitor.sees("Hard and soft masks")  # both have finished
    visitor.sees("1 paired seed, 6 are needed for a verdict on 1 comparison in one table; nothing is ranked")
    expect(visitor.page.locator(".badge").get_by_text("exploratory")).to_be_visible()
    numbers = visitor.page.locator("table", has_text="parameters").get_by_role("row")
    assert [row.split()[0] for row in numbers.all_inner_texts()] == ["seeds", "plain_topk", "static_slice"]
    drawn(visitor, ".barlayer .trace")
    visitor.page.get_by_role("tab", name="FVU on held-out activations").click()
    drawn(visitor, ".js-line:visible", 2)
    visitor.page.get_by_text("Inspect the features of one run").click()
    visitor.page.get_by_role("button", name="seed 0", exact=True).last.click()
    visitor.sees(re.compile("FVU .*; with mask off"))
    assert re.search(r"\?run=[0-9a-f]{12}$", visitor.page.url)
    visitor.page.reload()
    visitor.sees("Mean activation by position")


def test_a_feature_is_chosen_by_its_number_and_on_the_map(visitor: Visitor, trained: list[str]) -> None:
    visitor.open(f"features?run={trained[1]}")
    visitor.choose("Features", "all (32)")
    drawn(visitor, ".heatmaplayer image", 1)
    visitor.write("Feature", "3")
    visitor.sees(re.compile("Feature 3: peak at position"))
    until(lambda: bool(profile(visitor)))
    before = profile(visitor)
    visitor.write("Feature", "4")
    visitor.sees(re.compile("Feature 4: peak at position"))
    until(lambda: profile(visitor) != before)
    assert len(profile(visitor)) == len(before)  # a value per position
    visitor.sees("There is no text to show, since the activations are synthetic.")
    visitor.choose("Sort by", "feature number")
    visitor.sees("Click a circle to select its feature.")
    until(lambda: clicked(visitor, 9))


@pytest.mark.slow
def test_two_runs_are_shown_side_by_side(visitor: Visitor, trained: list[str]) -> None:
    visitor.open(f"features?run={trained[1]}")
    visitor.choose("Values", "mean activation, as trained")
    drawn(visitor, ".heatmaplayer image", 1)
    visitor.choose("Compare with", re.compile(rf"plain .* {trained[0][:4]}"))
    drawn(visitor, ".heatmaplayer image", 2)
    visitor.sees(re.compile("static_slice .*: mean activation, as trained, 32 features"))
    visitor.sees(re.compile(r"plain .*: mean activation, \d+ features"))
    assert f"run={trained[1]}" in visitor.page.url


@pytest.mark.slow
def test_states_are_collected_and_features_shown_in_their_text(visitor: Visitor, app: App) -> None:
    visitor.open("features?collection=")
    visitor.write("Name", "fresh")
    visitor.write("Number of tokens", "2000")
    visitor.write("Context size", "32")
    visitor.press("Collect")
    until(lambda: "fresh" in [path.name for path in collections(app.store)])
    expect(visitor.page.get_by_role("row", name=re.compile("fresh minilm 3 384 32 .* finished"))).to_be_visible()
    start(visitor, "fresh", "plain_topk")
    visitor.sees("Inspect the features of one run").click()
    visitor.page.get_by_role("button", name="seed 0", exact=True).click()
    visitor.sees("Mean activation by position")
    expect(visitor.page.locator(".whence td mark").first).to_be_visible()
    words = visitor.page.locator(".whence td:has(mark)")
    before = words.all_inner_texts()
    for feature in ("0", "1", "2"):  # whichever: text is looked up for any
        visitor.write("Feature", feature)
        visitor.sees(re.compile(f"Feature {feature}(: peak at| is never active)"))
    assert words.all_inner_texts() != before


@pytest.mark.slow
def test_what_failed_is_named_beside_what_did_not(visitor: Visitor, app: App) -> None:
    start(visitor, f"{SMALL},world=2", "plain_topk", "002_run04_clip_low_rate", lr="1e30")
    visitor.sees("Failed and damaged runs")
    visitor.sees(re.compile(r"^plain_topk, [0-9a-f]{12}: "))
    visitor.sees(re.compile(r"^Failed runs, excluded from averages: plain_topk \(1\)\.$"))
    states = [run.state for run in app.store.summaries() if run.steps == 30][-2:]
    assert sorted(states) == ["failed", "finished"]


TAMPERED = ["../../../../etc/passwd", "<script>document.title='taken'</script>", "%00", "f" * 4000, "features-../../x"]


@pytest.mark.slow
def test_tampered_addresses_get_a_message(visitor: Visitor, app: App, trained: list[str]) -> None:
    visitor.open("features?run=")  # the index of the store is written now
    places = (app.store.root.parent, app.store.root, app.store.reports, app.store.runs)
    before = [sorted(place.iterdir()) for place in places]
    for name, told in (("run", "asks for run"), ("comparison", "asks for comparison")):
        for value in TAMPERED:
            visitor.open(f"features?{name}={quote(value)}")
            visitor.sees(re.compile(told))
            expect(visitor.page.get_by_text("could not be displayed")).to_have_count(0)
            assert visitor.page.title() != "taken"
    assert [sorted(place.iterdir()) for place in places] == before


@pytest.mark.slow
def test_only_states_of_this_store_can_be_named(visitor: Visitor, app: App, collected: str) -> None:
    """Not even where there would be some to read."""
    elsewhere = app.store.root.parent / "elsewhere"
    shutil.copytree(Collection.open(app.store, collected).path, elsewhere)
    visitor.open("features")
    for text in (str(elsewhere), f"stored:path={elsewhere}", "stored:path=../../..", "../elsewhere", "stored"):
        visitor.fill("Data", text)
        visitor.sees(re.compile(r"data: .* is not known\. Allowed: synthetic, "))
        expect(visitor.page.get_by_role("button", name="Start", exact=True)).to_be_disabled()
    visitor.fill("Data", collected)
    expect(visitor.page.get_by_role("button", name="Start", exact=True)).to_be_enabled()
    visitor.page.get_by_text("Copy as a command or as YAML").click()
    visitor.sees(f"--data {app.store.root}/activations/{collected}")

    visitor.open("features?collection=")
    expect(visitor.page.get_by_label("text", exact=True)).to_have_count(0)
    visitor.write("Name", "../../elsewhere")
    visitor.sees(re.compile("name: expected at most 64 letters"))
    expect(visitor.page.get_by_role("button", name="Collect", exact=True)).to_be_disabled()


@pytest.mark.slow
def test_by_keyboard_and_on_a_telephone(browser: Browser, app: App, trained: list[str], collected: str) -> None:
    small = Visitor(browser, app, d_in=390, scheme="dark")
    for address in ("features", "features?comparison=", "features?collection=", f"features?run={trained[0]}"):
        small.open(address)
        assert small.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), address
    small.page.get_by_label("Feature", exact=True).fill("5")
    small.page.keyboard.press("ArrowUp")
    small.page.keyboard.press("Tab")
    small.sees(re.compile("Feature 6: peak at position"))
    small.leave()
