"""Every page of the app as a visitor sees it, light, dark and narrow, from real runs:

    make screenshots            (about 10 minutes the first time; runs are kept in screenshots/store)

All go to screenshots/; those that the README shows go to docs/ as well.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.app.browse import App, Visitor, launched, until
from whence.app.jobs import ALIVE, ActionRequest, submit
from whence.experiments.saved import saved_configs
from whence.store.runs import Store

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "screenshots"
PRESETS = ("plain_topk", "position_mean_topk", "001_run01_hard_mask", "001_run02_soft_mask")
ENCODINGS = ("rope", "alibi", "learned", "none")
COMMANDS = [
    ["arena", "compare", "--tasks", "k_back_recall", "--encodings", *ENCODINGS, "--seeds", "6", "--steps", "150"],
    ["leak", "compare", "--seeds", "2", "--steps", "150"],
    ["features", "collect", "--model", "minilm", "--layer", "3", "--tokens", "60000"],
    ["features", "compare", "--activations", "minilm-3", "--seeds", "2", "--steps", "300", "--presets", *PRESETS],
    ["fields", "train", "--data", "photos", "--steps", "400"],
]
LOOKS = {"light": (1280, "light"), "dark": (1280, "dark"), "narrow": (390, "light")}
IN_README = ("arena", "leak", "features", "fields", "runs")
TALLEST = 3000


def fill(store: Store) -> None:
    """What is there already is not run again."""
    for command in COMMANDS:
        print("whence", *command, flush=True)
        subprocess.run([sys.executable, "-m", "whence", *command, "--store", str(store.root)], check=True)
    request = ActionRequest(instrument="leak", verb="audit", config={"model": "minilm"})
    audit = submit(request, store, title="Audit of minilm", exclusive=False)
    print("whence leak audit --model minilm", flush=True)
    until(lambda: audit.state not in ALIVE, seconds=600)


def pages(store: Store) -> dict[str, tuple[str, Callable[[Visitor], object]]]:
    """By name, an address, and what to wait for or to do there."""

    def latest(kind: str) -> str:
        return saved_configs(kind, store)[0].stem

    def run_of(kind: str, title: str) -> str:
        return next(row.id for row in store.summaries() if row.kind == kind and title in row.title)

    def sees(text: str) -> Callable[[Visitor], object]:
        return lambda visitor: visitor.sees(text)

    def open_tab(name: str) -> Callable[[Visitor], object]:
        return lambda visitor: visitor.page.get_by_role("tab", name=name, exact=True).click()

    def tick_some(visitor: Visitor) -> None:
        for row in range(3):
            visitor.tick(row)
            visitor.settled()
        visitor.sees("Side by side")

    return {
        "home": ("", sees("Instruments")),
        "arena-form": ("arena", sees("cached)")),
        "arena": (f"arena?comparison={latest('arena')}", open_tab("By length")),
        "arena-attention": (f"arena?comparison={latest('arena')}", open_tab("Attention")),
        "leak": ("leak?audit=", sees("Layer by layer")),
        "leak-mitigations": (f"leak?comparison={latest('leak')}", sees("Reconstruction")),
        "features-compared": (
            f"features?comparison={latest('features')}",
            sees("Hard and soft masks"),
        ),
        "features": (f"features?run={run_of('features', 'soft')}", sees("position-specific")),
        "fields": ("fields", sees("pixels, render")),
        "fields-train": ("fields?view=Train&part=Results", sees("Step 400")),
        "runs": ("runs", tick_some),
    }


def take(browser: Browser, app: App, look: str) -> None:
    width, scheme = LOOKS[look]
    visitor = Visitor(browser, app, width=width, scheme=scheme)
    for name, (address, act) in pages(app.store).items():
        visitor.page.set_viewport_size({"width": width, "height": 900})
        visitor.open(address)
        act(visitor)
        visitor.settled()
        time.sleep(2)  # figures come in slowly
        tall = visitor.page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        visitor.page.set_viewport_size({"width": width, "height": min(max(tall, 900), TALLEST)})
        time.sleep(1)
        path = TARGET / f"{name}-{look}.png"
        visitor.page.screenshot(path=path)
        print(path.relative_to(ROOT), flush=True)
        if look == "light" and name in IN_README:
            shutil.copy(path, ROOT / "docs" / f"app-{name}.png")
    visitor.leave()


def main() -> None:
    store = Store(TARGET / "store")
    store.prepare()
    fill(store)
    app = App(store.root)
    try:
        with sync_playwright() as playwright:
            browser = launched(playwright)
            for look in LOOKS:
                take(browser, app, look)
            browser.close()
    finally:
        app.end()


if __name__ == "__main__":
    main()
