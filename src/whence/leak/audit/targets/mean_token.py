"""Masking in models without a mask token: the embedding of a masked token is the mean of all token embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from whence.leak.pathways.base import hooked

MEAN_TOKEN = "Masked tokens are replaced by the mean of all token embeddings: the model has no mask token."


def with_mean_token(embedding: nn.Embedding, call: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """`call(ids)` with the embeddings of masked tokens replaced."""

    def predict(ids: Tensor, masked: Tensor) -> Tensor:
        def blank(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
            mean = embedding.weight.detach().mean(0).to(output.dtype)
            gone = masked.to(output.device)
            return output.masked_scatter(gone[..., None], mean.expand(int(masked.sum()), -1))

        with hooked([embedding], blank):
            return call(ids)

    return predict
