"""Everything needed to resume training, in one safetensors file addressed by its checksum."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor, nn

from whence.config import Config
from whence.store import disk, files
from whence.store.disk import CorruptFileError
from whence.store.files import Mark
from whence.store.records import Environment, parse_as
from whence.store.runs import RunFolder
from whence.store.tensors import all_tensors, open_tensors, tensor_bytes
from whence.training.trainer import Progress

NAME = re.compile(r"checkpoint-(\d{9})-[0-9a-f]{16}\.safetensors")
SAVED = 2  # if the newest is damaged, the one before it is used


class CheckpointFacts(Config):
    """What a checkpoint holds besides tensors."""

    progress: Progress
    metrics_mark: Mark
    """Size and last link of the metrics file at that time"""
    created: float
    environment: Environment


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, facts: CheckpointFacts) -> None:
    step = facts.progress.step
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            tensors[f"optimizer/{names[id(parameter)]}/{key}"] = value
    data = tensor_bytes(tensors, folder.name, facts.model_dump(mode="json"))
    path = folder / files.addressed_name(f"checkpoint-{step:09d}", data, ".safetensors")
    disk.write_atomically(path, data)
    earlier = [old for old in saved_checkpoints(folder) if old != path]
    for old in earlier:
        if old.name.startswith(f"checkpoint-{step:09d}-") or old in earlier[SAVED - 1 :]:
            disk.remove(old)


def saved_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints, newest first."""
    return sorted((path for path in disk.entries(folder) if NAME.fullmatch(path.name)), reverse=True)


def remove_all(folder: Path) -> None:
    for path in saved_checkpoints(folder):
        disk.remove(path)


def read(path: Path, model: nn.Module) -> tuple[dict[str, Tensor], CheckpointFacts]:
    """Tensors and facts of a checkpoint; `CorruptFileError` if it is damaged or belongs to another model."""
    state = model.state_dict()
    expected = sum(tensor.nbytes for tensor in state.values())
    disk.open_file(path, 4 * expected + disk.LARGEST_DOCUMENT).close()  # weights, two moments, and the facts
    files.check_addressed(path)
    file, document = open_tensors(path, path.parent.name)
    facts, tensors = parse_as(CheckpointFacts, document, path), all_tensors(file)
    shapes = {key: value.shape for key, value in weights_in(tensors).items()}
    if shapes != {key: value.shape for key, value in state.items()}:
        raise CorruptFileError(path, "expected the tensors of this model, found those of another")
    return tensors, facts


def check_metrics(folder: Path, facts: CheckpointFacts) -> None:
    """Raise `CorruptFileError` unless the metrics begin as they were when the checkpoint was saved."""
    path = folder / "metrics.jsonl"
    if files.read_chained(path, upto=facts.metrics_mark[0])[1] != facts.metrics_mark:
        raise CorruptFileError(path, "does not match the checkpoint")


def check(path: Path) -> None:
    """Raise `CorruptFileError` if a checkpoint is damaged, or the metrics do not reach it. No model is needed."""
    files.check_addressed(path)
    document = open_tensors(path, path.parent.name)[1]
    check_metrics(path.parent, parse_as(CheckpointFacts, document, path))


def restore(tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.load_state_dict(weights_in(tensors))
    for name, parameter in model.named_parameters():
        slots = _under(f"optimizer/{name}/", tensors)
        if slots:  # a parameter that has had no gradient yet has no state
            optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in slots.items()}


def weights_in(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the model, without the state of the optimizer."""
    return _under("model/", tensors)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def save_weights(run: RunFolder, model: nn.Module) -> None:
    disk.write_atomically(run.weights, tensor_bytes(model.state_dict(), run.id))


def weights_of(run: RunFolder) -> dict[str, Tensor]:
    """The weights of a finished run, after a check of the file against its checksum."""
    run.check_digest(run.weights)
    return all_tensors(open_tensors(run.weights, run.id)[0])
