"""`whence arena compare` as a newcomer types it: how long it takes, and whether the machine is busy all the while.

python bench/arena.py            about 12 minutes, on an otherwise idle machine
python bench/arena.py --quick    the workers alone, 2 minutes
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import record
from whence.arena.run import ArenaRun
from whence.execution.engines.local import run_all
from whence.execution.options import ExecutionOptions
from whence.store.runs import Store
from whence.system import cores

MINUTES = 10
BUSY = 0.85
SPEED_UP = 1.8


def core_times() -> list[tuple[int, int]]:
    """Per core: (busy, all), in ticks, as the kernel counts them."""
    counters = []
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("cpu") and line[3].isdigit():
            ticks = [int(value) for value in line.split()[1:9]]
            counters.append((sum(ticks) - ticks[3] - ticks[4], sum(ticks)))
    return counters


def defaults() -> dict[str, object]:
    """The whole command, from an empty store to the report."""
    with tempfile.TemporaryDirectory() as store:
        before, cpu = core_times(), resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.monotonic()
        command = [sys.executable, "-m", "whence", "arena", "compare", "--store", store]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = time.monotonic() - started
        after, spent = core_times(), resource.getrusage(resource.RUSAGE_CHILDREN)
        runs = len(Store(store).ids())
    busy = [(b1 - b0) / (a1 - a0) for (b0, a0), (b1, a1) in zip(before, after, strict=True)]
    own = (spent.ru_utime + spent.ru_stime - cpu.ru_utime - cpu.ru_stime) / seconds / len(os.sched_getaffinity(0))
    minutes = seconds / 60
    print(
        f"whence arena compare: {runs} runs in {minutes:.1f} minutes (at most {MINUTES}: {_verdict(minutes < MINUTES)})"
    )
    shares = ", ".join(f"{100 * share:.0f} %" for share in busy)
    print(f"cores busy: {shares} (at least {BUSY:.0%}: {_verdict(min(busy) >= BUSY)}); by whence {own:.0%}")
    return {"runs": runs, "seconds": seconds, "busy": busy, "busy_with_whence": own}


def workers() -> dict[str, object]:
    """Equal runs by one worker with one thread and by two, from starting the processes to the last result."""
    training = {"steps": 100, "evaluations": 2}
    specs = [ArenaRun.read({"task": "k_back_recall", "training": training, "seed": seed}) for seed in range(16)]
    per_minute = {}
    for count in (1, 2, 1, 2):
        with tempfile.TemporaryDirectory() as folder:
            store = Store(folder)
            store.prepare()
            started = time.monotonic()
            ends = run_all(specs, store, ExecutionOptions(workers=count, threads=1, device="cpu"))
            assert set(ends.values()) == {"finished"}
            rate = 60 * len(specs) / (time.monotonic() - started)
        per_minute[count] = max(rate, per_minute.get(count, 0.0))
    ratio = per_minute[2] / per_minute[1]
    print(
        f"runs per minute: one worker {per_minute[1]:.1f}, two {per_minute[2]:.1f}: {ratio:.2f}× (at least {SPEED_UP}: "
        f"{_verdict(ratio >= SPEED_UP)})"
    )
    return {"one": per_minute[1], "two": per_minute[2], "ratio": ratio}


def _verdict(good: bool) -> str:
    return "met" if good else "MISSED"


if __name__ == "__main__":
    result = {"cores": cores(), "workers": workers()}
    if "--quick" not in sys.argv:
        result["defaults"] = defaults()
    record("arena", result)
