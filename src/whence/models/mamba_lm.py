"""Mamba language models as transformers stores them: a directory with config.json and safetensors files.

    model = MambaLM.load("mamba-130m-hf")
    logits = model(tokens)                        # trains on a CPU
    logits, memory = model.extend(token, memory)  # one token at a time, at a cost that does not grow

Nothing in the directory is executed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from whence.config import Config
from whence.errors import UserError
from whence.mixers.mamba import Mamba, Memory
from whence.models.directory import CONFIG, read_config, stored_weights
from whence.models.weights import read_floats

StrictCount = Annotated[int, Field(ge=1, le=2**24, strict=True)]


class MambaLM(nn.Module):
    """Tokens in, logits out. Names of weights are those of transformers' MambaForCausalLM.

    `MambaLM.load` reads a directory as transformers saves it.

    Example:
        >>> model = whence.models.MambaLM(vocabulary=50, d_model=16, layers=2)
        >>> model(torch.randint(50, (1, 7))).shape  # (batch, length, vocabulary)
        torch.Size([1, 7, 50])
        >>> logits, memory = model.extend(torch.randint(50, (1, 7)))
        >>> logits, memory = model.extend(torch.randint(50, (1, 1)), memory)  # one more token
    """

    def __init__(
        self, vocabulary: int, d_model: int, layers: int, *, eps: float = 1e-5, tied: bool = True, **options: Any
    ) -> None:
        """Build an untrained model.

        Args:
            vocabulary: number of tokens.
            d_model: width of the residual stream.
            layers: number of blocks.
            eps: added to the variance by the norms.
            tied: one matrix embeds tokens and computes logits.
            options: of each Mamba, see `whence.mixers.Mamba`.
        """
        super().__init__()
        embeddings = nn.Embedding(vocabulary, d_model)
        self.backbone = nn.ModuleDict(
            {
                "embeddings": embeddings,
                "layers": nn.ModuleList(
                    nn.ModuleDict({"norm": nn.RMSNorm(d_model, eps), "mixer": Mamba(d_model, **options)})
                    for _ in range(layers)
                ),
                "norm_f": nn.RMSNorm(d_model, eps),
            }
        )
        self.lm_head = nn.Linear(d_model, vocabulary, bias=False)
        if tied:
            self.lm_head.weight = embeddings.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) → (batch, length, vocabulary)."""
        return self.extend(tokens)[0]

    def extend(self, tokens: Tensor, memory: list[Memory] | None = None) -> tuple[Tensor, list[Memory]]:
        """Logits for the next tokens of sequences with the state `memory`, and the state after them."""
        x, after = self.backbone["embeddings"](tokens), []
        layers: Any = self.backbone["layers"]
        for index, layer in enumerate(layers):
            mixed, stand = layer["mixer"].extend(layer["norm"](x), memory and memory[index])
            x = x + mixed
            after.append(stand)
        return self.lm_head(self.backbone["norm_f"](x)), after

    @classmethod
    def load(cls, folder: str | Path) -> MambaLM:
        """Load a directory saved by transformers, in single precision. Raises UserError for invalid directories."""
        folder = Path(folder)
        config = _Checkpoint.load(folder)
        stored, tied = stored_weights(folder), config.tie_word_embeddings
        layers = len({name.split(".")[2] for name in stored if name.startswith("backbone.layers.")})
        if layers != config.num_hidden_layers:
            raise UserError(
                f"model: expected weights of {config.num_hidden_layers} layers (config.json), got {layers}."
            )
        with torch.device("meta"):
            model = cls(
                config.vocab_size,
                config.hidden_size,
                config.num_hidden_layers,
                eps=config.layer_norm_epsilon,
                tied=tied,
                d_state=config.state_size,
                expand=config.expand,
                d_conv=config.conv_kernel,
                dt_rank=None if config.time_step_rank == "auto" else config.time_step_rank,
                bias=config.use_bias,
                conv_bias=config.use_conv_bias,
            )
        wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        if tied:
            del wanted["lm_head.weight"]
        weights = read_floats(stored, wanted, "model")
        if tied:
            weights["lm_head.weight"] = weights["backbone.embeddings.weight"]
        model.load_state_dict(weights, assign=True)
        if tied:  # assigning has given the two names a parameter each
            model.lm_head.weight = model.backbone.get_parameter("embeddings.weight")
        return model


class _Checkpoint(Config, extra="ignore"):
    """The fields of a config.json that describe a Mamba. Other fields are ignored."""

    vocab_size: StrictCount
    hidden_size: StrictCount
    num_hidden_layers: StrictCount = Field(le=1000)
    state_size: StrictCount = 16
    expand: StrictCount = 2
    conv_kernel: StrictCount = 4
    time_step_rank: StrictCount | Literal["auto"] = "auto"
    layer_norm_epsilon: float = Field(default=1e-5, ge=0, le=1)
    tie_word_embeddings: bool = True
    use_bias: bool = False
    use_conv_bias: bool = True

    @classmethod
    def load(cls, folder: Path) -> _Checkpoint:
        document, path = read_config(folder), folder / CONFIG
        kind = document.get("model_type")
        if kind != "mamba":
            raise UserError(f"model: {str(path)!r} describes a model of type {kind!r}. Allowed: mamba.")
        if document.get("hidden_act", "silu") != "silu":
            raise UserError(f"model: hidden_act {document['hidden_act']!r} is not supported. Allowed: silu.")
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            wrong = {
                problem["loc"][0]: problem["msg"].replace("Input should be", "must be") for problem in error.errors()
            }
            reasons = "; ".join(f"{field} {reason}" for field, reason in wrong.items())
            raise UserError(f"model: in {str(path)!r}, {reasons}.") from None
