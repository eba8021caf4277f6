"""Sources of activations: a transformers model on text, or a run of the arena on its own task."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue
from torch import Tensor, nn

from whence.errors import UserError, not_allowed
from whence.features.activations.store import ActivationSite, Precision, flags_of
from whence.features.activations.text import HELD_OUT, checksum, documents, held_out
from whence.features.config import CollectConfig
from whence.models.capture import blocks, first_tensor
from whence.models.pretrained import between_ends, check_ids, content_of, ends_of, longest, pretrained
from whence.models.sequence import SequenceRun
from whence.random import generator
from whence.store.files import digest
from whence.store.runs import Store, open_finished_run
from whence.store.tensors import tensor_bytes
from whence.training.checkpoint import weights_of

RUN = "run:"
AT_ONCE = 2**20
"""Characters that are tokenized at a time, unless a document is longer"""


@dataclass(frozen=True)
class ActivationSource:
    """Sequences, and the activations of a model on them."""

    name: str
    d_in: int
    sequences: Callable[[], tuple[Tensor, Tensor, Tensor]]
    """ids (sequences, context_size), which of them are held out, and flags of positions"""
    activations: Callable[[Tensor], Tensor]
    """ids (some, context_size) → (some, context_size, d_in) bfloat16"""
    site: ActivationSite | None = None
    text: str = ""
    about: dict[str, JsonValue] = field(default_factory=dict)
    """Further identity of the activations, such as checksums"""


def of_text(config: CollectConfig) -> ActivationSource:
    model, tokenizer = pretrained(config.model, also="run:ID")
    layer = module_of(model, config.layer)
    check_context(model, config.model, config.context_size)
    site = ActivationSite(**{name: getattr(config, name) for name in ActivationSite.model_fields})
    identity: dict[str, JsonValue] = {"tokens": config.tokens, "batch_size": config.batch_size}
    return ActivationSource(
        Path(config.model).name,
        model.config.hidden_size,
        lambda: _sequences(tokenizer, config),
        lambda ids: activations_of(model, layer, ids, config.precision),
        site,
        config.text,
        {**identity, "checksum": checksum(config.text), "weights": content_of(config.model)},
    )


def of_module(
    model: nn.Module, layer: str, ids: Tensor, d_in: int, call: Callable[[Tensor], Any] | None = None
) -> ActivationSource:
    """Activations of any module of any model.

    ids: (sequences, context_size); the last tenth is held out.
    call: calls the model with some of the ids; by default, `model(ids)`.
    """
    if layer not in dict(model.named_modules()):
        raise not_allowed("layer", layer, [name for name, _ in model.named_modules() if name])
    held = torch.arange(len(ids)) >= len(ids) - max(1, len(ids) // HELD_OUT)

    def activations(some: Tensor) -> Tensor:
        return activations_after(model, layer, lambda: (call or model)(some)).to(torch.bfloat16)

    flags = flags_of(ids.shape[1], ([], []))
    content = digest(tensor_bytes({**model.state_dict(), " ids": ids}, of=layer))[:16]
    identity: dict[str, JsonValue] = {"checksum": content}
    return ActivationSource(type(model).__name__, d_in, lambda: (ids, held, flags), activations, about=identity)


def of_run(config: CollectConfig, store: Store) -> ActivationSource:
    """Activations of a run of the arena, on sequences of its task at the training length."""
    with open_finished_run(store, config.model.removeprefix(RUN)) as (folder, run):
        if not isinstance(run, SequenceRun):
            raise UserError(f"model: expected a run of the arena, got {run.id}, a run of {run.kind}.")
        task = run.task.build()
        model = run.build_model("cpu").eval()
        model.load_state_dict(weights_of(folder))
    layers = blocks(model)[-len(model.blocks) :]
    if not 1 <= config.layer <= len(layers):
        raise UserError(f"layer: expected 1 to {len(layers)}, got {config.layer}.")
    positions = task.sample(generator("collect", run.id), 1, run.train_length).positions
    length = positions.shape[1]  # longer than train_length for tasks with a prompt
    train = -(-config.tokens // (length - 1))  # the first position is not counted

    def sequences() -> tuple[Tensor, Tensor, Tensor]:
        held = max(1, train // HELD_OUT)
        ids = task.sample(generator("collect", run.id), train + held, run.train_length).inputs
        return ids, torch.arange(train + held) >= train, flags_of(length, ([], []))

    def activations(ids: Tensor) -> Tensor:
        return activations_after(model, layers[config.layer - 1], lambda: model(ids, positions)).to(torch.bfloat16)

    site = ActivationSite(model=f"{RUN}{run.id}", layer=config.layer, context_size=length, precision=config.precision)
    identity: dict[str, JsonValue] = {"tokens": config.tokens, "batch_size": config.batch_size}
    return ActivationSource(run.id, run.model.d_model, sequences, activations, site, about=identity)


def check_context(model: nn.Module, name: str, context_size: int) -> None:
    if context_size > (longest(model) or context_size):
        raise UserError(f"context_size: {name} takes up to {longest(model)} tokens, got {context_size}. Reduce it.")


def module_of(model: nn.Module, layer: int) -> str | None:
    """Name of the module whose output is the activations; None for the input of the first block."""
    count = getattr(model.config, "num_hidden_layers", None)
    names = blocks(model)[:count]
    if layer > len(names):
        raise UserError(f"layer: {layer} is too deep: expected 0 to {len(names)}, the number of blocks.")
    return names[layer - 1] if layer else None


def _sequences(tokenizer: Any, config: CollectConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Token ids (sequences, context_size), which sequences are held out, and flags of positions.

    Documents are concatenated, separated by an empty line. Held-out documents have their own sequences, a tenth of
    the number of the others.
    """
    ends = ends_of(tokenizer)
    inner = config.context_size - len(ends[0]) - len(ends[1])
    wanted = -(-config.tokens // inner)
    everything = documents(config.text)
    parts = []
    for held, count in ((False, wanted), (True, max(1, wanted // HELD_OUT))):
        stream = _stream(tokenizer, [document for document in everything if held_out(document) == held])
        ids = list(itertools.islice(stream, count * inner))
        if len(ids) < count * inner:
            raise UserError(
                f"text: expected {count * inner} {'held-out ' * held}tokens in {config.text!r}, got {len(ids)}. Pass "
                "fewer --tokens, or more text."
            )
        parts.append(torch.tensor(ids).view(count, inner))
    held = torch.tensor([False] * len(parts[0]) + [True] * len(parts[1]))
    return between_ends(torch.cat(parts), ends), held, flags_of(config.context_size, ends)


def _stream(tokenizer: Any, texts: Sequence[str]) -> Iterator[int]:
    some: list[str] = []
    for index, text in enumerate(texts):
        some.append(text + "\n\n")
        if len(some) == 256 or sum(map(len, some)) > AT_ONCE or index == len(texts) - 1:
            for ids in tokenizer(some, add_special_tokens=False, verbose=False)["input_ids"]:
                yield from ids
            some.clear()


class _Enough(Exception):
    """Raised after the requested layer, to skip the rest of the model."""


def activations_of(
    model: nn.Module, layer: str | None, ids: Tensor, precision: Precision, real: Tensor | None = None
) -> Tensor:
    """(sequences, context_size, d_in) bfloat16 of a transformers model. real: which ids are not padding."""
    check_ids(model, ids)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        return activations_after(model, layer, lambda: model(input_ids=ids, attention_mask=real)).to(torch.bfloat16)


def activations_after(model: nn.Module, layer: str | None, call: Callable[[], Any]) -> Tensor:
    """Activations (sequences, tokens, d_in) after a module. The rest of the model is not run.

    layer: name of the module; None for the input of the first block.
    """
    captured: list[Tensor] = []

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        tensor = first_tensor(output)
        assert tensor is not None
        captured.append(tensor)
        raise _Enough

    def before(module: nn.Module, inputs: Any, named: Any) -> None:
        captured.append(inputs[0] if inputs else named["hidden_states"])
        raise _Enough

    if layer is None:
        handle = model.get_submodule(blocks(model)[0]).register_forward_pre_hook(before, with_kwargs=True)
    else:
        handle = model.get_submodule(layer).register_forward_hook(after)
    try:
        call()
    except _Enough:
        pass
    finally:
        handle.remove()
    return captured[0]
