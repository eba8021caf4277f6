"""Entrances are found in models of all kinds, shut while they should be, and open again afterwards."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import Tensor, nn

from tests.leak.test_model import job_of
from whence.leak.audit.own_model import audit_target
from whence.leak.audit.pretrained import _target
from whence.leak.audit.shift import shift_test
from whence.leak.audit.target import AuditTarget
from whence.leak.pathways import Pathway, ablated, detect_pathways

IDS = torch.randint(5, 90, (8, 24), generator=torch.Generator().manual_seed(0))
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99}


def found(target: AuditTarget) -> dict[str, Pathway]:
    masked = target.draw_mask(0.5)
    return {pathway.name: pathway for pathway in detect_pathways(target, masked)}


def moved(target: AuditTarget) -> float:
    return shift_test(target, 0.5, 1.0).sensitivity


def transformer(kind: str) -> AuditTarget:
    torch.manual_seed(0)
    heads = {"num_attention_heads": 4, "intermediate_size": 64}
    if kind == "bert":
        config = transformers.BertConfig(**SIZES, **heads, max_position_embeddings=64)
    elif kind == "llama":
        config = transformers.LlamaConfig(**SIZES, **heads, num_key_value_heads=2)
    else:
        config = transformers.MambaConfig(**SIZES, state_size=8)
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():  # as they start, attention is next to uniform and nothing shows
        for name, weight in model.named_parameters():
            if weight.ndim == 2 and "A_log" not in name:
                weight.mul_(6.0)
    return _target(kind, model, IDS, (0, 0), 3 if kind == "bert" else None)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("bert", {"learned absolute positions"}),
        ("llama", {"rotation in attention", "causal order"}),
        ("mamba", {"recurrent state", "convolution edge"}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_models_of_transformers(kind: str, names: set[str]) -> None:
    target = transformer(kind)
    pathways = found(target)
    assert set(pathways) == names
    masked = target.draw_mask(0.5)
    before = target.predictions(target.content, masked)
    open_, weights = moved(target), [p.detach().clone() for p in target.model.parameters()]
    assert open_ > 1e-3
    with ablated(list(pathways.values())):
        assert moved(target) < 1e-4 * open_, "with all shut, nothing tells where a token is"
    assert torch.equal(before, target.predictions(target.content, masked)), "open again, bit for bit"
    assert all(torch.equal(old, new) for old, new in zip(weights, target.model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ({"backbone": "transformer", "temporal": "sinusoidal"}, {"additive encoding (sinusoidal)"}),
        ({"backbone": "transformer", "temporal": "learned"}, {"additive encoding (learned)"}),
        ({"backbone": "transformer", "temporal": "rope"}, {"rotation in attention"}),
        ({"backbone": "transformer", "temporal": "alibi"}, {"bias in attention"}),
        ({"backbone": "transformer", "temporal": "none", "causal": True}, {"causal order"}),
        ({"backbone": "mamba", "temporal": "none"}, {"recurrent state", "convolution edge"}),
        ({"backbone": "bimamba:d_conv=1", "temporal": "none"}, {"recurrent state"}),
    ],
)
def test_models_of_whence(model: dict[str, str], names: set[str]) -> None:
    target = job_of(**model).audit_target(8)
    pathways = found(target)
    assert set(pathways) == names
    assert moved(target) > 1e-5
    with ablated(list(pathways.values())):
        assert moved(target) < 1e-9


class Recurrent(nn.Module):
    """A model of somebody else's."""

    def __init__(self, kind: type[nn.RNNBase], batch_first: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.batch_first = batch_first
        self.loop = kind(3, 8, batch_first=batch_first)
        self.outputs = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.loop(x if self.batch_first else x.transpose(0, 1))[0]
        return self.outputs(y if self.batch_first else y.transpose(0, 1))


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
@pytest.mark.parametrize("batch_first", [True, False])
def test_loops_of_torch(kind: type[nn.RNNBase], batch_first: bool) -> None:
    target = audit_target(Recurrent(kind, batch_first), torch.randn(8, 24, 3))
    pathways = found(target)
    assert set(pathways) == {"recurrent state"}
    assert moved(target) > 1e-4
    with ablated(list(pathways.values())):
        assert moved(target) < 1e-9


def test_mask_tokens_that_differ() -> None:
    """Ablated, mask tokens are all alike. Numbers at visible tokens remain, so that some models keep all of the effect.

    The effect is a share of the variance that is left: in some models it is larger after the ablation, so that there is
    no upper limit to test.
    """

    class Numbered(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.linspace(-1, 1, x.shape[1])[:, None] * torch.linspace(-1, 1, x.shape[2])

    shares = []
    for seed in range(4):
        job = job_of(backbone="transformer", temporal="none", seed=seed)
        target = job.audit_target(8)
        assert "mask token" not in found(target)
        job.model.shown = Numbered()
        pathways = found(target)
        assert set(pathways) == {"mask token"}
        whole = moved(target)
        assert whole > 0.01
        with ablated(list(pathways.values())):
            assert "mask token" not in found(target)
            shares.append(moved(target) / whole)
    assert min(shares) < 0.8


def test_what_somebody_else_has_replaced_is_given_back() -> None:
    job = job_of(backbone="transformer")
    module = job.model.temporal
    mine = lambda x, positions: 2 * x  # noqa: E731
    object.__setattr__(module, "embed", mine)
    with ablated(list(found(job.audit_target(8)).values())):
        assert module.embed is not mine  # type: ignore[union-attr]
    assert module.embed is mine  # type: ignore[union-attr]


class Encoder(nn.Module):
    """torch's own transformer, told by a mask that only what lies behind may be seen."""

    def __init__(self, bias: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inputs, self.outputs = nn.Linear(3, 16), nn.Linear(16, 3)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(2))
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(x.shape[1])
        apart = steps[:, None] - steps
        mask = torch.where(apart < 0, -torch.inf, -self.bias * apart)
        x = self.inputs(x)
        for block in self.blocks:
            x = block(x, src_mask=mask)
        return self.outputs(x)


def test_causal_order_in_torchs_own_layers() -> None:
    target = audit_target(Encoder(), torch.randn(8, 24, 3))
    pathways = found(target)
    assert set(pathways) == {"causal order"}
    assert moved(target) > 1e-4
    with ablated(list(pathways.values())):
        assert moved(target) < 1e-9


def test_lifting_the_order_keeps_a_bias() -> None:
    """A mask that carries distances, too: without the order they are still there, on both sides."""
    target = audit_target(Encoder(bias=0.3), torch.randn(8, 24, 3))
    pathways = found(target)
    assert set(pathways) == {"causal order"}
    with ablated(list(pathways.values())):
        assert moved(target) > 1e-5, "the bias sees the edges"


class Convolved(nn.Module):
    def __init__(self, padding: int | str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv1d(3, 3, 5, padding=padding)
        with torch.no_grad():
            assert self.conv.bias is not None
            self.conv.bias.add_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(torch.relu(x + 1).mT).mT


@pytest.mark.parametrize("padding", [2, "same"])
def test_padded_convolutions(padding: int | str) -> None:
    target = audit_target(Convolved(padding), torch.randn(8, 24, 3))
    pathways = found(target)
    assert set(pathways) == {"convolution edge"}
    assert moved(target) > 1e-4
    with ablated(list(pathways.values())):
        assert moved(target) < 1e-9
