"""What states can be collected from: a model of transformers on text, or a run of the arena on its own task."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.config import Config
from whence.errors import UserError, not_allowed
from whence.features.activations.store import SHARD, flags_of
from whence.features.activations.text import HELD_OUT, PROBES, checksum, documents, held_out
from whence.models.capture import blocks, first_tensor
from whence.models.pretrained import PACKAGED, between_ends, ends_of, longest, pretrained
from whence.random import generator
from whence.store.files import digest, file_digest
from whence.store.runs import Store, open_finished_run
from whence.training.checkpoint import weights_of

Precision = Literal["fp32", "bf16"]
RUN = "run:"


class Collection(Config):
    """Which states of which model, on which text."""

    model: str = Field(
        default="minilm",
        description="minilm, smollm2, a directory with a transformers model, or run:ID, a run of the arena",
    )
    layer: int = Field(default=3, ge=0, description="states after so many blocks; 0: what the first is given")
    tokens: int = Field(default=500_000, ge=1, le=10**9, description="states to collect, special tokens not counted")
    context: int = Field(default=128, ge=4, le=8192, description="tokens per sequence, special ones included")
    text: str = Field(default=PROBES, description="probes: the packaged labelled sets; or a text file")
    precision: Precision = Field(default="fp32", description="of the model; states are kept in bf16")
    batch_size: int = Field(default=16, ge=1, le=SHARD, description="sequences at once")


@dataclass(frozen=True)
class Source:
    """Sequences, and the states of a model on them."""

    name: str
    width: int
    about: dict[str, Any]
    """What else tells these states from others"""
    sequences: Callable[[], tuple[Tensor, Tensor, Tensor]]
    """ids (sequences, context), which of them are held out, and flags of positions"""
    states: Callable[[Tensor], Tensor]
    """ids (some, context) → (some, context, width) bfloat16"""


def of_text(spec: Collection) -> Source:
    model, tokenizer = pretrained(spec.model, also="run:ID")
    layer = module_of(model, spec.layer)
    check_context(model, spec.model, spec.context)
    return Source(
        Path(spec.model).name,
        model.config.hidden_size,
        {"checksum": checksum(spec.text), **_weights(spec.model)},
        lambda: _sequences(tokenizer, spec),
        lambda ids: states_of(model, layer, ids, spec.precision),
    )


def _weights(name: str) -> dict[str, str]:
    """Of a user's directory, whose model may be trained on; packaged ones are what their packages are."""
    if name in PACKAGED:
        return {}
    digests = [file_digest(path) for path in sorted(Path(name).glob("*.safetensors"))]
    return {"weights": digest(" ".join(digests).encode())[:16]}


def of_module(
    model: nn.Module, layer: str, ids: Tensor, width: int, call: Callable[[Tensor], Any] | None = None
) -> Source:
    """Any module of any model. ids: (sequences, context), of which the last tenth is held out; call: how the model is
    given some of them, if not as its one argument."""
    if layer not in dict(model.named_modules()):
        raise not_allowed("layer", layer, [name for name, _ in model.named_modules() if name])
    held = torch.arange(len(ids)) >= len(ids) - max(1, len(ids) // HELD_OUT)

    def states(some: Tensor) -> Tensor:
        return states_after(model, layer, lambda: (call or model)(some)).to(torch.bfloat16)

    return Source(type(model).__name__, width, {}, lambda: (ids, held, flags_of(ids.shape[1], ([], []))), states)


def of_run(spec: Collection, store: Store) -> Source:
    """On sequences of the run's own task, as long as it was trained on. Known by what it offers, not by its class:
    instruments do not know each other."""
    with open_finished_run(store, spec.model.removeprefix(RUN)) as (folder, run):
        if not hasattr(run, "task"):
            raise UserError(f"model: {run.id} is no run on a task. Allowed: runs of the arena.", field="model")
        task, length = run.task.build(), run.train_length  # type: ignore[attr-defined]
        model: nn.Module = run.build_model("cpu").eval()  # type: ignore[attr-defined]
        model.load_state_dict(weights_of(folder))
    layers = blocks(model)[-len(model.blocks) :]  # type: ignore[arg-type]
    if not 1 <= spec.layer <= len(layers):
        raise UserError(f"layer: {spec.layer}. Allowed: 1 to {len(layers)}.", field="layer")
    train = -(-spec.tokens // (length - 1))  # the first position is not counted

    def sequences() -> tuple[Tensor, Tensor, Tensor]:
        held = max(1, train // HELD_OUT)
        ids = task.sample(generator("collect", run.id), train + held, length).inputs
        return ids, torch.arange(train + held) >= train, flags_of(length, ([], []))

    positions = task.sample(generator("collect", run.id), 1, length).positions

    def states(ids: Tensor) -> Tensor:
        return states_after(model, layers[spec.layer - 1], lambda: model(ids, positions)).to(torch.bfloat16)

    width = run.model.d_model  # type: ignore[attr-defined]
    return Source(run.id, width, {"context": length, "text": "", "checksum": run.id}, sequences, states)


def check_context(model: nn.Module, name: str, context: int) -> None:
    if context > (longest(model) or context):
        raise UserError(f"context: {name} takes up to {longest(model)} tokens.", field="context")


def module_of(model: nn.Module, layer: int) -> str | None:
    """The module whose output is wanted; None: what the first block is given."""
    count = getattr(model.config, "num_hidden_layers", None)
    names = blocks(model)[:count]
    if layer > len(names):
        raise UserError(f"layer: {layer} is too deep. Allowed: 0 to {len(names)}.", field="layer")
    return names[layer - 1] if layer else None


def _sequences(tokenizer: Any, spec: Collection) -> tuple[Tensor, Tensor, Tensor]:
    """ids (sequences, context), which of them are held out, and flags of positions.

    Documents follow each other, separated by an empty line; those held out make sequences of their own, a tenth as
    many as the others.
    """
    ends = ends_of(tokenizer)
    inner = spec.context - len(ends[0]) - len(ends[1])
    wanted = -(-spec.tokens // inner)
    everything = documents(spec.text)
    parts = []
    for held, count in ((False, wanted), (True, max(1, wanted // HELD_OUT))):
        stream = _stream(tokenizer, [document for document in everything if held_out(document) == held])
        ids = list(itertools.islice(stream, count * inner))
        if len(ids) < count * inner:
            raise UserError(
                f"text: {spec.text!r} holds {len(ids)} {'held-out ' * held}tokens, and {count * inner} are asked for. "
                "Allowed: fewer --tokens, or more text.",
                field="text",
            )
        parts.append(torch.tensor(ids).view(count, inner))
    held = torch.tensor([False] * len(parts[0]) + [True] * len(parts[1]))
    return between_ends(torch.cat(parts), ends), held, flags_of(spec.context, ends)


def _stream(tokenizer: Any, texts: Sequence[str]) -> Iterator[int]:
    for start in range(0, len(texts), 256):
        some = [text + "\n\n" for text in texts[start : start + 256]]
        for ids in tokenizer(some, add_special_tokens=False, verbose=False)["input_ids"]:
            yield from ids


class _Enough(Exception):
    """Raised where the wanted layer has been computed: the rest of the model is not run."""


def states_of(
    model: nn.Module, layer: str | None, ids: Tensor, precision: Precision, real: Tensor | None = None
) -> Tensor:
    """(sequences, context, width) bfloat16, of a transformers model; real: which ids are no padding, where some are."""
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        return states_after(model, layer, lambda: model(input_ids=ids, attention_mask=real)).to(torch.bfloat16)


def states_after(model: nn.Module, layer: str | None, call: Callable[[], Any]) -> Tensor:
    """(sequences, tokens, width) after a module, as the model computes them when it is called; what comes after is not
    run. layer: a module's name; None: what the first block is given."""
    seen: list[Tensor] = []

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        found = first_tensor(output)
        assert found is not None
        seen.append(found)
        raise _Enough

    def before(module: nn.Module, inputs: Any, named: Any) -> None:
        seen.append(inputs[0] if inputs else named["hidden_states"])
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
    return seen[0]
