"""A top-k sparse autoencoder as whence and others train it, all from the same weights and with the same loss.

The loss is the squared error of the reconstruction, summed over the width and averaged over the batch. The decoder's
bias is subtracted from the input first. Nobody has an auxiliary loss, since no feature is dead yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from whence.features.config import AutoencoderConfig
from whence.features.sae.autoencoder import Autoencoder
from whence.kernels.sparse_code import ByFeature, decode, gathered, scores, top_k

WIDTH, K, BATCH = 576, 32, 4096


class Weights:
    """Where training might stand: encoder and decoder alike but not tied, decoder rows of length 1."""

    def __init__(self, d_sae: int) -> None:
        draw = torch.Generator().manual_seed(0)
        rows = torch.randn(d_sae, WIDTH, generator=draw)
        self.decoder = rows / rows.norm(dim=1, keepdim=True)
        self.encoder = self.decoder + 0.01 * torch.randn(d_sae, WIDTH, generator=draw)
        self.bias, self.centering = 0.1 * torch.randn(d_sae, generator=draw), 0.1 * torch.randn(WIDTH, generator=draw)


class Side:
    """Somebody's parameters, in the order and layout of `Weights`, and their loss."""

    def __init__(self, loss: Callable[[Tensor], Tensor], parameters: dict[str, tuple[Tensor, bool]]) -> None:
        self.loss, self.parameters = loss, parameters
        self.optimiser = torch.optim.Adam([tensor for tensor, _ in parameters.values()], lr=1e-4, fused=True)

    def step(self, x: Tensor) -> None:
        self.loss(x).backward()
        self.optimiser.step()
        self.optimiser.zero_grad()

    def gradients(self, x: Tensor) -> dict[str, Tensor]:
        """Of one batch, turned to whence's layout."""
        self.loss(x).backward()
        gradients = {name: (tensor.grad, turned) for name, (tensor, turned) in self.parameters.items()}
        self.optimiser.zero_grad()
        return {name: grad.T if turned else grad for name, (grad, turned) in gradients.items() if grad is not None}


def _side(loss: Callable[[Tensor], Tensor], weights: Weights, turned: tuple[str, ...] = (), **own: Tensor) -> Side:
    """`own`: the parameters that `loss` uses; they get the values of `weights`."""
    for name, parameter in own.items():
        value = getattr(weights, name)
        parameter.data = (value.T if name in turned else value).clone(memory_format=torch.contiguous_format)
    return Side(loss, {name: (parameter, name in turned) for name, parameter in own.items()})


def whence(weights: Weights) -> Side:
    names = ("encoder", "bias", "decoder", "centering")
    own = {name: torch.nn.Parameter(getattr(weights, name)) for name in names}
    encoder, bias, decoder, centering = own.values()

    def loss(x: Tensor) -> Tensor:
        centred = x - centering
        dense = scores(centred, encoder, bias)
        indices = top_k(dense, K)
        by_feature = ByFeature(indices, len(encoder))
        values = gathered(centred, encoder, bias, indices, dense=dense, by_feature=by_feature).relu()
        reconstruction = decode(values, indices, decoder, by_feature=by_feature) + centering
        return F.mse_loss(reconstruction, x, reduction="sum") / len(x)

    return _side(loss, weights, **own)


def autoencoder(weights: Weights) -> Side:
    """What `whence features train` runs. Its bias is not taken off the input, so that gradients are checked elsewhere
    (tests/features/test_autoencoder.py)."""
    model = Autoencoder(
        AutoencoderConfig.read({"d_sae": len(weights.bias), "sparsity": f"topk:k={K}"}), WIDTH, 128, 1
    ).train()
    own = {
        "encoder": model.encoder.weight,
        "bias": model.encoder.bias,
        "decoder": model.W_dec,
        "centering": model.b_dec,
    }
    positions = torch.arange(BATCH) % 128
    return _side(lambda x: model.loss(x, positions), weights, **own)


def sae_lens(weights: Weights, sparse: bool = False) -> Side:
    """TopKTrainingSAE; `sparse` is its own option of keeping the code as a sparse tensor."""
    from sae_lens import TopKTrainingSAE, TopKTrainingSAEConfig
    from sae_lens.saes.sae import TrainStepInput

    settings: Any = {"k": K, "use_sparse_activations": sparse, "rescale_acts_by_decoder_norm": False}
    sae = TopKTrainingSAE(
        TopKTrainingSAEConfig(d_in=WIDTH, d_sae=len(weights.bias), apply_b_dec_to_input=True, **settings)
    )

    def loss(x: Tensor) -> Tensor:
        given = TrainStepInput(
            sae_in=x, coefficients={}, dead_neuron_mask=None, n_training_steps=0, is_logging_step=False
        )
        return sae.training_forward_pass(given).loss

    own = {"encoder": sae.W_enc, "bias": sae.b_enc, "decoder": sae.W_dec, "centering": sae.b_dec}
    return _side(loss, weights, ("encoder",), **own)


def dictionary_learning(weights: Weights) -> Side:
    from dictionary_learning.trainers.top_k import AutoEncoderTopK

    sae = AutoEncoderTopK(WIDTH, len(weights.bias), K)
    own = {
        "encoder": sae.encoder.weight,
        "bias": sae.encoder.bias,
        "decoder": sae.decoder.weight,
        "centering": sae.b_dec,
    }
    return _side(lambda x: (x - sae(x)).pow(2).sum(-1).mean(), weights, ("decoder",), **own)


def sparsify(weights: Weights) -> Side:
    """Its loss is a fraction of the variance; told that this is the batch's size, it gives the mean error."""
    from sparsify import SparseCoder, SparseCoderConfig

    sae = SparseCoder(WIDTH, SparseCoderConfig(num_latents=len(weights.bias), k=K))
    own = {"encoder": sae.encoder.weight, "bias": sae.encoder.bias, "decoder": sae.W_dec, "centering": sae.b_dec}
    return _side(lambda x: sae(x, total_variance=torch.tensor(float(len(x)))).fvu, weights, **own)


SIDES: dict[str, Callable[[Weights], Side]] = {
    "whence": whence,
    "SAELens": sae_lens,
    "SAELens, sparse": lambda weights: sae_lens(weights, sparse=True),
    "dictionary_learning": dictionary_learning,
    "sparsify": sparsify,
}


def check(sides: dict[str, Side], x: Tensor, tolerance: float = 1e-4) -> None:
    """All compute the same gradients; also their warm-up."""
    ours = sides["whence"].gradients(x)
    for name, side in sides.items():
        for what, theirs in side.gradients(x).items():
            error = ((theirs - ours[what]).norm() / ours[what].norm()).item()
            assert error <= tolerance, f"{name}: the gradient of {what} is off by {error:.1e}"
