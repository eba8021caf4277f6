"""Cost per token against length: the scan beside causal attention of the same width, and where the two cross."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rounds import best_of
from scan_peers import Inputs
from whence.kernels import selective_scan

WIDTH, HEADS = 256, 4
SHORT = [2**power for power in range(6, 10)]  # where attention is still ahead
LONG = [2**power for power in range(10, 17)]  # where a cost per token that does not grow is promised
PATIENCE = 10.0  # seconds for one call; attention's cost grows fourfold with each doubling
Curve = dict[int, float]  # length → µs per token
Make = Callable[[int], Callable[[], Any]]  # length → what to time


def scan(length: int) -> Callable[[], Any]:
    inputs = Inputs((1, length, WIDTH))
    return lambda: inputs.both(selective_scan)


def attention(length: int) -> Callable[[], Any]:
    *qkv, back = (torch.randn(1, HEADS, length, WIDTH // HEADS) for _ in range(4))
    for tensor in qkv:
        tensor.requires_grad_()
    return lambda: torch.autograd.grad(F.scaled_dot_product_attention(*qkv, is_causal=True), qkv, back)


def trained(mixer: nn.Module, call: Callable[[Tensor], Tensor], length: int) -> Callable[[], Any]:
    """Forward and backward of a whole mixer: gradients of its input and of all its weights."""
    x, back = (torch.randn(1, length, WIDTH) for _ in range(2))
    wanted = [x.requires_grad_(), *mixer.parameters()]
    return lambda: torch.autograd.grad(call(x), wanted, back)


def mamba_mixer(length: int) -> Callable[[], Any]:
    from whence.mixers.mamba import Mamba

    mixer = Mamba(WIDTH)
    return trained(mixer, lambda x: mixer(x, None), length)


def attention_mixer(length: int) -> Callable[[], Any]:
    from whence.encodings.none import NoPE
    from whence.mixers.attention import Attention

    mixer, positions = Attention(WIDTH, HEADS), torch.arange(length)[None]
    (context,) = Attention.contexts([NoPE()], positions, "causal")
    return trained(mixer, lambda x: mixer(x, context), length)


def curves(makes: dict[str, Make], lengths: list[int], rounds: int, seconds: float) -> dict[str, Curve]:
    """All at all lengths, interleaved. A side ends at the length after which a call would take too long."""
    sides: dict[tuple[str, int], Callable[[], Any]] = {}
    for name, make in makes.items():
        make(lengths[0])()  # compiles what there is to compile
        for length in lengths:
            run = make(length)
            start = time.perf_counter()
            run()
            taken = time.perf_counter() - start
            sides[name, length] = run
            if 4 * taken > PATIENCE:
                break
    best = best_of(sides, rounds, seconds)
    return {
        name: {length: 1e6 * taken / length for (side, length), taken in best.items() if side == name} for name in makes
    }


def crossing(flat: Curve, rising: Curve) -> float | None:
    """The length from which on `rising` costs more, on straight lines between the points of a log-log plot."""
    lengths = sorted(flat.keys() & rising.keys())
    behind = [math.log(rising[length] / flat[length]) for length in lengths]
    for at in range(len(lengths) - 1, 0, -1):
        if behind[at - 1] < 0 <= behind[at]:
            share = -behind[at - 1] / (behind[at] - behind[at - 1])
            return math.exp((1 - share) * math.log(lengths[at - 1]) + share * math.log(lengths[at]))
    return None


def spread(curve: Curve) -> float:
    """How much more a token costs at the dearest of the long lengths than at the cheapest."""
    costs = [curve[length] for length in LONG]
    return max(costs) / min(costs) - 1
