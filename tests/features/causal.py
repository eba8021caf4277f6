"""Small causal models in directories, and dictionaries whose effect on them is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

GROUP = 10
"""Tokens of each kind; every token is followed by the next of its kind, in a ring."""
FORGET, RETAIN = 2 * GROUP, 2 * GROUP + 1
"""Where states say of which kind they are; before these, which token they belong to."""
WIDTH = 32


def save(folder: Path, model: Any) -> str:
    """With a tokenizer of words: f0 to f9, r0 to r9."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [f"f{i}" for i in range(GROUP)] + [f"r{i}" for i in range(GROUP)] + ["other"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="other"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="other").save_pretrained(folder)
    model.save_pretrained(folder)
    return str(folder)


def llama() -> Any:
    """Random, with weights large enough for attention to matter."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2 * GROUP + 1,
        hidden_size=WIDTH,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config)


def ring() -> Any:
    """Blocks that add nothing, so that states are embeddings; the head knows which token follows which."""
    model = llama()
    with torch.no_grad():
        for block in model.model.layers:
            block.self_attn.o_proj.weight.zero_()
            block.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.zero_()
        model.lm_head.weight.zero_()
        for token in range(2 * GROUP):
            kind = token // GROUP
            following = kind * GROUP + (token + 1) % GROUP
            for weight, row in ((model.model.embed_tokens.weight, token), (model.lm_head.weight, following)):
                weight[row, [token, FORGET + kind]] = 1.0
    return model


class Basis:
    """Every axis twice, up and down: it reconstructs all that is along the axes it has."""

    context_size = 64

    def __init__(self, axes: Tensor, scale: float = 1.0) -> None:
        self.axes = torch.cat([axes, -axes])
        self.scale = scale
        self.d_sae, self.d_in = self.axes.shape

    def encode(self, activations: Tensor, positions: Tensor, mask_off: bool = False) -> Tensor:
        return (activations @ self.axes.T).relu() / self.scale

    def decode(self, codes: Tensor, positions: Tensor) -> Tensor:
        return codes @ self.directions

    @property
    def directions(self) -> Tensor:
        return self.axes * self.scale
