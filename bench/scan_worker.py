"""One forward and backward of one scan in a process of its own: its seconds and its peak memory, as JSON.

    python bench/scan_worker.py NAME BATCH LENGTH CHANNELS

Memory is what the call adds to the process at its peak, beyond inputs (there before) and their gradients
(subtracted). Linux counts it; a small call comes first, so that code loaded once is not counted.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from scan_peers import SCANS, Inputs, Shape

STARTING = 5  # seconds to import torch and its like


def measure(name: str, shape: Shape) -> dict[str, float]:
    small, inputs = Inputs((1, 8, 16)), Inputs(shape)
    small.both(SCANS[name])
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _memory("VmRSS")
    start = time.perf_counter()
    _, *gradients = inputs.both(SCANS[name])
    seconds = time.perf_counter() - start
    extra = _memory("VmHWM") - before - sum(gradient.nbytes for gradient in gradients)
    return {"seconds": seconds, "extra_mb": extra / 1e6}


def _memory(field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match
    return 1024 * int(match[1])


def in_a_process(name: str, shape: Shape, patience: float = 600) -> dict[str, float]:
    """`measure`; TimeoutError if the call takes longer than `patience` seconds."""
    command = [sys.executable, __file__, name, *map(str, shape)]
    try:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=patience + STARTING)
    except subprocess.TimeoutExpired:
        raise TimeoutError(name) from None
    measured = json.loads(done.stdout)
    if measured["seconds"] > patience:
        raise TimeoutError(name)
    return measured


if __name__ == "__main__":
    scan, *sizes = sys.argv[1:]
    batch, length, channels = map(int, sizes)
    print(json.dumps(measure(scan, (batch, length, channels))))
