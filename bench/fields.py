"""Encoding time of a field model against the number of tokens: bidirectional Mamba and a Transformer of the same size.

    python bench/fields.py [rounds]

256 to 16,384 tokens (position tokens among them: one for every four patches), d_model 64, 2 layers, one signal, no
gradients, torch's own number of threads, scaled_dot_product_attention. Rounds are interleaved and the best of each side
counts. Then the memory that each needs, in processes of their own, and that of a 4096×4096 rendering. Names the number
of tokens from which on Mamba is faster and draws docs/fields-encoder.svg. Takes about two minutes.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import torch

from record import record
from rounds import best_of
from whence.fields.config import FieldModelConfig, Output
from whence.fields.cost import (
    compared_encoders,
    crossing,
    encoder_cost,
    in_fresh_process,
    memory_of,
    model_of_tokens,
    untrained,
)
from whence.fields.decode import enlarge

TOKENS = (256, 512, 1024, 2048, 4096, 8192, 16_384)
SIDES = compared_encoders(FieldModelConfig())
COLOURS = {"bimamba": "#0072B2", "Transformer": "#E69F00"}
WIDTH, HEIGHT, LEFT, RIGHT, BELOW = 640, 400, 70, 40, 50


def rendering_memory(config: FieldModelConfig, given: tuple[int, int], size: tuple[int, int], output: Output) -> float:
    """MiB beyond the model, the result included, to enlarge an image."""
    model = untrained(config, 3, (32, 32))
    enlarge(model, torch.rand(3, 8, 8), (8, 8), output)  # what is loaded once is part of the model
    return memory_of(lambda: enlarge(model, torch.rand(3, *given), size, output))


def main(rounds: int) -> None:
    memory = {name: in_fresh_process(encoder_cost, encoder, TOKENS).curve("mib") for name, encoder in SIDES.items()}
    times: dict[str, dict[int, float]] = {name: {} for name in SIDES}
    for tokens in TOKENS:
        sides = {name: model_of_tokens(encoder, tokens) for name, encoder in SIDES.items()}
        with torch.no_grad():
            best = best_of({n: lambda m=m, x=x: m.encode(x) for n, (m, x) in sides.items()}, rounds, seconds=10.0)
        for name, seconds in best.items():
            times[name][tokens] = 1000 * seconds
        needed = "  ".join(f"{name} {memory[name][tokens]:6.1f} MiB" for name in SIDES)
        took = "  ".join(f"{name} {times[name][tokens]:8.1f} ms" for name in SIDES)
        print(f"{tokens:>6} tokens  {took}  {best['Transformer'] / best['bimamba']:5.2f}×   {needed}", flush=True)
    meet = crossing(times["bimamba"], times["Transformer"])
    print("the Transformer is faster throughout" if meet is None else f"bimamba is faster from {meet:,.0f} tokens on")
    large = {
        output: in_fresh_process(rendering_memory, FieldModelConfig(), (128, 128), (4096, 4096), output)
        for output in ("field", "render")
    }
    print("128×128 → 4096×4096, beyond the model: " + ", ".join(f"{o} {mib:.0f} MiB" for o, mib in large.items()))
    record(
        "fields_encoder",
        {
            "ms": times,
            "mib": memory,
            "faster_from": meet,
            "rendering_4096_mib": large,
        },
    )
    target = Path(__file__).parent.parent / "docs" / "fields-encoder.svg"
    target.write_text(drawn(times, meet))


def drawn(times: dict[str, dict[int, float]], meet: float | None) -> str:
    """Both axes logarithmic; where the curves cross is marked."""
    low, high = math.log10(TOKENS[0]), math.log10(TOKENS[-1])
    values = [math.log10(value) for curve in times.values() for value in curve.values()]
    bottom, top = math.floor(min(values)), math.ceil(max(values))

    def x(tokens: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(tokens) - low) / (high - low)

    def y(ms: float) -> float:
        return (HEIGHT - BELOW) - (HEIGHT - BELOW - 30) * (math.log10(ms) - bottom) / (top - bottom)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" ']
    parts.append(f'font-size="13"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    for tokens in TOKENS:
        parts.append(f'<path d="M{x(tokens):.1f} 30V{HEIGHT - BELOW}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{x(tokens):.1f}" y="{HEIGHT - BELOW + 18}" text-anchor="middle">{tokens:,}</text>')
    for power in range(bottom, top + 1):
        parts.append(f'<path d="M{LEFT} {y(10**power):.1f}H{WIDTH - RIGHT}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(10**power) + 4:.1f}" text-anchor="end">{10**power:g}</text>')
    for place, (name, curve) in enumerate(times.items()):
        points = " ".join(f"{x(tokens):.1f},{y(ms):.1f}" for tokens, ms in curve.items())
        dash = ' stroke-dasharray="7 4"' if place else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="2.5"{dash}/>')
        end = f'x="{WIDTH - RIGHT - 4}" y="{y(curve[TOKENS[-1]]) - 8:.1f}" text-anchor="end"'
        parts.append(f'<text {end} fill="{COLOURS[name]}">{name}</text>')
    if meet is not None:
        parts.append(f'<path d="M{x(meet):.1f} 30V{HEIGHT - BELOW}" stroke="#555" stroke-dasharray="3 3"/>')
        parts.append(f'<text x="{x(meet) + 5:.1f}" y="44" fill="#333">{meet:,.0f} tokens</text>')
    parts.append(
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">tokens, position tokens among them</text>'
    )
    parts.append(
        f'<text transform="translate(18 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">ms to encode</text></svg>'
    )
    return "".join(parts) + "\n"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
