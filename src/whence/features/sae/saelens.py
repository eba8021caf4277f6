"""The format of SAELens 6: a directory with cfg.json and sae_weights.safetensors.

    export(model, run, folder)      write an autoencoder of whence, if SAELens has a matching architecture
    imported(folder)                read an autoencoder for evaluation

SAELens does not support position-dependent parts: autoencoders with such parts are refused.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ConfigDict, Field, JsonValue, ValidationInfo, field_validator
from safetensors.torch import save
from torch import Tensor

from whence.config import Config
from whence.errors import UserError
from whence.features.data import StoredActivations
from whence.features.run import FeaturesRun
from whence.features.sae.autoencoder import Autoencoder
from whence.features.sae.dictionary import Dictionary
from whence.features.sae.sparsity import L1, BatchTopK, JumpReLU, Sparsity, TopK
from whence.inputs import file_digest, read_document
from whence.kernels.sparse_code import top_k
from whence.models.weights import read_floats, stored_tensors
from whence.store.disk import write_atomically
from whence.store.files import digest

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
FORMAT = "6.54.12"
"""The version that exports are written for."""
ANY = 2**31
"""Context size of an autoencoder whose metadata have none."""
LARGEST = 2**24
"""Largest d_in and d_sae that are accepted."""


class Metadata(Config):
    """What an autoencoder is of; none of it changes what it computes."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    sae_lens_version: str = Field(default="", validate_default=True)
    context_size: int | None = Field(default=None, ge=1, le=2**31)

    @field_validator("sae_lens_version")
    @classmethod
    def _of_this_format(cls, version: str) -> str:
        """Before version 6, activations were named elsewhere: a top-k would be taken for a ReLU."""
        major = version.split(".")[0]
        if not major.isdecimal() or int(major) < 6:
            raise ValueError(
                f"{version or 'none'}. Allowed: 6 and later, which load what earlier ones saved, and save it anew."
            )
        return version


class SAELensConfig(Config):
    """cfg.json, as far as it says what is computed. Defaults are SAELens'."""

    model_config = ConfigDict(extra="ignore")

    architecture: Literal["standard", "topk", "jumprelu"]
    d_in: int = Field(ge=1, le=LARGEST)
    d_sae: int = Field(ge=1, le=LARGEST)
    k: int | None = Field(default=None, ge=1, validate_default=True)
    dtype: str = "float32"
    device: str = "cpu"
    apply_b_dec_to_input: bool = True
    normalize_activations: Literal["none"] = "none"
    reshape_activations: Literal["none"] = "none"
    rescale_acts_by_decoder_norm: bool = False
    metadata: Metadata = Field(default_factory=lambda: Metadata.read({}))

    @field_validator("k")
    @classmethod
    def _fits(cls, k: int | None, about: ValidationInfo) -> int | None:
        d_sae = about.data.get("d_sae", LARGEST)
        if about.data.get("architecture") == "topk" and not (k and k <= d_sae):
            raise ValueError(f"{k}. Allowed: 1 to {d_sae}, the number of features.")
        return k

    def document(self) -> dict[str, Any]:
        return self.model_dump(exclude={"k"} if self.k is None else None)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the weights."""
        shapes: dict[str, tuple[int, ...]] = {"W_enc": (self.d_in, self.d_sae), "b_enc": (self.d_sae,)}
        shapes |= {"W_dec": (self.d_sae, self.d_in), "b_dec": (self.d_in,)}
        return {**shapes, "threshold": (self.d_sae,)} if self.architecture == "jumprelu" else shapes


# --- export


def export(model: Autoencoder, run: FeaturesRun, folder: Path, hook: str = "") -> SAELensConfig:
    """Write an autoencoder, and return its config. hook: hook name in SAELens, e.g. "blocks.14.hook_resid_post"."""
    weights, sparsity = _folded(model, _one_mean(model)), model.sparsity
    shape = {"d_in": model.d_in, "d_sae": model.d_sae, "metadata": _metadata(model, run, hook)}
    if isinstance(sparsity, L1):
        config = SAELensConfig.read({"architecture": "standard", **shape})
    elif isinstance(sparsity, TopK):
        config = SAELensConfig.read({"architecture": "topk", "k": min(sparsity.k, model.d_sae), **shape})
    else:
        config = SAELensConfig.read({"architecture": "jumprelu", **shape})
        weights["threshold"] = _threshold(sparsity).expand(model.d_sae)
    if os.path.exists(folder / CONFIG) and not os.path.exists(folder / WEIGHTS):
        raise UserError(
            f"out: expected a new directory or an earlier export, got {str(folder)!r}, whose {CONFIG} is something "
            "else. Pass another directory."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).unlink(missing_ok=True)  # a folder without it is not taken for a whole one
        write_atomically(folder / WEIGHTS, save({name: value.cpu().contiguous() for name, value in weights.items()}))
        write_atomically(folder / CONFIG, json.dumps(config.document(), indent=1).encode())
    except OSError as error:
        raise UserError(f"out: {str(folder)!r} cannot be written ({error.strerror}).") from None
    return config


def _one_mean(model: Autoencoder) -> Tensor:
    """(d_in,), once it is clear that nothing depends on position."""
    config = model.config
    for part, chosen, allowed, why in (
        ("encoder", config.encoder, "shared", "depends on position"),
        ("norm", config.norm, "none", "acts on all features together"),
        ("mask", config.mask, "none", "depends on position"),
    ):
        if chosen.name != allowed:
            raise UserError(f"{part}: {chosen} {why}, which SAELens does not carry. Allowed: {allowed}.")
    table = model.centering.table
    table = table[[model.context_size // 2]] if config.position_ablated else table
    if (table != table[0]).any():
        raise UserError(
            f"centering: {config.centering} depends on position, which SAELens does not carry: the table would have to "
            "be subtracted from the activations first. Allowed: mean.",
        )
    return table[0]


def _threshold(sparsity: Sparsity) -> Tensor:
    if isinstance(sparsity, JumpReLU):
        return sparsity.log_threshold.detach().exp()
    if isinstance(sparsity, BatchTopK):  # it keeps what reaches its threshold, a JumpReLU what exceeds it
        return sparsity.threshold.nextafter(torch.tensor(-torch.inf))
    allowed = "l1, topk, jumprelu, batch_topk"
    raise UserError(f"sparsity: {sparsity.name} has no counterpart in SAELens. Allowed: {allowed}.")


def _folded(model: Autoencoder, centering: Tensor) -> dict[str, Tensor]:
    """Weights for activations as they are, which give the same codes.

    Center and decoder bias become one vector that is subtracted from activations. If they were folded into the bias of
    the encoder instead, the product with uncentered activations would lose digits where the center is large.
    """
    scale, encoder = model.scale.double(), model.encoder
    weight, bias = encoder.weight.detach().double() / scale, encoder.bias.detach().double()
    taken_off = (centering + model.scale * model.b_dec.detach()).float()
    moved = bias + weight @ (taken_off.double() - centering.double())
    weights = {"W_enc": weight.mT, "b_enc": moved, "W_dec": model.directions.detach(), "b_dec": taken_off}
    return {name: value.float() for name, value in weights.items()}


def _metadata(model: Autoencoder, run: FeaturesRun, hook: str) -> dict[str, JsonValue]:
    """Of the model and the text, as far as the data know them."""
    metadata: dict[str, JsonValue] = {"sae_lens_version": FORMAT, "sae_lens_training_version": None}  # not by it
    metadata |= {"context_size": model.context_size, "whence_run": run.id}
    metadata |= {"hook_name": hook} if hook else {}
    data = run.data.build()
    config = data.collection.config if isinstance(data, StoredActivations) else None
    if config and config.site:
        metadata |= {"model_name": Path(config.site.model).name, "dataset_path": Path(config.text).name}
        metadata |= {"hook_layer": max(0, config.site.layer - 1), "blocks_below": config.site.layer}
    return metadata


# --- import


@dataclass
class Imported:
    """A dictionary that knows no positions. Weights are (d_sae, d_in)."""

    encoder: Tensor
    encoder_bias: Tensor
    decoder: Tensor
    bias: Tensor
    taken_off: Tensor
    """(d_in,), before encoding"""
    threshold: Tensor
    """(d_sae,): what codes exceed"""
    k: int | None
    """Largest number of active features per activation; None: any"""
    context_size: int

    def __post_init__(self) -> None:
        self.d_sae, self.d_in = self.decoder.shape

    def encode(self, activations: Tensor, positions: Tensor, mask_off: bool = False) -> Tensor:
        pre = torch.nn.functional.linear(activations - self.taken_off, self.encoder, self.encoder_bias)
        codes = torch.where(pre > self.threshold, pre, 0.0)
        if self.k is None:
            return codes
        largest = top_k(codes, self.k)
        return torch.zeros_like(codes).scatter_(1, largest, codes.gather(1, largest))

    def decode(self, codes: Tensor, positions: Tensor) -> Tensor:
        return codes @ self.decoder + self.bias

    @property
    def directions(self) -> Tensor:
        return self.decoder


def imported_checksum(folder: Path) -> str:
    """Of what is computed."""
    return digest("".join(file_digest(folder / name, "folder") for name in (CONFIG, WEIGHTS)))[:16]


def imported(folder: Path) -> Dictionary:
    """Shapes are compared with the config before any weight is read."""
    config = _config(folder / CONFIG)
    weights = _weights(folder / WEIGHTS, config.shapes())
    encoder, encoder_bias = weights["W_enc"].mT.contiguous(), weights["b_enc"]
    decoder, bias = weights["W_dec"], weights["b_dec"]
    if config.architecture == "topk" and config.rescale_acts_by_decoder_norm:  # codes as if directions had length 1
        lengths = decoder.norm(dim=1)
        encoder, encoder_bias = encoder * lengths[:, None], encoder_bias * lengths
        decoder = torch.nn.functional.normalize(decoder, dim=1)
    return Imported(
        encoder=encoder,
        encoder_bias=encoder_bias,
        decoder=decoder,
        bias=bias,
        taken_off=bias if config.apply_b_dec_to_input else torch.zeros_like(bias),
        threshold=weights["threshold"].clamp(min=0) if "threshold" in weights else torch.zeros(config.d_sae),
        k=config.k if config.architecture == "topk" else None,
        context_size=config.metadata.context_size or ANY,
    )


def _config(path: Path) -> SAELensConfig:
    document = read_document(path, "folder")
    try:
        return SAELensConfig.read(document)
    except UserError as error:
        raise UserError(f"folder: {str(path)!r}: {error}", field=error.field) from None


def _weights(path: Path, wanted: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    stored = stored_tensors(path, "folder")
    there = {name: tensor.shape for name, tensor in stored.items()}
    if there != wanted:
        raise _unreadable(path, f"it holds {_listed(there)}, and {CONFIG} asks for {_listed(wanted)}")
    return read_floats(stored, wanted, "folder")


def _listed(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {'×'.join(map(str, shapes[name]))}" for name in sorted(shapes)) or "nothing"


def _unreadable(path: Path, why: object) -> UserError:
    return UserError(f"folder: {str(path)!r} cannot be read: {why}.")
