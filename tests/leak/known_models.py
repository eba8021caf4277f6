"""Models of which it is known whether, and through which pathway, predictions of masked tokens depend on position.

Every entry states the verdict and the pathways that a correct audit reports. They were written before the audit was
changed to reach them. `constructed` models have exact answers; `trained` ones were trained for a second or two, so that
they reconstruct content as a model in use does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import transformers
from torch import Tensor, nn

from tests.leak.test_model import job_of, trained
from whence.leak.audit.own_model import audit_target
from whence.leak.audit.pretrained import _target
from whence.leak.audit.target import AuditTarget
from whence.leak.data import SyntheticRecordings
from whence.leak.masks import draw
from whence.leak.run import LeakJob
from whence.random import preserve_rng_state

TOKENS, FEATURES, ROWS = 24, 3, 32


@dataclass(frozen=True)
class Known:
    """One model and the right answer."""

    name: str
    build: Callable[[int], AuditTarget]
    """seed → what is audited"""
    outcome: str
    pathways: frozenset[str] = frozenset()
    """Names of the pathways through which position enters; empty where the verdict claims no leak"""
    note: str = ""
    """A word that the verdict must carry besides"""


def content(seed: int, rows: int = ROWS, position: float = 0.0) -> Tensor:
    """Smooth signals (rows, TOKENS, FEATURES); `position`: share of their variance that a fixed template carries."""
    data = SyntheticRecordings(steps=TOKENS, channels=FEATURES, smoothness=3.0, position=position)
    return data.draw(torch.Generator().manual_seed(seed), rows, "test")


class Interpolation(nn.Module):
    """A masked token is the mean of visible ones, weighted by distance: content and relative position alone."""

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        index = torch.arange(x.shape[1])
        near = torch.exp(-((index[:, None] - index).abs() / 2.0)) * ~masked[:, None]
        return near @ x / near.sum(-1, keepdim=True).clamp(min=1e-6)


class WithTable(Interpolation):
    """The same plus a table that is read at 0, 1, 2, …"""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.position = nn.Embedding.from_pretrained(rows, freeze=False)

    def table(self) -> Tensor:
        return self.position(torch.arange(self.position.num_embeddings))

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        return super().forward(x, masked) + self.table()


class TableAlone(WithTable):
    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        return self.table().expand_as(x)


class WithRowNoise(WithTable):
    """Every forward pass adds one vector of noise, much larger than the table, to all tokens of a row."""

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        return super().forward(x, masked) + 0.5 * torch.randn(len(x), 1, FEATURES)


class WithEdge(WithTable):
    """The table, and a convolution over ones that returns 0 unless it sees the zeros outside the sequence."""

    def __init__(self, rows: Tensor, size: float) -> None:
        super().__init__(rows)
        self.edge = nn.Conv1d(1, FEATURES, 7, padding=3)
        nn.init.constant_(self.edge.weight, size / 7)
        assert self.edge.bias is not None
        nn.init.constant_(self.edge.bias, -size)

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        return super().forward(x, masked) + self.edge(torch.ones_like(x[..., :1]).mT).mT


class RotaryEmbedding(nn.Module):
    """Cosine and sine of position times frequency, as the modules of that name in transformers return them."""

    def forward(self, tokens: int) -> tuple[Tensor, Tensor]:
        angle = torch.arange(tokens)[:, None] / torch.tensor([3.0, 9.0])
        return angle.cos(), angle.sin()


class Rotated(nn.Module):
    """Attention whose queries and keys differ by their rotation alone. Masked tokens are keys, so that the number of
    them out to either end of the sequence changes the weight of the visible ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rotary = RotaryEmbedding()

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        turned = torch.cat(self.rotary(x.shape[1]), -1)
        return 2 * torch.softmax(2 * turned @ turned.mT, -1) @ x


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.randn(FEATURES))

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        return self.value.expand_as(x)


class Dead(nn.Module):
    """A random recurrent network: its predictions depend on position and reconstruct nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = nn.GRU(FEATURES, 16, batch_first=True)
        self.outputs = nn.Linear(16, FEATURES)

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        return self.outputs(self.loop(x)[0])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.loop = nn.GRU(FEATURES + 1, 24, batch_first=True, bidirectional=True)
        self.outputs = nn.Linear(48, FEATURES)

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        return self.outputs(self.loop(torch.cat([x, masked[..., None].float()], -1))[0])


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(FEATURES + 1, 24, 9, padding=4)
        self.second = nn.Conv1d(24, FEATURES, 9, padding=4)

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        told = torch.cat([x, masked[..., None].float()], -1)
        return self.second(torch.relu(self.first(told.mT))).mT


def _seeded(seed: int, build: Callable[[], AuditTarget]) -> AuditTarget:
    with preserve_rng_state():
        torch.manual_seed(seed)
        return build()


def _table(seed: int, make: Callable[[Tensor], nn.Module], size: float) -> AuditTarget:
    """A model around a smooth random table of standard deviation `size`."""
    rows = size * content(seed + 1000, 1)[0]
    return _seeded(seed, lambda: audit_target(make(rows), content(seed)))


def _prior_only(seed: int) -> AuditTarget:
    """It predicts the mean of each position in other examples, and nothing else."""
    template = content(seed + 1000, 2000, position=0.6).mean(0)
    return audit_target(TableAlone(template), content(seed, position=0.6))


def _periodic(seed: int) -> AuditTarget:
    """The same at every multiple of a third of the sequence, which is as far as the shift test once went."""
    angle = 2 * math.pi * torch.arange(TOKENS) / (TOKENS // 3) + torch.arange(FEATURES)[:, None] + seed
    return audit_target(WithTable(0.3 * angle.sin().T), content(seed))


def _fitted(seed: int, kind: Callable[[], nn.Module], steps: int = 150) -> AuditTarget:
    """Trained to reconstruct masked tokens of signals for which a little position helps."""

    def build() -> AuditTarget:
        model, place = kind(), torch.Generator().manual_seed(seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        examples = content(seed + 1000, 1024, position=0.3)
        for _ in range(steps):
            x = examples[torch.randint(len(examples), (32,), generator=place)]
            masked = draw(place, len(x), TOKENS, float(torch.rand((), generator=place).clamp(0.1)))
            predicted = model(x.masked_fill(masked[..., None], 0), masked)
            loss = (predicted - x)[masked].pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return audit_target(model, content(seed, position=0.3))

    return _seeded(seed, build)


def _masked(
    seed: int, mitigations: str = "none", position: float = 0.0, steps: int = 80, **model: object
) -> AuditTarget:
    """whence's own masked model, trained briefly."""
    data = f"synthetic:steps=64,channels=2,position={position}"

    def job(seed: int) -> LeakJob:
        return job_of(mitigations, seed=seed, data=data, window=2, **model)

    target = _seeded(seed, lambda: trained(job(seed), steps).audit_target(ROWS))
    return replace(target, untrained=lambda other: job(1000 + other).audit_target(ROWS))


def _untrained_bert(seed: int) -> AuditTarget:
    """Random weights: whatever is measured, training did not cause it."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}

    def build() -> AuditTarget:
        config = transformers.BertConfig(**sizes, vocab_size=99, max_position_embeddings=64)
        model = transformers.AutoModel.from_config(config).eval()
        ids = torch.randint(5, 99, (ROWS, TOKENS))

        return _target("bert", model, ids, (0, 0), 3)

    return _seeded(100 + seed, build)


TABLE = frozenset({"learned absolute positions"})
KNOWN = (
    Known("no position", lambda s: _masked(s, backbone="transformer", temporal="none"), "clean"),
    Known("content gated", lambda s: _masked(s, "content_gated", backbone="bimamba"), "clean"),
    Known("interpolation", lambda s: audit_target(Interpolation(), content(s)), "clean"),
    Known(
        "additive",
        lambda s: _masked(s, backbone="transformer", temporal="sinusoidal"),
        "leaky",
        frozenset({"additive encoding (sinusoidal)"}),
    ),
    Known("rotary", lambda s: audit_target(Rotated(), content(s)), "leaky", frozenset({"rotation in attention"})),
    Known(
        "bias",
        lambda s: _masked(s, position=0.8, steps=150, backbone="transformer", temporal="t5"),
        "leaky",
        frozenset({"bias in attention"}),
    ),
    Known(
        "causal only",
        lambda s: _masked(s, backbone="transformer", temporal="none", causal=True),
        "leaky",
        frozenset({"causal order"}),
    ),
    Known("recurrent", lambda s: _fitted(s, Recurrent), "leaky", frozenset({"recurrent state"})),
    Known("convolution edge", lambda s: _fitted(s, Convolved), "leaky", frozenset({"convolution edge"})),
    Known("prior only", _prior_only, "leaky", TABLE, note="position only"),
    Known("dead", lambda s: _seeded(s, lambda: audit_target(Dead(), content(s))), "reconstructs nothing"),
    Known("constant", lambda s: _seeded(s, lambda: audit_target(Constant(), content(s))), "reconstructs nothing"),
    Known("periodic", _periodic, "leaky", TABLE),
    Known(
        "two pathways",
        lambda s: _table(s, lambda rows: WithEdge(rows, 1.0), 0.3),
        "leaky",
        TABLE | {"convolution edge"},
    ),
    Known("row noise, table", lambda s: _table(s, WithRowNoise, 0.1), "leaky", TABLE),
    Known("untrained", _untrained_bert, "no different from untrained"),
)
