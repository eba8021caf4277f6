"""Encoding time of a field model against the number of tokens: bidirectional Mamba and a Transformer of the same size.

    python bench/fields.py [rounds]

256 to 16,384 tokens (position tokens among them: one for every four), d_model 64, 2 layers, one signal, no gradients,
torch's own number of threads, scaled_dot_product_attention. Rounds are interleaved and the best of each side counts.
Names the number of tokens from which on Mamba is faster. Takes about two minutes.
"""

from __future__ import annotations

import sys

import torch

from record import record
from rounds import best_of
from whence.fields.model import FieldModel, FieldSpec
from whence.models.init import initialise

TOKENS = (256, 512, 1024, 2048, 4096, 8192, 16_384)
SIDES = {
    "bimamba": {"mixer": "bimamba", "encoding": "none"},
    "transformer": {"mixer": "attention", "encoding": "rope", "mlp_ratio": 3.75},
}


def model_of(fields: dict[str, object], tokens: int) -> tuple[FieldModel, torch.Tensor]:
    """A signal of one axis, whose patches and position tokens together are that many."""
    patches = tokens * 4 // 5 // 4 * 4
    spec = FieldSpec.read({"patch": 4, "lps": tokens - patches, "render_width": 0, **fields})
    model = spec.build(3, (4 * patches,)).eval()
    initialise(model, 0)
    return model, torch.rand(1, 3, 4 * patches)


def main(rounds: int) -> None:
    found: dict[str, dict[str, float]] = {}
    for tokens in TOKENS:
        sides = {name: model_of(fields, tokens) for name, fields in SIDES.items()}
        with torch.no_grad():
            times = best_of({n: lambda m=m, x=x: m.encode(x) for n, (m, x) in sides.items()}, rounds, seconds=10.0)
        found[str(tokens)] = {name: 1000 * seconds for name, seconds in times.items()}
        ratio = times["transformer"] / times["bimamba"]
        print(
            f"{tokens:>6} tokens  " + "  ".join(f"{n} {1000 * s:8.1f} ms" for n, s in times.items()) + f"  {ratio:.2f}×"
        )
    faster = [int(tokens) for tokens, times in found.items() if times["bimamba"] < times["transformer"]]
    print(f"bimamba is faster from {min(faster)} tokens on" if faster else "the Transformer is faster throughout")
    record("fields_encoder", {"ms": found, "faster_from": min(faster) if faster else None})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
