"""The selective scan and the blocks around it: time, memory, threads and growth with length, against peers.

    python bench/scan.py [rounds]

N = 16, float32, torch's own number of threads. Before anything is timed, all sides are checked to give the same
outputs and gradients. Rounds are interleaved and the best of each side counts; "whence is 12×" means that the peer
takes 12 times as long. Forward alone is timed without recording gradients. Each requirement is printed with "holds"
or "MISSED". Takes about six minutes, and waits up to one more for other programs to leave the cores alone. Draws
docs/scan.svg.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

import scan_length
from record import record
from rounds import QUIET, best_of
from scan_blocks import blocks
from scan_peers import SCANS, Inputs
from scan_plot import plot
from scan_times import SECONDS, SHAPES, label, times, unbearable, verdict, with_memory_kept
from scan_worker import in_a_process
from whence.kernels import selective_scan

FIRST_CALL = """
import time, torch
from whence.kernels import selective_scan
u, A, B = torch.rand(1, 8, 16, requires_grad=True), -torch.rand(16, 16), torch.rand(1, 8, 16)
start = time.perf_counter()
selective_scan(u, u, A, B, B).sum().backward()
print(time.perf_counter() - start)
"""


def compilation() -> dict[str, float]:
    """Seconds of the first forward and backward in a new process, with an empty cache and with the one it left."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
        settings["XDG_CACHE_HOME"] = folder
        command, found = [sys.executable, "-c", FIRST_CALL], []
        for _ in range(2):
            QUIET.wait()
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=settings)
            found.append(float(done.stdout))
    print(f"first call: {found[0]:.1f} s compiling, {found[1]:.2f} s from the cache", flush=True)
    return {"compile_s": found[0], "load_s": found[1]}


def memory() -> dict[str, Any]:
    result, names = {}, ("whence", "mambapy")
    for shape in SHAPES:
        with ThreadPoolExecutor() as both:
            measured = both.map(lambda name, shape=shape: in_a_process(name, shape)["extra_mb"], names)
            found = dict(zip(names, measured, strict=True))
        ratio = found["mambapy"] / found["whence"]
        text = ", ".join(f"{name} {megabytes:.1f} MB" for name, megabytes in found.items())
        verdict(ratio >= 8, f"{label(shape)} memory beyond inputs and gradients: {text}, 1/{ratio:.0f}; asked: 1/8")
        result[label(shape)] = {"extra_mb": found, "mambapy_over_whence": ratio}
    return result


def threads(rounds: int) -> dict[str, Any]:
    """One thread against two."""
    usual, inputs = torch.get_num_threads(), Inputs((8, 320, 512))

    def on(count: int) -> None:
        torch.set_num_threads(count)
        inputs.both(selective_scan)

    best = best_of({count: lambda count=count: on(count) for count in (1, 2)}, 2 * rounds, 2 * SECONDS)
    torch.set_num_threads(usual)
    one, two, ratio = 1e3 * best[1], 1e3 * best[2], best[1] / best[2]
    verdict(ratio >= 1.7, f"two threads: {one:.1f} ms → {two:.1f} ms, {ratio:.2f}× faster; asked: 1.7×")
    return {"ms": {"1": one, "2": two}, "two_are_faster_by": ratio}


def length(rounds: int) -> dict[str, Any]:
    lengths = scan_length.SHORT + scan_length.LONG
    sides = {"scan": scan_length.scan, "attention": scan_length.attention}
    found = scan_length.curves(sides, lengths, rounds, 2 * SECONDS)
    mixers = {"mamba mixer": scan_length.mamba_mixer, "attention mixer": scan_length.attention_mixer}
    found |= scan_length.curves(mixers, [n for n in lengths if n <= 4096], rounds, SECONDS / 2)
    print("µs per token   " + "".join(f"{name:>17}" for name in found))
    for n in lengths:
        print(f"{n:14,} " + "".join(f"{curve[n]:17.2f}" if n in curve else f"{'–':>17}" for curve in found.values()))
    result: dict[str, Any] = {"us_per_token": found, "spread": grown(found["scan"], "")}
    for key, pair in (("crossing", ("scan", "attention")), ("mixers_crossing", ("mamba mixer", "attention mixer"))):
        at = result[key] = scan_length.crossing(*(found[name] for name in pair))
        print(f"{pair[0]} and {pair[1]} cross at {f'{at:,.0f} tokens' if at else 'no measured length'}", flush=True)
    return result


def grown(curve: scan_length.Curve, where: str) -> float:
    spread = scan_length.spread(curve)
    text = ", ".join(f"{cost:.2f}" for cost in (curve[n] for n in scan_length.LONG))
    verdict(spread <= 0.15, f"cost per token at 1,024 … 65,536{where}: {text} µs, {100 * spread:.1f} %; asked: 15 %")
    return spread


def main(rounds: int) -> None:
    torch.manual_seed(0)
    start = time.perf_counter()
    result: dict[str, Any] = {"threads": torch.get_num_threads(), "rounds": rounds, "N": 16}
    result["compilation"] = compilation()
    result["two_threads"] = threads(rounds)
    result["length"] = length(rounds)
    result["scan"] = times(SCANS, unbearable(), rounds, SECONDS, "")
    result["memory_kept"] = kept = with_memory_kept(rounds)
    grown({int(n): cost for n, cost in kept["us_per_token"].items()}, ", memory kept")
    result["memory"] = memory()
    result["block"] = blocks(SHAPES, rounds, SECONDS)
    result["waited_s"] = QUIET.waited
    record("scan", result, ("torch", "numba", "mambapy", "transformers"))
    print(f"{plot()}; {time.perf_counter() - start:.0f} s, {QUIET.waited:.0f} of them waiting for other programs")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
