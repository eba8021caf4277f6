"""How much memory the app's server takes up while it is used, and how fast it answers meanwhile.

    PYTHONPATH=. python bench/app_memory.py [interactions]

In a real Chromium: one tab goes round between the list of runs and the form of a comparison. The growth is that from
the end of the first rounds, which load modules and fill caches of fixed size, to the end of all.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import sync_playwright
from tests.app.browse import App, Visitor, launched

from app import seconds
from many_runs import fill
from record import record
from whence.store.runs import Store

RUNS = 500
WARM_UP = 100
"""Interactions"""


def resident_mb(process: int) -> float:
    """Memory of a process that is not shared with others."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    return sum(int(size) for size in re.findall(r"^Private_\w+: +(\d+) kB", text, re.MULTILINE)) * 1024 / 1e6


def rounds(visitor: Visitor, number: int) -> dict[str, Callable[[], object]]:
    """Ten interactions, by name."""
    page = visitor.page

    def follow(name: str, sign: str) -> Callable[[], object]:
        return lambda: (page.get_by_role("link", name=name, exact=True).first.click(), visitor.sees(sign))

    def write(label: str, text: str, sign: str) -> Callable[[], object]:
        return lambda: (visitor.write(label, text), visitor.sees(sign))

    steps = 100 + number % 50
    return {
        "open the list of runs": follow("Runs", f"Export all {RUNS:,} runs"),
        "find none by word": write("Contains", f"no such run {number}", "No runs match these filters."),
        "find all by word": write("Contains", "", f"Export all {RUNS:,} runs"),
        "tick a run": lambda: (visitor.tick(number % 5), visitor.sees("Score over steps")),
        "tick another": lambda: (visitor.tick(number % 5 + 1), visitor.sees("Side by side")),
        "open the form": follow("Arena", "runs. What the store has"),
        "write the steps": write("steps", str(steps), "runs. What the store has"),
        "write the seeds": write("seeds", str(1 + number % 3), "runs. What the store has"),
        "write other steps": write("steps", str(steps + 50), "runs. What the store has"),
        "open the first page": follow("Home", "Instruments"),
    }


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        store = Store(Path(directory) / "store")
        store.prepare()
        fill(store, RUNS)
        app = App(store.root)
        try:
            visitor = Visitor(launched(playwright), app)
            visitor.open()
            durations: dict[str, list[float]] = {}
            memory: dict[int, float] = {}
            for number in range((WARM_UP + count) // 10):
                if number * 10 >= WARM_UP and number % 10 == 0:
                    memory[number * 10 - WARM_UP] = resident_mb(app.server)
                    print(f"{number * 10 - WARM_UP:5} interactions: {list(memory.values())[-1]:.1f} MB", flush=True)
                for name, act in rounds(visitor, number).items():
                    durations.setdefault(name, []).append(seconds(act))
                    visitor.settled()
            memory[count] = resident_mb(app.server)
        finally:
            app.end()
    medians = {name: round(statistics.median(times), 2) for name, times in durations.items()}
    growth = memory[count] - memory[0]
    result = {
        "interactions": count,
        "runs": RUNS,
        "growth_mb": round(growth, 1),
        "memory_mb": {str(after): round(size, 1) for after, size in memory.items()},
        "median_s": medians,
    }
    for name, median in medians.items():
        print(f"{name:24} median {median:.2f} s   worst {max(durations[name]):.2f} s")
    print(f"{growth:+.1f} MB over {count:,} interactions")
    record("app_memory", result, ("streamlit", "playwright"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
