"""One training step of a top-k sparse autoencoder: whence's kernels against SAELens, dictionary_learning and sparsify.

    make bench-features        or, where the peers of bench/features-peers.txt are installed,
    python bench/features.py [rounds]

576 wide, 32 of 4,608 or 16,384 features, 4,096 samples, float32, two threads. A step is forward, backward and torch's
fused Adam, the same for all sides: nobody clips gradients or keeps the decoder's rows at length 1. Before anything is
timed, all sides are checked to give the same gradients. Whence is there twice, as its kernels in a plain loop and as
the whole autoencoder that `whence features train` runs; the slower of the two counts. Rounds are interleaved and the
best of each side counts, in processor time (all threads) and in wall time; "whence is 3×" means that the peer takes
three times as much processor time. Each requirement is printed with "holds" or "MISSED". Takes about two minutes.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from features_peers import BATCH, SIDES, WIDTH, K, Weights, autoencoder, check
from record import record
from rounds import QUIET, best_by_both_clocks
from scan_times import verdict

ASKED = {4608: 2.5, 16_384: 3.5}  # times the processor time of the better of SAELens and dictionary_learning
PACKAGES = ("torch", "numba", "sae-lens", "dictionary-learning", "eai-sparsify")


def measured(size: int, rounds: int) -> dict[str, Any]:
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(1))
    weights = Weights(size)
    sides = {name: make(weights) for name, make in SIDES.items()}
    check(sides, x)
    sides["whence, whole"] = autoencoder(weights)
    best = best_by_both_clocks({n: lambda side=side: side.step(x) for n, side in sides.items()}, rounds, seconds=60.0)
    ours = max(best["whence"][1], best["whence, whole"][1])
    for name, (wall, processor) in best.items():
        ratio = processor / ours
        line = f"{1e3 * processor:8.0f} ms of processor time  {1e3 * wall:8.0f} ms"
        print(f"{size:>6} features  {name:20} {line}  whence is {ratio:.2f}×", flush=True)

    def faster(*peers: str) -> float:
        return min(best[peer][1] for peer in peers) / ours

    dense, sparse = faster("SAELens", "SAELens, sparse", "dictionary_learning"), faster("sparsify")
    verdict(
        dense >= ASKED[size], f"{size} features: {dense:.2f}× SAELens or dictionary_learning; asked: {ASKED[size]}×"
    )
    verdict(sparse >= 1, f"{size} features: {sparse:.2f}× sparsify; asked: 1×")
    return {
        "cpu_ms": {name: 1e3 * processor for name, (_, processor) in best.items()},
        "wall_ms": {name: 1e3 * wall for name, (wall, _) in best.items()},
        "less_cpu_than_saelens_or_dictionary_learning": dense,
        "less_cpu_than_sparsify": sparse,
    }


def main(rounds: int) -> None:
    torch.set_num_threads(2)
    result: dict[str, Any] = {"threads": 2, "rounds": rounds, "width": WIDTH, "k": K, "batch": BATCH}
    result["size"] = {size: measured(size, rounds) for size in ASKED}
    result["waited_s"] = QUIET.waited
    record("features_step", result, PACKAGES)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
