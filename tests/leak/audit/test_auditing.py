"""Audits of real models, and what an audit refuses."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whence
from tests.leak.test_model import job_of, trained
from whence.errors import UserError
from whence.leak.audit.auditing import measure_audit
from whence.leak.audit.influence import embedded, gradient_share
from whence.leak.audit.own_model import audit_target
from whence.leak.audit.pretrained import load
from whence.leak.audit.shift import shift_test
from whence.leak.audit.verdict import named_pathways
from whence.leak.metrics import Audit


def test_minilm_depends_on_learned_absolute_positions_and_reconstructs_nothing() -> None:
    """A sentence encoder: it has forgotten how to predict a masked token, which comes before what else it does."""
    found = measure_audit(load("minilm", rows=12, length=48), (0.5, 1.0))
    assert found.verdict.outcome == "reconstructs nothing"
    assert found.verdict.leak == "leaky"
    assert found.verdict.first_layer == "embeddings"
    assert "Masked tokens are replaced by [MASK] (id 103)." in found.facts
    assert any("enters through learned absolute positions" in sentence for sentence in found.verdict.sentences)
    (source,) = found.pathways
    assert source.with_all == found.ratios[0.5].shift.sensitivity, "the same rows and placements"
    assert source.without < 1e-6 < 0.1 < source.alone
    assert found.ratios[0.5].gradient > 0.4
    assert found.ratios[1].gradient > 0.5, "[CLS] and [SEP] are all that is visible"
    document = json.loads(json.dumps(found.model_dump(mode="json"), allow_nan=False))
    assert Audit.model_validate(document) == found
    for path, value in DAMAGED:
        with pytest.raises(ValueError, match="validation error"):
            Audit.model_validate(changed(document, path, value))
    for document in (None, [], {}, "audit", 5):
        with pytest.raises(ValueError, match="validation error"):
            Audit.model_validate(document)


DAMAGED: list[tuple[tuple[str, ...], Any]] = [
    (("name",), None),
    (("ratios",), {}),
    (("ratios", "<b>"), {}),
    (("ratios", "0.5", "error"), "much " * 2000),
    (("ratios", "0.5", "shift"), None),
    (("pathways",), [{}]),
    (("profile", "layers", "embeddings"), 1),
    (("means", "positions"), [1]),
    (("means", "similarity"), [[1.0]]),
    (("verdict", "outcome"), "good"),
    (("verdict", "sentences"), "Clean."),
]


def changed(document: Any, path: tuple[str, ...], value: Any) -> Any:
    first, *rest = path
    return {**document, first: changed(document[first], tuple(rest), value) if rest else value}


def test_a_causal_model_without_encodings_leaks_through_its_order() -> None:
    found = measure_audit(
        trained(job_of(backbone="transformer", temporal="none", causal=True)).audit_target(), (0.5, 1.0)
    )
    assert found.verdict.outcome == "leaky"
    assert found.verdict.pathways == ["causal order"]
    (explained,) = [fact for fact in found.facts if fact.startswith("Attention is causal")]
    assert "without causal order" in explained


def test_content_gated_is_clean_and_alive_after_training() -> None:
    job = trained(job_of("content_gated", data="synthetic:steps=64,channels=2"), 60)
    found = measure_audit(job.audit_target())
    assert found.verdict.outcome == "clean"
    assert found.ratios[0.5].pattern_r2 > 0.5, "statistics over places would have called it leaky"
    assert found.ratios[0.5].probe.best > 0.1
    assert found.ratios[0.5].shift.sensitivity < 1e-8
    assert found.ratios[1].correlation is None


class Plain(nn.Module):
    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, outputs)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def test_from_python_with_ones_own_model() -> None:
    model, batch = Plain().train(), torch.randn(12, 20, 3)
    found = whence.audit(model, batch, ratios=(0.5, 1.0))
    assert found.verdict.leak == "clean"
    assert found.verdict.outcome == "reconstructs nothing", "a model that sees no neighbours cannot predict them"
    assert "Reconstructs nothing" in str(found)
    assert model.training, "left as it was"
    assert set(found.untrained) == {0.5, 1.0}


class Wrong(Plain):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return {"shorter": y[:, 1:], "pooled": y.mean(1), "nan": y * math.nan}[self.how]


@pytest.mark.parametrize(
    ("model", "batch", "words"),
    [
        (Wrong("shorter"), torch.randn(12, 20, 3), "expected one prediction per token"),
        (Wrong("pooled"), torch.randn(12, 20, 3), "expected one prediction per token"),
        (Wrong("nan"), torch.randn(12, 20, 3), "expected finite predictions"),
        (Plain(), torch.ones(12, 20, 3), "expected values that vary, got 1 everywhere"),
        (Plain(), torch.randn(12, 6, 3), "for a 5-fold cross-validation, got 6"),
        (Plain(), torch.randn(3, 20, 3), "expected 5 examples or more, .* got 3"),
        (Plain(), torch.randint(9, (12, 20)), "requires the id of the mask token"),
        (Plain(), torch.randn(12), "expected a tensor"),
        (Plain(), None, "requires examples"),
        (Plain(), torch.full((12, 20, 3), math.nan), "expected finite values, got 720"),
        (Plain(), torch.randn(1, 20, 3).repeat(12, 1, 1), "expected examples that differ, got 12 equal ones"),
    ],
)
def test_what_cannot_be_audited_is_refused(model: nn.Module, batch: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        whence.audit(model, batch)


def test_models_that_are_not_there() -> None:
    with pytest.raises(UserError, match="'bert-base' is not known"):
        load("bert-base")


@pytest.mark.parametrize("ratios", [(), (0.0,), (1.5,)])
def test_shares_that_are_none_are_refused(ratios: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match="expected mask ratios above 0 and up to 1"):
        whence.audit(Plain(), torch.randn(12, 20, 3), ratios=ratios)


@pytest.mark.parametrize(
    ("mitigations", "model"),
    [
        ("none", {"backbone": "transformer", "temporal": "none", "replacement": "noise"}),
        ("zero_masked_positions+permute_tokens:always=true", {"backbone": "transformer", "temporal": "none"}),
        ("permute_tokens:always=true", {"backbone": "bimamba", "temporal": "none"}),
    ],
)
def test_noise_is_not_taken_for_position(mitigations: str, model: dict[str, str]) -> None:
    """Models that draw random numbers and have no position: at most undecided, with the limit of detection."""
    found = measure_audit(job_of(mitigations, **model).audit_target(), (0.5, 1.0))
    limit = found.ratios[0.5].shift.limit
    assert found.verdict.leak == ("undecided" if limit > 1e-6 else "clean")
    assert found.ratios[0.5].shift.sensitivity == found.ratios[1].position_variance == 0
    assert any("detection limit" in sentence for sentence in found.verdict.sentences)
    assert not found.pathways or found.pathways[0].alone == 0


def test_noise_does_not_hide_position() -> None:
    target = job_of(backbone="transformer", temporal="sinusoidal", replacement="noise").audit_target()
    assert measure_audit(target, (0.5, 1.0)).verdict.leak == "leaky"


def test_looks_at_noisy_models(slow: bool) -> None:
    """Many looks, each at other noise: none at a model without position finds any, all at one with position do."""
    torch.manual_seed(0)
    looks = 60 if slow else 12

    def found(temporal: str) -> list[bool]:
        target = job_of(backbone="transformer", temporal=temporal, replacement="noise").audit_target()
        return [shift_test(target, 0.5, 1.0, seed).sensitivity > 0 for seed in range(looks)]

    assert sum(found("none")) == 0
    assert sum(found("sinusoidal")) == looks


class Windowed(nn.Module):
    """Says the same at every multiple of eight."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1, keepdim=True) * 0 + torch.sin(torch.arange(x.shape[1]) * math.pi / 4)[:, None].expand_as(x)


def test_a_period_is_not_missed() -> None:
    """A third of 24 tokens is 8, where the model says again what it said."""
    assert whence.audit(Windowed(), torch.randn(12, 24, 3), ratios=(0.5,)).verdict.leak == "leaky"


def test_a_prior_is_judged_in_the_open() -> None:
    data = "synthetic:position=0.8,steps=64,channels=2"
    found = measure_audit(job_of("content_gated+position_prior", data=data).audit_target(), (0.5, 1.0))
    assert found.verdict.leak == "clean"
    assert found.ratios[1].position_variance > 0.01, "what it says does depend on position"
    assert found.ratios[1].without_prior.identical
    assert any("The model has an explicit position prior" in sentence for sentence in found.verdict.sentences)
    assert found.pathways[0].name.startswith("position prior")
    masked = measure_audit(job_of("position_prior", data=data, temporal="sinusoidal").audit_target(), (0.5, 1.0))
    assert masked.verdict.leak == "leaky", "a prior does not excuse what else comes in"


class Counting(Plain):
    """Numbers its tokens without a module that whence could know."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + torch.linspace(-1, 1, x.shape[1])[:, None])


def test_what_comes_in_elsewhere_is_said() -> None:
    found = whence.audit(Counting(), torch.randn(12, 20, 3), ratios=(0.5, 1.0))
    assert found.verdict.leak == "leaky"
    assert named_pathways(found.pathways) == ["elsewhere"]
    assert any("where no pathway was detected" in sentence for sentence in found.verdict.sentences)


def test_an_entrance_is_not_blamed_for_what_comes_in_elsewhere() -> None:
    """A convolution whose edge tells hardly anything, beside a count that tells all."""

    class Both(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(3, 3, 3, padding=1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + 0.02 * self.conv(x.mT).mT)

    found = whence.audit(Both(), torch.randn(12, 20, 3), ratios=(0.5, 1.0))
    assert named_pathways(found.pathways)[0] == "elsewhere"
    edge = next(row for row in found.pathways if row.name == "convolution edge")
    assert edge.alone < 0.05 * edge.with_all


class Several(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.ModuleList([nn.Linear(3, 3)])
        self.pooled = nn.Sequential(nn.Linear(3, 4))

    def forward(self, x: Tensor, scale: float = 1.0) -> Any:
        return super().forward(x) * scale, self.pooled(x.mean(1))


def test_outputs_options_and_layers_that_do_not_align() -> None:
    """A tuple is returned, the second argument may be left out, some layers pool and one never runs."""
    found = whence.audit(Several(), torch.randn(12, 20, 3), ratios=(0.5, 1.0))
    assert found.verdict.leak == "clean"
    assert found.profile is not None
    assert list(found.profile.layers) == ["blocks.0", "blocks.1"]


class Raw(nn.Module):
    """Attention of torch and a table without a module."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.table = nn.Parameter(torch.randn(20, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.table
        return self.attention(x, x, x)[0]


def test_the_untrained_twin_shares_no_weight_that_was_learnt() -> None:
    model = Raw()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    target = audit_target(model, torch.randn(12, 20, 4))
    assert target.untrained is not None
    twins = [target.untrained(seed) for seed in (0, 1)]
    for one, two, before in zip(*(t.model.parameters() for t in twins if t), model.parameters(), strict=True):
        assert not torch.equal(before, one)
        assert not torch.equal(one, two) or not one.any(), "another seed, another twin; biases start at 0"


def test_the_gradient_is_taken_before_the_first_block() -> None:
    """Layers that are all blocks: what the first one gets has the encoding added to it already."""

    class Told(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.position = nn.Embedding(20, 3)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + self.position(torch.arange(x.shape[1])))

    model = Told()
    content = torch.randn(8, 20, 3)
    target = audit_target(model, content)
    masked = target.draw_mask(0.5)
    tokens = (content.masked_fill(masked[..., None], 0) + model.position.weight).detach()
    got = embedded(target, masked)
    assert got is not None
    assert torch.equal(got, tokens)
    share = gradient_share(target, masked)
    leaf = tokens.requires_grad_()
    loss = (Plain.forward(model, leaf)[masked] - content[masked]).pow(2).mean()
    gradient = torch.autograd.grad(loss, leaf)[0]
    whole, visible = gradient.norm(), gradient[~masked].norm()
    assert share == pytest.approx(float(whole / (whole + visible)), rel=1e-5)


class Sparing(Plain):
    """Tells position only where little is masked."""

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        few = (masked.float().mean(1) < 0.3)[:, None, None]
        return super().forward(x) + few * torch.linspace(0, 1, x.shape[1])[:, None]


def test_a_leak_that_shows_only_where_little_is_masked() -> None:
    assert whence.audit(Sparing(), torch.randn(12, 32, 3), ratios=(0.15, 1.0)).verdict.leak == "leaky"


def test_rows_and_tokens_in_the_wrong_order_are_refused() -> None:
    class Turned(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).transpose(0, 1)

    with pytest.raises(UserError, match="expected one prediction per token"):
        whence.audit(Turned(), torch.randn(24, 24, 3))


def test_a_model_without_weights_has_no_untrained_twin() -> None:
    found = whence.audit(Windowed(), torch.randn(12, 24, 3), ratios=(0.5,))
    assert found.untrained == {}
    assert not any("layer" in sentence for sentence in found.verdict.sentences)
    assert any("Untrained twin not available" in sentence for sentence in found.verdict.sentences)
