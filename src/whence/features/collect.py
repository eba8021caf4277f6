"""Hidden states of a model on running text, part by part; a part that is there is never computed again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from safetensors.torch import load_file, save
from torch import Tensor, nn

from whence.errors import UserError
from whence.features.activations import SHARD, flags_of, folder, shard_path
from whence.features.text import HELD_OUT, PROBES, checksum, documents, held_out
from whence.models.pretrained import between_ends, ends_of, longest, pretrained
from whence.models.taps import blocks, first_tensor
from whence.runs.files import Corrupt, read_sealed, write_atomically, write_sealed
from whence.runs.store import Store
from whence.spec import Spec

Tell = Callable[[int, int], None]
Precision = Literal["fp32", "bf16"]


class Collection(Spec):
    """Which states of which model, on which text."""

    model: str = Field(default="minilm", description="minilm, smollm2, or a directory with a transformers model")
    layer: int = Field(default=3, ge=0, description="states after so many blocks; 0: what the first is given")
    tokens: int = Field(default=500_000, ge=1, le=10**9, description="states to collect, special tokens not counted")
    context: int = Field(default=128, ge=4, le=8192, description="tokens per sequence, special ones included")
    text: str = Field(default=PROBES, description="probes: the packaged labelled sets; or a text file")
    precision: Precision = Field(default="fp32", description="of the model; states are kept in bf16")
    batch_size: int = Field(default=16, ge=1, le=SHARD, description="sequences at once")

    @property
    def default_name(self) -> str:
        return f"{Path(self.model).name}-{self.layer}"


def collect(spec: Collection, store: Store, name: str = "", tell: Tell = lambda done, of: None) -> Path:
    """Where they are. What a kill or Ctrl-C left is gone on with; other states under the same name are refused."""
    path = folder(store, name or spec.default_name)
    model, tokenizer = pretrained(spec.model)
    layer = module_of(model, spec.layer)
    check_context(model, spec.model, spec.context)
    asked = {**spec.model_dump(), "checksum": checksum(spec.text), "threads": torch.get_num_threads()}
    begun = _begun(path, asked)
    if begun is None:
        ids, held, flags = _sequences(tokenizer, spec)
        store.prepare(2 * ids.numel() * model.config.hidden_size)
        path.mkdir(parents=True, exist_ok=True)
        about = {"ids": ids.int(), "held": held, "flags": flags}
        write_atomically(path / "tokens.safetensors", save(about))
        begun = {**asked, "sequences": len(ids), "width": model.config.hidden_size}
        write_sealed(path / "spec.json", begun)
    else:
        ids = load_file(path / "tokens.safetensors")["ids"]
    parts = list(enumerate(ids.long().split(SHARD)))
    with torch.no_grad(), thread_count(begun["threads"]):
        for index, part in parts:
            tell(index, len(parts))
            if not shard_path(path, index).exists():
                states = torch.cat(
                    [states_of(model, layer, some, spec.precision) for some in part.split(spec.batch_size)]
                )
                write_atomically(shard_path(path, index), save({"states": states}))
    tell(len(parts), len(parts))
    return path


def _begun(path: Path, asked: dict[str, Any]) -> dict[str, Any] | None:
    try:
        begun = read_sealed(path / "spec.json")
    except FileNotFoundError:
        return None
    except Corrupt as damage:
        raise UserError(
            f"name: {path.name!r} is damaged ({damage.reason}). Remove {str(path)!r}.", field="name"
        ) from None
    other = [key for key in asked if key != "threads" and begun.get(key) != asked[key]]
    if other:
        was = ", ".join(f"{key} {begun.get(key)!r}" for key in other)
        raise UserError(f"name: {path.name!r} holds other states ({was}). Choose another --name.", field="name")
    return begun


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
    """(sequences, context, width) bfloat16; real: which ids are no padding, where some are."""
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        return states_after(model, layer, ids, real).to(torch.bfloat16)


def states_after(model: nn.Module, layer: str | None, ids: Tensor, real: Tensor | None = None) -> Tensor:
    """(sequences, tokens, width) as the model computes them; what comes after is not run. layer: of `module_of`."""
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
        model(input_ids=ids, attention_mask=real)
    except _Enough:
        pass
    finally:
        handle.remove()
    return seen[0]


@contextmanager
def thread_count(count: int) -> Iterator[None]:
    """As many as it was begun with: another number would change the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
