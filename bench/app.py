"""How soon the app can be used, and how fast its list of 5,000 runs answers.

    PYTHONPATH=. python bench/app.py [runs]

In a real Chromium, from the command `whence app` (or from the click) until the page has been made to its end.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect, sync_playwright
from tests.app.browse import App, Visitor, launched

from many_runs import fill
from record import record
from whence.store.runs import Store

ROUNDS = 5


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def age(process: int) -> float:
    """Seconds since a process was started."""
    started = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[19]
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(started) / os.sysconf("SC_CLK_TCK")


def first_page(visitor: Visitor, app: App) -> tuple[float, float]:
    """From the command, and from the start of the server, to a first page that can be used."""
    app.end()

    def come() -> None:
        app.start()
        visitor.open()
        expect(visitor.page.get_by_role("link", name="Arena").first).to_be_visible()
        visitor.sees("Instruments")

    return seconds(come), age(app.server)


def interactions(visitor: Visitor, count: int) -> dict[str, list[float]]:
    """What one does on the page, each until its answer is to be seen."""
    durations: dict[str, list[float]] = {}
    page = visitor.page

    def timed(name: str, action: Callable[[], object], answer: str) -> None:
        durations.setdefault(name, []).append(seconds(lambda: (action(), visitor.sees(answer))))

    all_of_them = f"Export all {count:,} runs"
    visitor.open("arena")  # torch has been loaded once this page is there
    for _ in range(ROUNDS):
        timed("load the whole app anew", lambda: page.goto(f"{visitor.app.address}/runs"), all_of_them)
        visitor.settled()
        page.wait_for_timeout(2000)  # a reader looks first
        timed("first tick after that", lambda: visitor.tick(0), "Score over steps")
        visitor.settled()
    visitor.open("runs")
    for _ in range(ROUNDS):
        page.get_by_role("link", name="Home").first.click()
        visitor.sees("Instruments")
        visitor.settled()
        timed("come from another page", page.get_by_role("link", name="Runs", exact=True).first.click, all_of_them)
        visitor.settled()
        timed("find by word", lambda: visitor.write("Contains", "no such run"), "No runs match these filters.")
        timed("all again", lambda: visitor.write("Contains", ""), all_of_them)
        state = page.get_by_role("button", name=f"failed {(count - 1) // 10:,}")
        timed("filter by state", state.click, f"Export all {(count - 1) // 10:,} runs")
        timed("filter taken away", state.click, all_of_them)
        visitor.settled()
        timed("tick a run", lambda: visitor.tick(0), "Score over steps")
        visitor.settled()
        timed("tick another", lambda: visitor.tick(1), "Side by side")
        visitor.settled()
        timed("ask to delete", page.get_by_role("button", name="Delete …").click, "This cannot be undone.")
        visitor.settled()
        durations.setdefault("keep them", []).append(seconds(lambda: _dismiss(visitor)))
        visitor.settled()
    return durations


def _dismiss(visitor: Visitor) -> None:
    visitor.page.get_by_role("button", name="Cancel").click()
    expect(visitor.page.get_by_text("This cannot be undone.")).to_have_count(0)


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        store = Store(Path(directory) / "store")
        store.prepare()
        fill(store, count)
        browser = launched(playwright)
        app = App(store.root)
        try:
            visitor = Visitor(browser, app)
            visitor.open()
            starts = [first_page(visitor, app) for _ in range(ROUNDS)]
            durations = interactions(visitor, count)
        finally:
            app.end()
    medians = {name: round(statistics.median(times), 2) for name, times in durations.items()}
    worst = {name: round(max(times), 2) for name, times in durations.items()}
    result = {
        "runs": count,
        "first_page_s": {
            since: {"median": round(statistics.median(times), 2), "worst": round(max(times), 2)}
            for since, times in zip(("command", "server start"), zip(*starts, strict=True), strict=True)
        },
        "median_s": medians,
        "worst_s": worst,
    }
    print(f"first page, since: {result['first_page_s']}")
    for name in durations:
        print(f"{name:20} median {medians[name]:.2f} s   worst {worst[name]:.2f} s")
    record("app", result, ("streamlit", "playwright"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
