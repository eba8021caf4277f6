"""Cost of a model: time, peak memory in a fresh process, steps per minute. Measured once, stored as artifacts."""

from __future__ import annotations

import math
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import torch
from torch import Tensor

from whence.config import Config
from whence.fields.config import FieldModelConfig
from whence.fields.decode import decode
from whence.fields.model import FieldModel
from whence.fields.run import FieldsRun, load_model
from whence.models.init import initialise
from whence.random import Streams, generator, preserve_rng_state
from whence.store.artifacts import ArtifactKind
from whence.store.runs import Store
from whence.training.optim import make_optimizer

REPEATS = 15
TOKENS = (256, 512, 1024, 2048, 4096)
"""Patches and position tokens together, one position token for every four patches"""
ENCODER = ("mixer", "encoding", "d_model", "layers", "heads", "mlp_ratio")
"""Fields of a model that its encoder depends on"""
TRANSFORMER_MLP = 1.75
"""Increase of the MLP ratio that makes an attention block as large as a bidirectional Mamba block"""
TIMED_SECONDS = 4.0
"""Duration of timed steps, after two warm-up steps"""
T = TypeVar("T")


class CostRequest(Config):
    """The architecture and the data; a cost does not depend on weights."""

    data: str
    model: FieldModelConfig


class Cost(Config):
    """Milliseconds to encode one signal and to decode it at ×1; MiB to encode it, beyond the model."""

    encode: float
    decode: float
    memory: float


COSTS = ArtifactKind("field_cost", CostRequest, Cost)


def cost_request(run: FieldsRun) -> CostRequest:
    return CostRequest(data=str(run.data), model=run.model)


def measure_cost(store: Store, run: FieldsRun) -> Cost:
    """Times are medians on one thread, which other processes disturb least."""
    model, _ = load_model(store, run.id)
    x = torch.rand(1, model.channels, *model.size, generator=torch.Generator().manual_seed(0))
    with _threads(1), torch.no_grad():
        encoded = model.encode(x)
        encode_ms = _median_ms(lambda: model.encode(x))
        decode_ms = _median_ms(lambda: decode(model, x, model.size, "field", encoded))
    memory = in_fresh_process(encoding_memory, model.config, model.channels, model.size)
    return Cost(encode=encode_ms, decode=decode_ms, memory=memory)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _median_ms(act: Callable[[], object], repeats: int = REPEATS) -> float:
    act()
    return 1000 * statistics.median(_seconds(act) for _ in range(repeats))


def _seconds(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


# --- by number of tokens


class EncoderCostRequest(Config):
    """The fields of `model` that an encoder does not depend on have their defaults."""

    model: FieldModelConfig
    tokens: tuple[int, ...] = TOKENS


class TokenCost(Config):
    """Cost of encoding one signal of that many tokens: milliseconds, and MiB beyond the model."""

    tokens: int
    ms: float
    mib: float


class EncoderCost(Config):
    """In increasing order of the number of tokens."""

    costs: list[TokenCost]

    def curve(self, what: Literal["ms", "mib"]) -> dict[int, float]:
        return {cost.tokens: getattr(cost, what) for cost in self.costs}


ENCODER_COSTS = ArtifactKind("encoder_cost", EncoderCostRequest, EncoderCost)


def compared_encoders(model: FieldModelConfig) -> dict[str, FieldModelConfig]:
    """The encoder of a model and, unless that is a Transformer, a Transformer of about the same size."""
    own = FieldModelConfig.read({name: getattr(model, name) for name in ENCODER})
    if own.mixer.name == "attention" or own.d_model % (2 * own.heads):
        return {own.encoder: own}
    changes = {"mixer": "attention", "encoding": "rope", "mlp_ratio": own.mlp_ratio + TRANSFORMER_MLP}
    return {own.encoder: own, "Transformer": FieldModelConfig.read({**own.model_dump(), **changes})}


def encoder_costs(run: FieldsRun, store: Store) -> dict[str, EncoderCost]:
    """By encoder, those that the store has."""
    return {
        name: artifact.result
        for name, model in compared_encoders(run.model).items()
        if (artifact := ENCODER_COSTS.find(EncoderCostRequest(model=model), store))
    }


def model_of_tokens(config: FieldModelConfig, tokens: int) -> tuple[FieldModel, Tensor]:
    """A one-dimensional model with that many patches and position tokens in total, and a signal for it."""
    patches = tokens * 4 // 5 // 4 * 4
    config = config.model_copy(update={"lps": tokens - patches, "render_width": 0})
    pixels = config.patch * patches
    return untrained(config, 3, (pixels,)), torch.rand(1, 3, pixels)


def untrained(config: FieldModelConfig, channels: int, size: tuple[int, ...]) -> FieldModel:
    model = FieldModel(config, channels, size).eval()
    initialise(model, 0)
    return model


def encoder_cost(config: FieldModelConfig, counts: Sequence[int]) -> EncoderCost:
    """To be measured in a fresh process."""
    _load_libraries(config)
    costs = []
    for tokens in sorted(counts):
        model, x = model_of_tokens(config, tokens)
        encode = partial(model.encode, x)
        mib = memory_of(encode)
        costs.append(TokenCost(tokens=tokens, ms=_median_ms(encode, 3), mib=mib))
    return EncoderCost(costs=costs)


def _load_libraries(config: FieldModelConfig) -> None:
    """Load libraries before measuring, so that their memory is not attributed to the model."""
    small, x = model_of_tokens(config, 64)
    small.encode(x)


def crossing(slow_to_grow: Mapping[int, float], fast_to_grow: Mapping[int, float]) -> float | None:
    """The number of tokens from which on the first is always cheaper, by log-log linear interpolation.

    None: never. The smallest count: at every count.
    """
    counts = sorted(slow_to_grow)
    ahead = [math.log(fast_to_grow[n] / slow_to_grow[n]) for n in counts]
    if ahead[-1] <= 0:
        return None
    last = max((place for place, by in enumerate(ahead) if by <= 0), default=None)
    if last is None:
        return float(counts[0])
    share = -ahead[last] / (ahead[last + 1] - ahead[last])
    low, high = math.log(counts[last]), math.log(counts[last + 1])
    return math.exp(low + share * (high - low))


# --- memory, in MiB


def encoding_memory(config: FieldModelConfig, channels: int, size: tuple[int, ...]) -> float:
    """Beyond the model, to encode one signal. To be measured in a fresh process."""
    model = untrained(config, channels, size)
    _load_libraries(config)
    return memory_of(lambda: model.encode(torch.rand(1, channels, *size)))


def in_fresh_process(measure: Callable[..., T], config: FieldModelConfig, *rest: object) -> T:
    """Where nothing was allocated before. The configuration travels as JSON: choices cannot be pickled."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_with_config, measure, config.model_dump_json(), rest).result()


def _with_config(measure: Callable[..., T], config: str, rest: tuple[object, ...]) -> T:
    with torch.no_grad():
        return measure(FieldModelConfig.model_validate_json(config), *rest)


def memory_of(act: Callable[[], object]) -> float:
    """Peak memory of a call, beyond what the process has before it."""
    before = _of_this_process("VmRSS")
    act()
    return max(0.0, _of_this_process("VmHWM") - before)


def _of_this_process(what: str) -> float:
    """In MiB. On systems other than Linux only the peak is available and is used for both."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith(what))
        return int(line.split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** (20 if sys.platform == "darwin" else 10)


# --- number of steps that fit into a time budget on this machine


class StepBudgetRequest(Config):
    """A run, its number of steps ignored, and a time budget in minutes."""

    run: FieldsRun
    minutes: float


class StepBudget(Config):
    """Measured times and the number of steps that fit. Stored, so that the same command names the same run."""

    step_seconds: float
    evaluation_seconds: float
    steps: int


STEP_BUDGETS = ArtifactKind("field_step_budget", StepBudgetRequest, StepBudget)


def _with_steps(run: FieldsRun, steps: int) -> FieldsRun:
    return run.model_copy(update={"training": run.training.model_copy(update={"steps": steps})})


def fit_minutes(
    run: FieldsRun, minutes: float, store: Store, threads: int | None = None
) -> tuple[FieldsRun, StepBudget]:
    """The run with the largest number of steps that fits into `minutes`."""
    request = StepBudgetRequest(run=_with_steps(run, 1), minutes=minutes)
    budget = STEP_BUDGETS.measure(request, store, lambda: _measure_steps(run, minutes, threads)).result
    return _with_steps(run, budget.steps), budget


def _measure_steps(run: FieldsRun, minutes: float, threads: int | None) -> StepBudget:
    times: list[float] = []
    with _threads(threads or torch.get_num_threads()), preserve_rng_state():
        job, streams = run.job(), Streams.of(run.seed)
        job.setup(streams, torch.device("cpu"))
        optimizer = job.optimizer(run.training) or make_optimizer(job.model, run.training)

        def step() -> None:
            job.step(generator(streams.data, len(times)))[0].backward()
            optimizer.step()
            optimizer.zero_grad()

        while len(times) < 3 or sum(times[2:]) < TIMED_SECONDS:
            times.append(_seconds(step))
        job.model.eval()
        with torch.no_grad():
            evaluation_seconds = _seconds(lambda: job.evaluate(streams))
    step_seconds = statistics.mean(times[2:])
    left = 60 * minutes - evaluation_seconds * (run.training.evaluations + 1)
    steps = max(run.training.evaluations, int(left / step_seconds))
    steps = int(float(f"{steps:.2g}"))  # two digits: the estimate is no more precise
    return StepBudget(step_seconds=step_seconds, evaluation_seconds=evaluation_seconds, steps=steps)


def measure_costs(run: FieldsRun, store: Store, on_progress: Callable[[str], None]) -> None:
    """Measure the costs that the page of a finished run shows, unless the store has them."""
    on_progress("Measuring time and memory of the model")
    COSTS.measure(cost_request(run), store, lambda: measure_cost(store, run))
    for name, model in compared_encoders(run.model).items():
        on_progress(f"Measuring encoding time and memory of {name} by number of tokens")
        ENCODER_COSTS.measure(
            EncoderCostRequest(model=model), store, partial(in_fresh_process, encoder_cost, model, TOKENS)
        )
