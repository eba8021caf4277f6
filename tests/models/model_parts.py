"""Small encodings, one per hook, and a way to build a model around any encoding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whence.encodings import RoPE
from whence.encodings.base import Encoding, distances
from whence.mixers.attention import Kind
from whence.models.init import initialise
from whence.models.layers import Pool
from whence.models.sequence import ModelConfig, SequenceModel

D_MODEL, HEADS, LAYERS, VOCAB = 16, 4, 2, 11


class Nowhere(Encoding):
    """No hook at all."""

    extrapolation, reference = "", ""


class Added(Encoding):
    """embed: a random plane wave."""

    extrapolation, reference = "", ""

    def __init__(self) -> None:
        super().__init__()
        self.waves = nn.Parameter(torch.empty(D_MODEL))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.waves)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + (positions[..., None] * self.waves).sin().to(x.dtype)


class Sloped(Encoding):
    """bias: a learned slope per head on the signed distance, so that it is not symmetric."""

    extrapolation, reference = "", ""

    def __init__(self) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.empty(HEADS))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.slopes)

    def bias(self, positions_q: Tensor, positions_k: Tensor) -> Tensor:
        return self.slopes[:, None, None] * distances(positions_q, positions_k).float()


class Gated(Encoding):
    """score: bends the logits by content and by how many visible keys lie between. One per layer."""

    extrapolation, reference = "", ""
    per_layer = True

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(HEADS, 1, D_MODEL // HEADS))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)

    def score(self, logits: Tensor, q: Tensor, positions_q: Tensor, positions_k: Tensor, visible: Tensor) -> Tensor:
        assert visible.dtype == torch.bool
        gates = logits.sigmoid() * visible
        lean = (q * self.weight).sum(-1, keepdim=True).tanh()
        return logits + lean * gates.flip(-1).cumsum(-1).flip(-1) + 0.1 * distances(positions_q, positions_k)


def rope() -> Encoding:
    return RoPE(D_MODEL // HEADS, HEADS, base=100.0)


ENCODINGS = {"none": Nowhere, "embed": Added, "rotate": rope, "bias": Sloped, "score": Gated}


def build(
    encoding: str,
    *,
    attention: Kind = "causal",
    pool: Pool | None = None,
    dropout: float = 0.0,
    continuous: bool = False,
    outputs: int = VOCAB,
    inputs: int = VOCAB,
    seed: int = 0,
) -> SequenceModel:
    config = ModelConfig(
        d_model=D_MODEL,
        heads=HEADS,
        layers=LAYERS,
        dropout=dropout,
        attention=attention,
        pool=pool or "last",
    )
    count = LAYERS if ENCODINGS[encoding] is Gated else 1
    encodings = [ENCODINGS[encoding]() for _ in range(count)]
    model = SequenceModel(config, encodings, inputs, outputs, "sequence" if pool else "token", continuous=continuous)
    initialise(model, seed)
    return model


def batch(rows: int = 3, length: int = 7, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Tokens, and positions that differ from row to row and do not count from zero."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCAB, (rows, length), generator=generator)
    steps = torch.randint(1, 4, (rows, length), generator=generator)
    return tokens, steps.cumsum(1)


def masks(kind: str, padded: bool, rows: int = 3, length: int = 7) -> dict[str, Tensor]:
    """Keyword arguments of a forward: right, left and no padding; prefixes of all sorts."""
    given: dict[str, Tensor] = {}
    if padded:
        given["valid"] = torch.ones(rows, length, dtype=torch.bool)
        given["valid"][0, -2:] = False
        given["valid"][1, :2] = False
    if kind == "prefix":
        given["prefix"] = torch.tensor([0, 3, length])
    return given


KINDS = ("causal", "bidirectional", "prefix")
