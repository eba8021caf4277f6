"""Fields as a person uses them: bring a picture, enlarge it, compare; train one and watch; vary a part of the model."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, expect

from tests.app.browse import SOON_MS, App, Visitor, until
from tests.app.fields import saved, trained, waves
from whence.fields.run import FieldsRun


@pytest.fixture(scope="module")
def run(app: App) -> FieldsRun:
    return trained(app)


def divider(visitor: Visitor) -> Locator:
    return visitor.page.get_by_role("slider", name=re.compile("^divider"))


def test_without_a_run_the_page_says_what_to_do(visitor: Visitor) -> None:
    visitor.open("fields")
    visitor.sees("No field of colour images has been trained in this store yet.")
    assert visitor.page.locator('input[type="file"]').count() == 0


def render_larger(visitor: Visitor) -> None:
    """Opens the expander, which closes when the page is made anew in that moment."""
    button = visitor.page.get_by_role("button", name="Render at 384", exact=True).first
    if not button.is_visible():
        visitor.page.get_by_text("Larger sizes", exact=True).first.click()
        expect(button).to_be_visible(timeout=SOON_MS)
    visitor.press("Render at 384")


def test_a_picture_is_brought_enlarged_compared_and_taken_home(visitor: Visitor, run: FieldsRun) -> None:
    page = visitor.page
    visitor.open("fields?size=64")
    visitor.sees(re.compile("The run was not trained on this image"))
    visitor.upload("waves.png", saved(Image.fromarray(waves())))
    visitor.sees("waves.png: 96×64 pixels.")
    visitor.sees("48×32 → 64×43 pixels")
    visitor.sees(
        re.compile(r"(closer to the original by|of each other).*render \d+\.\d\d dB PSNR, 0?\.\d+ SSIM; bicubic")
    )

    line = page.locator(".line")
    before = line.evaluate("line => line.style.left")
    divider(visitor).focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    expect(divider(visitor)).to_have_value("45")
    assert line.evaluate("line => line.style.left") != before

    size = page.get_by_role("slider", name="Output size: longer side (pixels)")
    size.focus()
    page.keyboard.press("ArrowRight")
    visitor.sees("48×32 → 80×53 pixels")
    assert "size=80" in page.url
    expect(divider(visitor)).to_have_value("45")  # what one has set stays

    page.get_by_role("radio", name="full").click()
    visitor.sees("The output is not larger than the input.")
    visitor.insist(lambda: render_larger(visitor), "96×64 → 384×256 pixels")
    visitor.sees("The original at this size is not known")
    visitor.settled()
    download = visitor.download("Download as PNG")
    assert download.suggested_filename == "render-384x256.png"
    with Image.open(download.path()) as picture:
        assert (picture.format, picture.size) == ("PNG", (384, 256))

    page.get_by_role("radio", name="side by side").click()
    expect(page.get_by_role("img", name="bicubic")).to_be_visible()
    expect(divider(visitor)).to_be_hidden()


@pytest.mark.slow
def test_an_address_leads_back_to_what_was_shown(visitor: Visitor, run: FieldsRun) -> None:
    visitor.open(f"fields?run={run.id}&image=rocket&given=quarter&output=field&size=96")
    visitor.sees(re.compile("→ 96×64 pixels, field"))
    expect(visitor.page.get_by_role("radio", name="quarter")).to_be_checked()
    visitor.page.get_by_role("radio", name="half").click()
    visitor.sees(re.compile("128×86 → 96×64"))
    assert "given=half" in visitor.page.url
    visitor.page.reload()
    visitor.sees(re.compile("128×86 → 96×64"))


TAMPERED = ["../../../../etc/passwd", "<script>document.title='taken'</script>", "%00", "f" * 3000, "1e9", "[a](b)"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "image", "given", "output", "size", "view"])
def test_tampered_addresses_get_a_message(visitor: Visitor, app: App, run: FieldsRun, name: str) -> None:
    visitor.open("fields")  # the index of the store is written now
    before = sorted(app.store.root.parent.rglob("*"))
    for value in TAMPERED[: None if name == "run" else 2]:
        visitor.open(f"fields?size=64&{name}={quote(value)}" if name != "size" else f"fields?size={quote(value)}")
        visitor.sees(re.compile(f"The address names {name}"))
        visitor.sees(re.compile("→ .* pixels"))
        assert visitor.page.title() != "taken"
    assert sorted(app.store.root.parent.rglob("*")) == before


@pytest.mark.slow
def test_trainings_and_comparisons_that_are_not_there(visitor: Visitor, run: FieldsRun) -> None:
    visitor.open("fields?view=Train&part=Results&training=../../x")
    visitor.sees(re.compile("The address names training"))
    visitor.sees("Quality by scale")
    visitor.open("fields?view=Compare&part=Results&comparison=../../x")
    visitor.sees("No comparison has been started in this store yet.")
    assert visitor.page.get_by_text("could not be displayed").count() == 0


@pytest.mark.slow
def test_a_form_cannot_name_files(visitor: Visitor) -> None:
    visitor.open("fields?view=Train&part=New")
    for value in ("/etc", "folder:path=/etc", "mine.npy", "emoji:font=/etc/passwd"):
        visitor.fill("Data", value)
        visitor.sees(re.compile("The app opens no files by name"))
        expect(visitor.page.get_by_role("button", name="Start", exact=True)).to_be_disabled()
    visitor.fill("Data", "photos:size")
    visitor.sees(re.compile("data: .*photos:size"))
    expect(visitor.page.get_by_role("button", name="Start", exact=True)).to_be_disabled()


def step(visitor: Visitor) -> int:
    told = visitor.sees(re.compile(r"^Step [\d,]+ of .*dB PSNR")).inner_text()
    return int(told.split()[1].replace(",", ""))


@pytest.mark.slow
def test_a_picture_sharpens_while_it_is_trained(visitor: Visitor, app: App) -> None:
    visitor.open("fields?view=Train&part=New")
    visitor.write("Training steps", "100000")
    visitor.write("Number of position tokens (M)", "4")
    visitor.page.get_by_text("Training", exact=True).click()
    visitor.write("Batch size", "2")
    visitor.write("Evaluation signals", "2")
    visitor.page.get_by_text("Copy as a command or as YAML").click()
    visitor.sees(re.compile("whence fields train --steps 100000 .*--lps 4"))
    visitor.press("Start")
    visitor.sees(re.compile("1 running"))
    first = step(visitor)
    expect(visitor.page.get_by_role("img", name="field now")).to_be_visible()
    until(lambda: step(visitor) > first)
    expect(visitor.page.get_by_role("img", name=re.compile(f"^step {first:,}: "))).to_be_visible()
    visitor.press("Stop")
    visitor.sees("Stopped. All progress is saved.")
    visitor.page.reload()
    visitor.sees("Stopped. All progress is saved.")
    assert step(visitor) > first


@pytest.mark.slow
def test_what_a_finished_run_came_to(visitor: Visitor, run: FieldsRun) -> None:
    visitor.open(f"fields?view=Train&part=Results&training={run.id}")
    visitor.sees(re.compile("Step 3 of 3: field"))
    visitor.sees(re.compile("At ×2, the render reaches"))
    expect(visitor.page.get_by_role("img", name="|render − original| × 4").first).to_be_visible()
    visitor.page.get_by_role("button", name="Render an image with this run").click()
    visitor.sees(re.compile("→ .* pixels"))
    assert f"run={run.id}" in visitor.page.url


@pytest.mark.slow
def test_a_comparison_from_the_form_to_its_findings(visitor: Visitor, app: App) -> None:
    visitor.open("fields?view=Compare")
    visitor.choose("Varied part", "hyponet")
    visitor.choose("Data", "digits")
    visitor.write("Number of seeds", "1")
    visitor.write("Training steps", "1")
    visitor.sees("4 runs (0 cached).")
    visitor.press("Start")
    visitor.sees("1 paired seed, 7 are needed for a verdict on 3 comparisons in one table; nothing is ranked")
    expect(visitor.page.locator(".badge").get_by_text("exploratory")).to_be_visible()
    visitor.sees(
        re.compile("^Too few seeds for a verdict at ×1 .*: fourier_mlp and cross_attention; siren and cross_attention")
    )
    table = visitor.page.get_by_role("region", name="hyponet, digits, 1 steps")
    expect(table).to_contain_text("siren")
    expect(table.get_by_role("cell", name="–")).to_have_count(0)  # time and memory are measured at the end
    expect(visitor.page.get_by_role("figure", name="PSNR by variant. hyponet, digits, 1 steps")).to_be_visible()


def drag_by_finger(visitor: Visitor, x: float, y: float, by: float) -> None:
    hand = visitor.context.new_cdp_session(visitor.page)
    hand.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
    for kind, at in (("touchStart", [x]), ("touchMove", [x + by / 2]), ("touchMove", [x + by]), ("touchEnd", [])):
        pixels = [{"x": place, "y": y} for place in at]
        hand.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": pixels})


@pytest.mark.slow
def test_on_a_telephone(browser: Browser, app: App, run: FieldsRun) -> None:
    small = Visitor(browser, app, width=390, scheme="dark")
    for path in ("fields?size=64", f"fields?view=Train&part=Results&training={run.id}", "fields?view=Compare"):
        small.open(path)
        small.settled()
        assert small.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
    small.open("fields?size=64")
    line = small.page.locator(".line")
    line.scroll_into_view_if_needed()
    box = line.bounding_box()
    assert box is not None
    drag_by_finger(small, box["x"] + 22, box["y"] + 20, by=70)
    moved = line.bounding_box()
    assert moved is not None
    assert 60 < moved["x"] - box["x"] < 80
    small.leave()
