"""Tokens per second of the training loop, against x-transformers in a plain loop of its own.

    python bench/loop.py [rounds]

Source 004's shape: batch 64, length 64, d 128, 4 heads, 2 layers, RoPE, float32, all cores. Both sides draw the
same data, clip, and step a fused AdamW over as many parameters. Rounds are interleaved and the best of each side
counts; a ratio above 1 means that whence is faster. The share of the machine's GEMM peak is the matrix work of a
step (counted, forward and backward), per second, over that of one large square product measured in the same run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode
from x_transformers import Decoder, TransformerWrapper

from record import record
from whence.arena.run import ArenaRun
from whence.models.sequence import count_parameters
from whence.random import Streams, generator
from whence.training.config import TrainingConfig
from whence.training.optim import make_optimizer
from whence.training.trainer import Listener, Progress, train

BATCH, LENGTH, SYMBOLS, CHUNK = 64, 64, 16, 5


def ours(dropout: float) -> tuple[Callable[[], float], int, float]:
    """A function that trains a chunk with the real loop and returns seconds per step; parameters; FLOP per step."""
    spec = ArenaRun.read(
        {
            "task": f"k_back_recall:symbols={SYMBOLS}",
            "model": {"d_model": 128, "heads": 4, "layers": 2, "dropout": dropout, "encoding": "rope"},
            "lengths": {"train_length": LENGTH, "test_lengths": [], "test_sequences": 1},
            "training": {"steps": 1, "batch_size": BATCH},  # evaluations draw the data of all of its steps again
        }
    )
    job, streams, at = spec.job(), Streams.of(0), Progress(step=1)
    job.setup(streams, torch.device("cpu"))
    optimizer = make_optimizer(job.model, spec.training)
    quiet = Listener(lambda _: None, lambda _: None, lambda _: None, lambda: False, lambda: False)

    def chunk() -> float:
        before = at.seconds
        train(job, TrainingConfig(steps=at.step + CHUNK, evaluations=1), streams, optimizer, at, quiet)
        return (at.seconds - before) / CHUNK

    with FlopCounterMode(display=False) as counter:
        job.step(generator(streams.data, 0))[0].backward()
    return chunk, count_parameters(job.model), counter.get_total_flops()


def peer(dropout: float, flash: bool) -> tuple[Callable[[], float], int]:
    layers = Decoder(
        dim=128,
        depth=2,
        heads=4,
        attn_dim_head=32,
        rotary_pos_emb=True,
        rotary_emb_dim=32,  # the whole head, as here; its default turns half of it
        attn_flash=flash,
        attn_dropout=dropout,
        ff_dropout=dropout,
    )
    model = TransformerWrapper(num_tokens=SYMBOLS, max_seq_len=LENGTH, use_abs_pos_emb=False, attn_layers=layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    task = ArenaRun.read({"task": f"k_back_recall:symbols={SYMBOLS}"}).task.build()
    draw = generator(0)

    def chunk() -> float:
        start = time.perf_counter()
        for _ in range(CHUNK):
            batch = task.sample(draw, BATCH, LENGTH)
            logits = model(batch.inputs)
            loss = F.cross_entropy(logits[batch.scored], batch.targets[batch.scored])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
        return (time.perf_counter() - start) / CHUNK

    return chunk, count_parameters(model)


def gemm_peak() -> float:
    """FLOP per second of a 1536³ product, the best of ten."""
    a, b = torch.randn(1536, 1536), torch.randn(1536, 1536)
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - start)
    return 2 * 1536**3 / best


def main(rounds: int) -> None:
    peak = gemm_peak()
    result = {"threads": torch.get_num_threads(), "rounds": rounds}
    for dropout in (0.0, 0.1):
        chunk, parameters, flop = ours(dropout)
        sides = {"whence": (chunk, parameters), "x-transformers": peer(dropout, False)}
        sides["x-transformers flash"] = peer(dropout, True)
        best = dict.fromkeys(sides, float("inf"))
        for _ in range(rounds):
            for name, (run, _) in sides.items():
                best[name] = min(best[name], run())
            peak = max(peak, gemm_peak())
        for name, (_, count) in sides.items():
            tokens = BATCH * LENGTH / best[name]
            ratio = best[name] / best["whence"]
            print(
                f"dropout {dropout}  {name:22} {1e3 * best[name]:7.1f} ms/step {tokens:9,.0f} tokens/s  "
                f"whence is {ratio:.2f}×  ({count:,} parameters)"
            )
        share = flop / best["whence"] / peak
        print(f"dropout {dropout}  matrix work at {100 * share:.0f} % of the GEMM peak of {peak / 1e9:.0f} GFLOP/s")
        result[f"dropout {dropout}"] = {
            "tokens_per_second": {name: BATCH * LENGTH / seconds for name, seconds in best.items()},
            "whence_is_faster_by": {name: seconds / best["whence"] for name, seconds in best.items()},
            "gemm_peak_gflops": peak / 1e9,
            "share_of_gemm_peak": share,
        }
    record("loop", result, ("torch", "x-transformers"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
