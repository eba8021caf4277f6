"""Milliseconds of the scan and of its peers, at five shapes.

    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1000000000000 python bench/scan_times.py ROUNDS

As a script it prints JSON: the times without transformers, and the scan's cost per token. bench/scan.py runs it as
above, that is with an allocator that keeps freed memory. By default large tensors come fresh from the system, which
clears their pages first: most of the time of peers that write many, and of the scan too at great lengths.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from typing import Any

import scan_length
from rounds import best_of
from scan_peers import SCANS, Inputs, Scan, Shape, check
from scan_worker import in_a_process

SHAPES: list[Shape] = [(16, 128, 128), (16, 512, 128), (8, 320, 512), (2, 2048, 256), (1, 8192, 256)]
SECONDS = 1.5  # for each side and shape
PATIENCE = 20.0  # seconds for one forward and backward of a peer
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(10**12)}


def verdict(holds: bool, what: str) -> None:
    print(f"{'holds ' if holds else 'MISSED'}  {what}", flush=True)


def label(shape: Shape) -> str:
    return "×".join(map(str, shape))


def unbearable() -> set[Shape]:
    """Shapes at which one forward and backward of transformers' path takes over 20 s.

    The gradient of taking one step out of a tensor is a tensor of full size, so its cost grows with length². Smaller
    amounts of that work go first: where one is too much, more is not tried.
    """
    order = sorted(SHAPES, key=lambda shape: shape[0] * shape[1] ** 2 * shape[2])
    for at, shape in enumerate(order):
        try:
            in_a_process("transformers", shape, PATIENCE)
        except TimeoutError:
            return set(order[at:])
    return set()


def times(scans: dict[str, Scan], without: set[Shape], rounds: int, seconds: float, where: str) -> dict[str, Any]:
    """`without`: where transformers goes forward only."""
    result: dict[str, Any] = {}
    for shape in SHAPES:
        inputs = Inputs(shape)
        whole = {name: scan for name, scan in scans.items() if name != "transformers" or shape not in without}
        check(inputs, whole, gradients=True)
        check(inputs, scans, gradients=False)
        result[label(shape)] = {}
        for what, run, sides in (
            ("forward", inputs.forward, scans),
            ("forward+backward", inputs.both, whole),
        ):
            timed = {name: lambda run=run, scan=scan: run(scan) for name, scan in sides.items()}
            results = compared(best_of(timed, rounds, seconds), list(scans), f"{shape!s:16} {what:17}")
            result[label(shape)][what] = results
            ratio, peer = results["whence_is_faster_by"], results["fastest_peer"]
            text = f"{label(shape)} {what}{where}: {ratio:.1f}× the fastest peer ({peer})"
            if what == "forward":
                print(text, flush=True)  # nothing is asked of forward alone
            else:
                verdict(ratio >= 10, f"{text}; asked: 10×")
    return result


def compared(best: dict[str, float], names: list[str], what: str) -> dict[str, Any]:
    """Names that are missing in `best` took too long."""
    ours = best["whence"]
    fastest = min((name for name in best if name != "whence"), key=best.__getitem__)
    for name in names:
        text = f"{1e3 * best[name]:9.1f} ms" if name in best else f"  > {1e3 * PATIENCE:,.0f} ms"
        ratio = f"whence is {best.get(name, PATIENCE) / ours:.1f}×" + ("" if name in best else " or more")
        print(f"{what} {name:26} {text}  {ratio}", flush=True)
    return {
        "ms": {name: 1e3 * best[name] if name in best else f"> {1e3 * PATIENCE:.0f}" for name in names},
        "fastest_peer": fastest,
        "whence_is_faster_by": best[fastest] / ours,
    }


def main(rounds: int) -> None:
    with redirect_stdout(sys.stderr):
        curve = scan_length.curves({"scan": scan_length.scan}, scan_length.LONG, rounds, 2 * SECONDS)["scan"]
        scans = {name: scan for name, scan in SCANS.items() if name != "transformers"}
        results = times(scans, set(), rounds, SECONDS / 2, ", memory kept")
    print(json.dumps({"scan": results, "us_per_token": curve, "spread": scan_length.spread(curve)}))


def with_memory_kept(rounds: int) -> dict[str, Any]:
    command = [sys.executable, __file__, str(rounds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **KEEPING})
    return json.loads(done.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]))
