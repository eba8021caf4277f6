"""The one training loop: schedule, guard, precision, streams, and what it leaves in the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.random import Streams, derive, generator
from whence.store.records import RunError
from whence.store.runs import Store
from whence.training.checkpoint import weights_of
from whence.training.config import Metrics, RunConfig, Trainable, TrainingConfig
from whence.training.optim import make_optimizer

ONE = ExecutionOptions(threads=1, checkpoint_interval=1e9)


class PoisonJob(Trainable[nn.Sequential]):
    """Regression that goes wrong where it is told to."""

    def __init__(self, spec: PoisonRun) -> None:
        self.spec = spec
        self.bad_seed = derive(Streams.of(spec.seed).data, spec.at)

    def setup(self, streams: Streams, device: torch.device) -> None:
        torch.manual_seed(derive(streams.init))
        self.model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).to(device)

    def step(self, generator: torch.Generator) -> tuple[Tensor, int]:
        bad = generator.initial_seed() == self.bad_seed
        x = torch.randn(8, 2, generator=generator)
        if bad and self.spec.how == "raise":
            raise RuntimeError("the disk caught fire")
        if bad and self.spec.how == "output":
            x = x / 0
        loss = (self.model(x) - x.sum(1, keepdim=True)).square().mean()
        if bad and self.spec.how == "gradient":
            self.model[2].weight.register_hook(lambda grad: grad * float("inf"))
        self.trained = True
        return loss, 8

    def evaluate(self, streams: Streams) -> Metrics:
        value = float("nan") if self.spec.how == "metric" and hasattr(self, "trained") else 0.5
        return Metrics(headline={"id": value})


class PoisonRun(RunConfig[Metrics, TrainingConfig]):
    kind: ClassVar[str] = "poison"
    how: str
    at: int = 7
    training: TrainingConfig = TrainingConfig(steps=20, evaluations=2, warmup=0)

    def job(self) -> PoisonJob:
        return PoisonJob(self)


@pytest.mark.parametrize(
    ("how", "step", "tensor"),
    [
        ("output", 7, "output of 0"),
        ("gradient", 7, "gradient of 2.weight"),
        ("metric", 10, "evaluation metric headline.id"),
    ],
)
def test_non_finite_numbers_stop_the_run(how: str, step: int, tensor: str, tmp_path: Path) -> None:
    store, spec = Store(tmp_path), PoisonRun(how=how)
    status = execute(spec, store, ONE)
    assert status.state == "failed"
    assert status.error.kind == "non_finite"
    assert (status.error.step, status.error.tensor) == (step, tensor)
    [newest, *_] = sorted(store.folder(spec.id).path.glob("checkpoint-*"), reverse=True)
    tensors = safetensors.torch.load_file(newest)
    assert int(newest.name.split("-")[1]) == step
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    # deterministic, so asking again does not try again, unless told to, and then it fails again
    events: list[dict[str, Any]] = []
    assert execute(spec, store, ONE, events.append).state == "failed"
    assert [event.kind for event in events] == ["failed"]
    again = execute(spec, store, ExecutionOptions(threads=1, checkpoint_interval=1e9, retry_failed=True))
    assert again.error == status.error


def test_exploding_parameters_are_blamed(tiny: Callable[..., Any], tmp_path: Path) -> None:
    spec = tiny(training={"lr": 1e38, "warmup": 0, "schedule": "constant", "clip": 1e30})
    status = execute(spec, Store(tmp_path), ONE)
    assert status.state == "failed"
    assert status.error.kind == "non_finite"
    assert "parameter" in status.error.tensor or "output of" in status.error.tensor


def test_an_exception_marks_the_run_and_keeps_its_traceback(tmp_path: Path) -> None:
    store, spec = Store(tmp_path), PoisonRun(how="raise")
    status = execute(spec, store, ONE)
    assert status.error == RunError(kind="exception", step=7, message="RuntimeError: the disk caught fire")
    assert "the disk caught fire" in (store.folder(spec.id).path / "log.jsonl").read_text()
    events: list[dict[str, Any]] = []
    execute(spec, store, ONE, events.append)
    assert events[0].kind == "started"  # unlike a non-finite number, this is worth another try


def test_a_full_disk_in_mid_run_is_a_failed_run(
    tiny: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("whence.training.checkpoint.save_weights", full)
    status = execute(tiny(training={"steps": 5}), Store(tmp_path), ONE)
    assert status.state == "failed"
    assert "the disk is full" in status.error.message
    monkeypatch.undo()
    assert execute(tiny(training={"steps": 5}), Store(tmp_path), ONE).state == "finished"


def test_schedule() -> None:
    training = TrainingConfig(steps=110, warmup=10, lr=1.0)
    rates = [training.lr_at(step) for step in range(110)]
    assert rates[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert rates[10] == 1.0
    assert rates[60] == pytest.approx(0.5)
    assert rates == sorted(rates[:11]) + sorted(rates[11:], reverse=True)
    assert rates[-1] < 0.001
    constant = TrainingConfig(steps=50, warmup=0, lr=0.5, schedule="constant")
    assert {constant.lr_at(step) for step in range(50)} == {0.5}
    assert TrainingConfig(steps=100, evaluations=4).evaluation_steps() == {0, 25, 50, 75, 100}
    assert TrainingConfig(steps=3, evaluations=10).evaluation_steps() == {0, 1, 2, 3}


def test_only_linear_weights_decay(tiny: Callable[..., Any]) -> None:
    model = tiny(model={"encoding": "fire"}).build_model("cpu")
    optimizer = make_optimizer(model, TrainingConfig(weight_decay=0.3))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed = {names[id(p)] for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert decayed == {
        n
        for n, m in model.named_parameters()
        if n.endswith(("qkv.weight", "out.weight", "up.weight", "down.weight", "head.weight"))
    }
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))
    assert optimizer.defaults["fused"] is True


def test_dropout_is_on_in_every_training_step_and_off_in_evaluation(
    tiny: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whence.arena.run import ArenaJob

    modes: dict[str, set[bool]] = {"step": set(), "evaluate": set()}
    step, evaluate = ArenaJob.step, ArenaJob.evaluate
    monkeypatch.setattr(ArenaJob, "step", lambda self, g: (modes["step"].add(self.model.training), step(self, g))[1])
    monkeypatch.setattr(
        ArenaJob, "evaluate", lambda self, s: (modes["evaluate"].add(self.model.training), evaluate(self, s))[1]
    )
    execute(tiny(), Store(tmp_path), ONE)
    assert modes == {"step": {True}, "evaluate": {False}}


def test_learning_happens_and_bf16_trains_too(tiny: Callable[..., Any], tmp_path: Path) -> None:
    for precision in ("fp32", "bf16"):
        spec = tiny(training={"steps": 250, "lr": 1e-2, "precision": precision}, model={"dropout": 0.0})
        status = execute(spec, Store(tmp_path), ONE)
        assert status.state == "finished"
        assert status.headline["id"] > 0.95, precision
        assert all(
            p.dtype == torch.float32
            for p in safetensors.torch.load_file(Store(tmp_path).folder(spec.id).weights).values()
        )


def test_equal_seeds_are_paired_across_encodings(tiny: Callable[..., Any]) -> None:
    """Same data, same shared weights; other seeds differ in both."""
    jobs = [tiny(model={"encoding": e}, seed=s).job() for e, s in (("rope", 1), ("t5", 1), ("rope", 2))]
    streams = [Streams.of(1), Streams.of(1), Streams.of(2)]
    for job, stream in zip(jobs, streams, strict=True):
        job.setup(stream, torch.device("cpu"))
    states = [job.model.state_dict() for job in jobs]
    shared = states[0].keys() & states[1].keys()
    assert len(shared) > 8
    assert all(torch.equal(states[0][name], states[1][name]) for name in shared)
    assert not torch.equal(states[0]["head.weight"], states[2]["head.weight"])
    batches = [
        job.task.sample(generator(stream.data, 5), 4, 8).inputs for job, stream in zip(jobs, streams, strict=True)
    ]
    assert torch.equal(batches[0], batches[1])
    assert not torch.equal(batches[0], batches[2])


def test_streams_are_independent_and_all_depend_on_the_seed() -> None:
    one, two = Streams.of(1), Streams.of(2)
    assert len({getattr(s, name) for s in (one, two) for name in ("data", "init", "dropout", "evaluation")}) == 8
    draws = torch.stack(
        [torch.randn(1000, generator=generator(s, step)) for s in (one.data, one.init) for step in (0, 1)]
    )
    correlation = torch.corrcoef(draws) - torch.eye(4)
    assert correlation.abs().max() < 0.15


def test_evaluating_more_often_changes_nothing_in_training(tiny: Callable[..., Any], tmp_path: Path) -> None:
    weights = []
    for evaluations in (1, 9):
        spec = tiny(training={"evaluations": evaluations})
        execute(spec, Store(tmp_path), ONE)
        weights.append(weights_of(Store(tmp_path).folder(spec.id)))
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_the_callers_random_state_and_settings_are_left_alone(tiny: Callable[..., Any], tmp_path: Path) -> None:
    torch.manual_seed(5)
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    expected = torch.rand(3, generator=torch.Generator().manual_seed(5))
    execute(tiny(training={"steps": 3}), Store(tmp_path), ONE)
    assert torch.equal(torch.rand(3), expected)
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (threads, deterministic)


def test_ids_are_content_hashes(tiny: Callable[..., Any]) -> None:
    assert tiny().id == tiny().id
    changed = [
        tiny(seed=1),
        tiny(training={"lr": 1e-3}),
        tiny(model={"encoding": "rope:base=500"}),
        tiny(model={"positions": "randomized"}),
        tiny(lengths={"train_length": 9}),
        tiny(task="modular_sum"),
    ]
    assert len({spec.id for spec in [tiny(), *changed]}) == 7


def test_a_resumed_run_keeps_its_thread_count(tiny: Callable[..., Any], tmp_path: Path) -> None:
    store, spec = Store(tmp_path), tiny()
    count: list[int] = []
    execute(spec, store, ExecutionOptions(threads=1), should_stop=lambda: count.append(0) or len(count) > 5)
    used: list[int] = []
    execute(spec, store, ExecutionOptions(threads=2), should_stop=lambda: used.append(torch.get_num_threads()) or False)
    assert set(used) == {1}
