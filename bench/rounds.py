"""Fair timing: all sides take turns, so that whatever else the machine does hits all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

Name = TypeVar("Name", bound=Hashable)
TURN = 0.05  # seconds; a quick side is called again and again in its turn, or it would only meet cold caches


class Quiet:
    """Waits for a moment at which no other program uses the processor: one of them halves what two threads can do,
    and a slow side has few turns to make up for that. After `patience` seconds in all it waits no more.
    """

    def __init__(self, patience: float = 60) -> None:
        self.patience, self.waited = patience, 0.0

    def wait(self) -> None:
        start = time.perf_counter()
        while self.waited + time.perf_counter() - start < self.patience and _used_by_others() > 0.1:
            pass
        self.waited += time.perf_counter() - start


def _used_by_others() -> float:
    """Share of all cores, while this process sleeps."""
    before = _ticks()
    time.sleep(0.05)
    spent = [after - then for after, then in zip(_ticks(), before, strict=True)]
    return 1 - sum(spent[3:5]) / max(1, sum(spent))  # idle, and idle while waiting for a disk


def _ticks() -> list[int]:
    """User, nice, system, idle, waiting for a disk, …: of all cores, since the start of the machine."""
    return [int(number) for number in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


QUIET = Quiet()


def best_of(sides: Mapping[Name, Callable[[], Any]], rounds: int, seconds: float) -> dict[Name, float]:
    """Seconds of the fastest call of each side. A side stops when it has had `seconds`, but not before two turns."""
    return {name: wall for name, (wall, _) in best_by_both_clocks(sides, rounds, seconds).items()}


def best_by_both_clocks(
    sides: Mapping[Name, Callable[[], Any]], rounds: int, seconds: float
) -> dict[Name, tuple[float, float]]:
    """The same, and beside it the least processor time of a call, summed over its threads."""
    wall, processor = dict.fromkeys(sides, float("inf")), dict.fromkeys(sides, float("inf"))
    spent = dict.fromkeys(sides, 0.0)
    for turn in range(rounds):
        QUIET.wait()
        for name, run in sides.items():
            if turn >= 2 and spent[name] >= seconds:
                continue
            begin = time.perf_counter()
            while True:
                start, used = time.perf_counter(), time.process_time()
                run()
                end = time.perf_counter()
                processor[name] = min(processor[name], time.process_time() - used)
                wall[name] = min(wall[name], end - start)
                if end - begin >= TURN:
                    break
            spent[name] += end - begin
    return {name: (wall[name], processor[name]) for name in sides}
