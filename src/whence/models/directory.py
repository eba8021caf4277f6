"""Directories with a model of transformers. Whoever wrote them, nothing in them is executed, and nothing of the size
that they claim is built before their files agree with it.

Read are config.json, safetensors files and the tokenizer's files. `prepared` hands these to the library in a folder
that holds nothing else: it would also follow adapters, other formats and code that lie beside them.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import JsonValue
from torch import Tensor, nn
from torch.nn.modules import module as registration

from whence.errors import UserError
from whence.inputs import read_document, read_input, walk
from whence.models.weights import FLOATS, StoredTensor, check_memory, stored_tensors

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
TOKENIZER_STARTS, TOKENIZER_ENDS = ("tokenizer", "vocab", "merges", "spiece", "tekken"), (".model", ".tiktoken")
TOKENIZER_SUFFIXES = (".json", ".txt", ".bpe", *TOKENIZER_ENDS)
ADDED_TOKENS = ("special_tokens_map.json", "added_tokens.json")
LARGEST_TOKENIZER = 2**26
"""Bytes of a file"""
MOST_FILES = 1000
LARGEST_COUNT, LARGEST_NUMBER = 10**6, 2**31
"""Whole numbers of a configuration: those that count layers, heads, labels, and all others"""
COUNTS = re.compile(r"^(n|num)_|layer|depth|block|expert|label")
MOST_PARAMETERS = 10_000
"""Tensors that a model may be made of: those of a thousand layers"""
SPARE_NUMBERS, SPARE_TABLES = 2**22, 2**27
"""What a model may hold beyond its stored weights: a pooler or a head; tables that follow from the configuration"""
PREFIX = "whence-model-"
"""Of the names of prepared folders"""
OTHER_FILES = ("_file", "_files")
CODE = ("auto_map", "transformers_weights", "fusion_config", "attn_implementation", "experts_implementation")
BACKBONES = ("backbone", "use_pretrained_backbone", "use_timm_backbone")


def read_config(folder: Path) -> dict[str, JsonValue]:
    """Of config.json; whole numbers are bounded, whatever they are called."""
    path = folder / CONFIG
    config = read_document(path, "model")
    for name, value in walk(config):
        most = LARGEST_COUNT if COUNTS.search(name) else LARGEST_NUMBER
        if isinstance(value, int) and abs(value) > most:
            raise UserError(f"model: {name[:80]} in {str(path)!r} is too large. Allowed: up to {most}.")
    return config


def weight_files(folder: Path) -> list[Path]:
    """The ones that transformers would read: one file, or those of the index, all in the folder itself."""
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if not (folder / INDEX).exists():
        raise UserError(
            f"model: {str(folder)!r} holds no {WEIGHTS} (pickled weights, as in pytorch_model.bin, are never loaded: "
            "they can run code)."
        )
    places = read_document(folder / INDEX, "model").get("weight_map")
    names = set(map(str, places.values())) if isinstance(places, dict) else set()
    strange = sorted(name for name in names if Path(name).name != name or Path(name).suffix != ".safetensors")
    if strange or not 0 < len(names) <= MOST_FILES:
        found = repr(strange[0][:200]) if strange else f"{len(names)} files"
        raise UserError(
            f"model: {INDEX} names {found}. Allowed: up to {MOST_FILES} .safetensors files in the same directory."
        )
    return [folder / name for name in sorted(names)]


def model_files(folder: Path) -> list[Path]:
    """All that is read of a directory."""
    names = [name for name in (INDEX, *ADDED_TOKENS) if (folder / name).exists()]
    return [folder / CONFIG, *weight_files(folder), *(folder / name for name in [*names, *tokenizer_files(folder)])]


def stored_weights(folder: Path) -> dict[str, StoredTensor]:
    """By name, what the files hold."""
    return {name: one for path in weight_files(folder) for name, one in stored_tensors(path, "model").items()}


@contextmanager
def prepared(folder: Path, *, weights: bool) -> Iterator[Path]:
    """For transformers, a folder with the checked configuration and either weights or tokenizer.

    Inside, a model may be built on the device meta, up to the size of its stored weights.
    """
    config = read_config(folder)
    if "quantization_config" in config:
        raise UserError("model: quantized weights are not supported. Allowed: floating-point numbers.")
    # what begins with `_` is the library's own state, among it names of code
    config = {name: inner for name, inner in config.items() if not name.startswith("_")}
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        clean = Path(name)
        (clean / CONFIG).write_text(json.dumps(_without(config, (*CODE, *BACKBONES))))
        if not weights:
            _copy_tokenizer(folder, clean)
            yield clean
            return
        stored = stored_weights(folder)
        for path in {one.path for one in stored.values()}:
            (clean / path.name).symlink_to(path.resolve())
        if WEIGHTS not in os.listdir(clean):
            (clean / INDEX).write_text(json.dumps(read_document(folder / INDEX, "model")))
        with _no_larger_than(stored):
            yield clean


def tokenizer_files(folder: Path) -> list[str]:
    """Names of those that a tokenizer can be made of."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith(TOKENIZER_SUFFIXES)]
    except OSError as error:
        raise UserError(f"model: {str(folder)!r} cannot be read ({error.strerror}).") from None
    return sorted(name for name in names if name.startswith(TOKENIZER_STARTS) or name.endswith(TOKENIZER_ENDS))


def _copy_tokenizer(folder: Path, clean: Path) -> None:
    names = [*tokenizer_files(folder)[:MOST_FILES], *(name for name in ADDED_TOKENS if (folder / name).exists())]
    for name in names:
        if name == TOKENIZER_CONFIG:  # it may name files elsewhere, and is free to pass any argument
            document = _without(read_document(folder / name, "model"), ("auto_map", "init_inputs", "name_or_path"))
            (clean / name).write_text(json.dumps(document))
        else:
            (clean / name).write_bytes(read_input(folder / name, "model", LARGEST_TOKENIZER))


def _without(document: JsonValue, names: Collection[str]) -> JsonValue:
    """Fields of these names are left out wherever they stand, and those that name files."""
    if isinstance(document, list):
        return [_without(inner, names) for inner in document]
    if not isinstance(document, dict):
        return document
    return {
        name: _without(inner, names)
        for name, inner in document.items()
        if name not in names and not name.endswith(OTHER_FILES)
    }


@contextmanager
def _no_larger_than(stored: Mapping[str, StoredTensor]) -> Iterator[None]:
    """Whatever the fields of a configuration are called: its model is built without memory, and ended where it has
    more parameters than the files hold."""
    for name, one in stored.items():
        if name.endswith("weight") and one.dtype not in FLOATS:
            raise UserError(f"model: {name} in {one.path.name} is of type {one.dtype}. Allowed: {', '.join(FLOATS)}.")
    shapes = [one.shape for one in stored.values()]
    check_memory(shapes, "model")
    there = sum(map(math.prod, shapes))
    found = {"tensors": 0, "parameters": 0, "tables": 0}

    def count(_module: nn.Module, _name: str, tensor: Tensor | None) -> None:
        if tensor is None or not tensor.is_meta:
            return
        found["tensors"] += 1
        found["parameters" if isinstance(tensor, nn.Parameter) else "tables"] += tensor.numel()
        if (
            found["tensors"] > min(2 * len(stored) + 100, MOST_PARAMETERS)
            or found["parameters"] > 2 * there + SPARE_NUMBERS
            or found["tables"] > SPARE_TABLES
        ):
            raise UserError(
                f"model: {CONFIG} describes a model that is larger than its weights, which are {len(stored)} tensors "
                f"of {there} numbers."
            )

    handles = [
        registration.register_module_parameter_registration_hook(count),
        registration.register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
