"""The masked model: it does not look, its mitigations combine, and content_gated knows nothing of absolute position."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from whence.errors import UserError
from whence.leak.masks import draw
from whence.leak.mitigations import MITIGATIONS
from whence.leak.run import LeakJob, LeakRun
from whence.random import Streams, generator
from whence.training.config import TrainingConfig

BACKBONES = ("transformer", "mamba", "bimamba")
SMALL: dict[str, Any] = {"data": "synthetic:steps=48,channels=2", "training": {"steps": 4, "batch_size": 8}}


def job_of(mitigations: str = "none", seed: int = 0, data: str = SMALL["data"], **model: Any) -> LeakJob:
    run = LeakRun.read(
        {**SMALL, "data": data, "mitigations": mitigations, "seed": seed, "model": {"d_model": 16, **model}}
    )
    run.check()
    job = run.job()
    job.setup(Streams.of(seed), torch.device("cpu"))
    job.model.eval()
    return job


def trained(job: LeakJob, steps: int = 25) -> LeakJob:
    optimizer = torch.optim.Adam(job.model.parameters(), lr=1e-2)
    job.model.train()
    for step in range(steps):
        loss, _ = job.step(generator(7, step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    job.model.eval()
    return job


def said(job: LeakJob, tokens: Tensor, masked: Tensor) -> Tensor:
    with torch.no_grad():
        return job.model(tokens, masked, job.positions)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("mitigations", ["none", "all", "content_gated", "content_gated+position_prior"])
@pytest.mark.parametrize("layout", ["time", "time_channel"])
@pytest.mark.parametrize("replacement", ["zeros", "learned", "noise"])
def test_masked_content_is_not_used(backbone: str, mitigations: str, layout: str, replacement: str) -> None:
    if replacement == "noise" and "content_gated" in mitigations:
        with pytest.raises(UserError, match="which makes them differ"):
            job_of(mitigations, backbone=backbone, layout=layout, replacement=replacement)
        return
    job = job_of(mitigations, backbone=backbone, layout=layout, replacement=replacement)
    tokens = job.tokens(generator(1), 4, "test")
    masked = draw(generator(2), 4, tokens.shape[1], 0.5)
    other = torch.where(masked[..., None], 1e3 * torch.randn_like(tokens), tokens)
    torch.manual_seed(0)
    before = said(job, tokens, masked)
    torch.manual_seed(0)
    after = said(job, other, masked)
    assert before.shape == tokens.shape
    assert torch.equal(before, after)


@pytest.mark.parametrize(
    "names", [(c,) for c in MITIGATIONS.names()] + list(itertools.combinations(MITIGATIONS.names(), 2))
)
def test_mitigations_combine_and_learn(names: tuple[str, ...]) -> None:
    job = job_of("+".join(names))
    loss, tokens = job.step(generator(3))
    loss.backward()
    assert tokens > 0
    assert torch.isfinite(loss)
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in job.model.parameters())
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in job.model.parameters())


GATED = [
    (backbone, layout, encoding)
    for backbone in BACKBONES
    for layout in ("time", "time_channel")
    for encoding in (
        ("sinusoidal", "rope", "alibi", "t5", "kerple", "shaw")
        if backbone == "transformer"
        else ("sinusoidal", "learned")
    )
]


@pytest.mark.parametrize(("backbone", "layout", "temporal"), GATED)
@pytest.mark.parametrize("learn", [False, True])
def test_with_everything_masked_content_gated_predicts_one_thing_per_channel(
    backbone: str, layout: str, temporal: str, learn: bool
) -> None:
    job = job_of("content_gated", backbone=backbone, layout=layout, temporal=temporal, layers=3)
    job = trained(job) if learn else job
    tokens = job.tokens(generator(1), 3, "test")
    answers = said(job, tokens, torch.ones(tokens.shape[:2], dtype=torch.bool))
    by_time = answers.unflatten(1, (-1, job.stride))
    assert torch.equal(by_time, by_time[:1, :1].expand_as(by_time)), "bitwise"


@pytest.mark.parametrize(("backbone", "layout", "temporal"), GATED)
@pytest.mark.parametrize("visible", [1, 2, 5])
def test_content_gated_knows_distances_and_no_places(backbone: str, layout: str, temporal: str, visible: int) -> None:
    """A few visible tokens, moved to every place where they fit: the same answers around them, wherever they are."""
    job = trained(job_of("content_gated", backbone=backbone, layout=layout, temporal=temporal, layers=3), 10)
    stride = 2 if layout == "time_channel" else 1
    content = job.tokens(generator(1), 1, "test")
    count = content.shape[1]
    offsets = sorted(torch.randperm(count // 3, generator=generator(visible))[:visible].tolist())
    around = count // 3
    found = []
    for start in range(0, count - around + 1, stride):
        tokens, masked = torch.zeros_like(content), torch.ones(1, count, dtype=torch.bool)
        for offset in offsets:
            tokens[0, start + offset], masked[0, start + offset] = content[0, offset], False
        found.append(said(job, tokens, masked)[0, start : start + around])
    for other in found[1:]:
        assert torch.allclose(other, found[0], atol=2e-5), "the edge, or the place, was noticed"


@pytest.mark.parametrize("backbone", ["mamba", "bimamba"])
def test_both_gates_are_needed(backbone: str) -> None:
    """The state gate alone, or the convolution gate alone, leaves a leak: that is what both are for."""
    job = job_of("content_gated", backbone=backbone)
    tokens = job.tokens(generator(1), 1, "test")
    masked = torch.ones(tokens.shape[:2], dtype=torch.bool)

    def spread() -> float:
        answers = said(job, tokens, masked)
        return float((answers - answers[:, :1]).abs().max())

    assert spread() == 0
    mixers = [m for m in job.model.modules() if type(m).__name__ == "Mamba"]
    for mixer in mixers:  # the convolution is gated, the state runs on
        original = mixer.mix
        object.__setattr__(
            mixer, "mix", lambda u, keep, reverse=False, original=original: original(u, None, reverse=reverse)
        )
    assert spread() > 1e-6
    for mixer in mixers:  # the state is gated, the convolution sees masked tokens
        object.__delattr__(mixer, "mix")
        original = mixer.split
        object.__setattr__(mixer, "split", lambda x, keep, original=original: original(x, None))
    assert spread() > 1e-6


def test_soft_writing_ends_where_nothing_is_visible() -> None:
    job = job_of("content_gated:spread=2")
    mitigation = job.model.active[0]
    visible = torch.tensor([[False, False, True, False, False, True, False]])
    assert torch.equal(mitigation.writes(visible, 0), visible)  # type: ignore[arg-type]
    weights = mitigation.writes(visible, 1)
    assert weights is not None
    assert weights[0, [0, 1, 6]].tolist() == [0, 0, 0], "outside the visible ones nobody writes"
    assert weights[0, 2] == weights[0, 5] == 1
    assert 0 < weights[0, 3] == weights[0, 4] < 1
    assert not mitigation.writes(torch.zeros(1, 7, dtype=torch.bool), 1).any()  # type: ignore[union-attr]


@pytest.mark.parametrize("layout", ["time", "time_channel"])
def test_tokens_hold_every_number_once(layout: str) -> None:
    job = job_of(layout=layout, window=6)
    examples = torch.arange(48 * 2).view(1, 48, 2).float()
    tokens = job.run.model.tokens(examples)
    assert sorted(tokens.flatten().tolist()) == list(range(96))
    positions = job.positions[0]
    for token, (time, channel) in zip(tokens[0], positions.tolist(), strict=True):
        steps = [int(value) // 2 for value in token]
        assert set(steps) == set(range(6 * time, 6 * time + 6))
        if layout == "time_channel":
            assert {int(value) % 2 for value in token} == {channel}


def test_training_is_a_runs() -> None:
    """Defaults suit a laptop, and the training group is the loop's own."""
    assert isinstance(LeakRun().training, TrainingConfig)
    assert LeakRun().mitigation == "none"
    assert LeakRun.read({"mitigations": "all"}).mitigation == "all"
    assert LeakRun.read({"mitigations": "all"}).id != LeakRun().id


def test_a_file_and_a_flag_mean_the_same() -> None:
    """A group of which a file sets one field keeps the other defaults of this instrument."""
    from whence.leak.config import LeakConfig

    assert LeakRun.read({"training": {"steps": 7}}).training.batch_size == LeakRun().training.batch_size == 32
    plan = LeakConfig.read({"training": {"steps": 7}, "data": "synthetic", "seeds": 1}).runs()
    assert {run.training.batch_size for runs in plan.values() for run in runs} == {32}
    assert plan["none"][0].id == LeakRun.read({"data": "synthetic", "training": {"steps": 7}}).id


def test_content_gated_refuses_absolute_positions_in_attention() -> None:
    with pytest.raises(UserError, match="got fire, through which absolute positions enter attention"):
        job_of("content_gated", backbone="transformer", temporal="fire")
