"""Forward + backward of a small RoPE decoder, against x-transformers' Decoder of the same shape.

    python bench/model_step.py [rounds]

Batch 64, length 64, d 128, 4 heads, 2 layers, float32, 2 threads. Rounds are interleaved and the best of each
counts. The peer is measured with its own attention and with its flash option; a ratio above 1 means whence is faster.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.nn.functional as F
from x_transformers import Decoder, TransformerWrapper

from whence.models.init import initialise
from whence.models.sequence import ModelSpec

BATCH, LENGTH, VOCAB = 64, 64, 32


def peer(flash: bool, dropout: float) -> torch.nn.Module:
    layers = Decoder(
        dim=128,
        depth=2,
        heads=4,
        attn_dim_head=32,
        rotary_pos_emb=True,
        attn_flash=flash,
        attn_dropout=dropout,
        ff_dropout=dropout,
    )
    return TransformerWrapper(num_tokens=VOCAB, max_seq_len=LENGTH, use_abs_pos_emb=False, attn_layers=layers)


def main(rounds: int) -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    tokens, counted = torch.randint(VOCAB, (BATCH, LENGTH)), torch.arange(LENGTH)[None]
    for dropout in (0.0, 0.1):
        ours = ModelSpec(dropout=dropout).build(VOCAB, VOCAB, LENGTH, LENGTH)
        initialise(ours, 0)
        models = {"whence": ours, "x-transformers": peer(False, dropout), "x-transformers flash": peer(True, dropout)}
        inputs = {name: (tokens, counted) if model is ours else (tokens,) for name, model in models.items()}
        best = dict.fromkeys(models, float("inf"))
        for _ in range(rounds):
            for name, model in models.items():
                model.zero_grad()
                start = time.perf_counter()
                F.cross_entropy(model(*inputs[name]).flatten(0, 1), tokens.flatten()).backward()
                best[name] = min(best[name], time.perf_counter() - start)
        for name, model in models.items():
            count = sum(p.numel() for p in model.parameters())
            ratio = best[name] / best["whence"]
            print(f"dropout {dropout}  {name:22} {1e3 * best[name]:7.1f} ms  ratio {ratio:.2f}  ({count:,} parameters)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
