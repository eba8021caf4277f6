"""Everything that training needs to go on, in one safetensors file addressed by its checksum."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Protocol

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from whence.config import Config
from whence.store import files
from whence.store.files import FORMAT, CorruptFileError, FormatError, canonical, write_atomically
from whence.store.records import Environment, parse_as
from whence.store.runs import RunFolder
from whence.training.trainer import Progress

NAME = re.compile(r"checkpoint-(\d{9})-[0-9a-f]{16}\.safetensors")
SAVED = 2  # if the newest turns out damaged, the one before is still there


class CheckpointFacts(Config):
    """What a checkpoint holds besides tensors."""

    progress: Progress
    metrics_mark: tuple[int, str]
    """Where the metrics file stood: its size and its last link"""
    created: float
    environment: Environment


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, facts: CheckpointFacts) -> None:
    step = facts.progress.step
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            tensors[f"optimizer/{names[id(parameter)]}/{key}"] = value
    # one entry: safetensors writes several in any order, and the same state must give the same bytes
    metadata = {"facts": canonical({"format": FORMAT, **facts.model_dump(mode="json")})}
    data = safetensors.torch.save({key: _plain(tensor) for key, tensor in tensors.items()}, metadata)
    path = folder / files.addressed_name(f"checkpoint-{step:09d}", data, ".safetensors")
    write_atomically(path, data)
    earlier = [old for old in saved_checkpoints(folder) if old != path]
    for old in earlier:
        if old.name.startswith(f"checkpoint-{step:09d}-") or old in earlier[SAVED - 1 :]:
            old.unlink()


def saved_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints, newest first."""
    return sorted((path for path in folder.iterdir() if NAME.fullmatch(path.name)), reverse=True)


def remove_all(folder: Path) -> None:
    for path in saved_checkpoints(folder):
        path.unlink()


def read(path: Path, model: nn.Module) -> tuple[dict[str, Tensor], CheckpointFacts]:
    """Tensors and facts of a checkpoint; `CorruptFileError` if it is damaged or was taken of another model."""
    state = model.state_dict()
    expected = sum(tensor.nbytes for tensor in state.values())
    if path.stat().st_size > 4 * expected + files.LARGEST_DOCUMENT:  # weights, two moments, and the facts
        raise CorruptFileError(path, "is far larger than the model")
    files.check_addressed(path)
    file = _open(path)
    document: dict[str, Any] = json.loads(file.metadata()["facts"])
    if (format := document.pop("format", "none")) != FORMAT:
        raise FormatError(path, format)
    facts = parse_as(CheckpointFacts, document, path)
    tensors = _tensors(file)
    shapes = {key: value.shape for key, value in weights_in(tensors).items()}
    if shapes != {key: value.shape for key, value in state.items()}:
        raise CorruptFileError(path, "holds another model's tensors")
    return tensors, facts


def restore(tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.load_state_dict(weights_in(tensors))
    for name, parameter in model.named_parameters():
        slots = _under(f"optimizer/{name}/", tensors)
        if slots:  # a parameter that has had no gradient yet has no state
            optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in slots.items()}


def weights_in(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The model's own, of all that a checkpoint holds."""
    return _under("model/", tensors)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def save_weights(path: Path, model: nn.Module) -> None:
    write_atomically(path, safetensors.torch.save({key: _plain(value) for key, value in model.state_dict().items()}))


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().clone()


def weights_of(run: RunFolder) -> dict[str, Tensor]:
    """Of a finished run, after a check that the file is what the run wrote."""
    run.check_pinned(run.weights)
    return _tensors(_open(run.weights))


class _Reader(Protocol):
    """`safetensors.safe_open`, whose stubs state no types."""

    def keys(self) -> list[str]: ...
    def get_tensor(self, name: str) -> Tensor: ...
    def metadata(self) -> dict[str, str]: ...


def _open(path: Path) -> _Reader:
    return safetensors.safe_open(path, "pt")


def _tensors(file: _Reader) -> dict[str, Tensor]:
    return {name: file.get_tensor(name) for name in list(file.keys())}
