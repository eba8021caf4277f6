"""What a model costs: time to encode and decode, peak memory in a fresh process, steps per minute."""

from __future__ import annotations

import functools
import math
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from whence.fields.decode import Output, decode, enlarge
from whence.fields.model import FieldModel, FieldSpec
from whence.fields.run import FieldsRun
from whence.models.init import initialise
from whence.random import Streams, generator, preserve_rng_state
from whence.store.files import CorruptFileError, canonical, digest, read_sealed, write_sealed
from whence.store.runs import Store
from whence.training.optim import make_optimizer

REPEATS = 15
TOKENS = (256, 512, 1024, 2048, 4096)
"""Patches and position tokens together, one position token for every four patches"""
TRANSFORMER: dict[str, Any] = {"mixer": "attention", "encoding": "rope"}
WIDER = 1.75
"""By so much more of an MLP, a block of attention is as large as one of bidirectional Mamba"""
T = TypeVar("T")


def milliseconds(model: FieldModel) -> dict[str, float]:
    """To encode one signal, and to decode it at its own size: medians on one thread, which neighbours disturb least."""
    x = torch.rand(1, model.channels, *model.size, generator=torch.Generator().manual_seed(0))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            encoded = model.encode(x)
            return {
                "encode": _median(lambda: model.encode(x)),
                "decode": _median(lambda: decode(model, x, model.size, "field", encoded)),
            }
    finally:
        torch.set_num_threads(threads)


def _median(act: Callable[[], Any], repeats: int = REPEATS) -> float:
    act()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        act()
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times)


# --- against the number of tokens


def model_of(fields: Mapping[str, Any], tokens: int) -> tuple[FieldModel, Tensor]:
    """A model of one axis whose patches and position tokens together are that many, and a signal for it."""
    patches = tokens * 4 // 5 // 4 * 4
    spec = FieldSpec.read({"patch": 4, **fields, "lps": tokens - patches, "render_width": 0})
    model = spec.build(3, (spec.patch * patches,)).eval()
    initialise(model, 0)
    return model, torch.rand(1, 3, spec.patch * patches)


def beside_a_transformer(spec: FieldSpec, name: str) -> dict[str, dict[str, Any]]:
    """Fields of a model's encoder, and where it is another, of a Transformer of about its size."""
    kept = ("mixer", "encoding", "d_model", "layers", "heads", "mlp_ratio")
    mine = {field: value for field, value in spec.model_dump().items() if field in kept}
    if spec.mixer.name == "attention" or spec.d_model % (2 * spec.heads):
        return {name: mine}
    return {name: mine, "Transformer": {**mine, **TRANSFORMER, "mlp_ratio": spec.mlp_ratio + WIDER}}


def by_tokens(fields: Mapping[str, Any], counts: Sequence[int] = TOKENS) -> dict[int, dict[str, float]]:
    """By number of tokens: milliseconds to encode, and MiB needed for it beyond the model. In a process of its own."""
    return in_a_fresh_process(_by_tokens, dict(fields), sorted(counts))


def _by_tokens(fields: dict[str, Any], counts: Sequence[int]) -> dict[int, dict[str, float]]:
    found = {}
    with torch.no_grad():
        small, x = model_of(fields, 64)
        small.encode(x)  # what is loaded once counts for none of them
        for tokens in counts:
            model, x = model_of(fields, tokens)
            before = _resident()
            elapsed = _median(functools.partial(model.encode, x), 3)
            found[tokens] = {"ms": elapsed, "mib": max(0.0, _peak() - before)}
    return found


def crossing(slow_to_grow: Mapping[int, float], fast_to_grow: Mapping[int, float]) -> float | None:
    """From how many tokens on the first is cheaper for good, between the counts by straight lines over logarithms.

    None: never. The smallest count: throughout.
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


# --- memory


def rendering_peak(spec: FieldSpec, given: tuple[int, int], asked: tuple[int, int], output: Output) -> float:
    """MiB beyond the model, the result included, that enlarging a picture needs. In a process of its own."""
    return in_a_fresh_process(_rendering_peak, spec.model_dump(), given, asked, output)


def _rendering_peak(spec: dict[str, Any], given: tuple[int, int], asked: tuple[int, int], output: Output) -> float:
    model = FieldSpec.read(spec).build(3, (32, 32)).eval()
    initialise(model, 0)
    enlarge(model, torch.rand(3, 8, 8), (8, 8), output)  # what is loaded once is part of the model
    before = _resident()
    enlarge(model, torch.rand(3, *given), asked, output)
    return _peak() - before


def encoding_peak(spec: FieldSpec, channels: int, size: tuple[int, ...]) -> float:
    """MiB beyond the model to encode one signal. In a process of its own."""
    return in_a_fresh_process(_encoding_peak, spec.model_dump(), channels, size)


def _encoding_peak(spec: dict[str, Any], channels: int, size: tuple[int, ...]) -> float:
    model = FieldSpec.read(spec).build(channels, size).eval()
    initialise(model, 0)
    with torch.no_grad():
        small, x = model_of(spec, 64)
        small.encode(x)  # what is loaded once is part of the model
        before = _resident()
        model.encode(torch.rand(1, channels, *size))
    return max(0.0, _peak() - before)


def in_a_fresh_process(act: Callable[..., T], *arguments: Any) -> T:
    """Where nothing was allocated before."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(act, *arguments).result()


def _resident() -> float:
    return _of_this_process("VmRSS")


def _peak() -> float:
    return _of_this_process("VmHWM")


def _of_this_process(what: str) -> float:
    """MiB. Elsewhere than on Linux only the peak is known, which then stands for both."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith(what))
        return int(line.split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** (20 if sys.platform == "darwin" else 10)


SECONDS = 4.0
"""Of steps that are timed, after two that warm up."""


def for_minutes(run: FieldsRun, minutes: float, store: Store, threads: int | None = None) -> tuple[FieldsRun, str]:
    """The run with as many steps as fit, and how that was found, in words.

    The answer is kept in the store: the same question means the same run, to be gone on with or found finished.
    """
    question = {"run": {**run.document(), "training": {**run.training.model_dump(), "steps": None}}, "minutes": minutes}
    name, known = digest(canonical(question)), _known(store)
    steps, how = known.get(name), "as worked out before"
    if steps is None:
        per_step, per_evaluation = pace(run, threads)
        left = 60 * minutes - per_evaluation * (run.training.evaluations + 1)
        steps = max(run.training.evaluations, int(left / per_step))
        steps = int(float(f"{steps:.2g}"))  # rounded: the last steps mean nothing, the number should read well
        how = f"{1000 * per_step:.0f} ms each"
        write_sealed(store.paces, {**known, name: steps})
    timed = type(run).read({**run.model_dump(), "training": {**run.training.model_dump(), "steps": steps}})
    return timed, f"{steps} steps in about {minutes:g} minutes ({how})"


def _known(store: Store) -> dict[str, int]:
    try:
        return read_sealed(store.paces)
    except (OSError, CorruptFileError):  # then it is measured anew
        return {}


def pace(run: FieldsRun, threads: int | None = None) -> tuple[float, float]:
    """Seconds per step of training, and per evaluation."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        with preserve_rng_state():
            return _steps(run)
    finally:
        torch.set_num_threads(before)


def _steps(run: FieldsRun) -> tuple[float, float]:
    job, streams = run.job(), Streams.of(run.seed)
    job.setup(streams, torch.device("cpu"))
    optimizer = job.optimizer(run.training) or make_optimizer(job.model, run.training)
    times: list[float] = []
    while len(times) < 3 or sum(times[2:]) < SECONDS:
        started = time.perf_counter()
        job.step(generator(streams.data, len(times)))[0].backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - started)
    job.model.eval()
    with torch.no_grad():
        started = time.perf_counter()
        job.evaluate(streams)
    return sum(times[2:]) / len(times[2:]), time.perf_counter() - started
