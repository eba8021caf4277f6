"""A position-aware sparse autoencoder: a composition of parts, each chosen from the registry of a module here."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from whence.errors import UserError
from whence.features.config import AutoencoderConfig
from whence.features.data import ActivationBatch, by_position, sum_of_squares
from whence.features.sae.dictionary import Shape
from whence.features.sae.encoders import toward
from whence.features.sae.losses import EncodedBatch, Loss
from whence.features.sae.sparsity import Code
from whence.kernels.sparse_code import ByFeature


class Autoencoder(nn.Module):
    """A sparse autoencoder. Inside, activations are centred, and scaled to variance 1.

    `whence.features.load` returns a trained one. Activations are (n, d_in), positions (n,), codes (n, d_sae).

    Example:
        >>> result = whence.compare("features", presets=["plain_topk"], seeds=1, training={"steps": 5})
        >>> sae = whence.features.load(result.run_ids[0])
        >>> sae.directions.shape == (sae.d_sae, sae.d_in)
        True
    """

    scale: Tensor
    done: Tensor

    def __init__(
        self, config: AutoencoderConfig, d_in: int, context_size: int, steps: int, ends: tuple[int, int] | None = None
    ) -> None:
        """Build an untrained autoencoder.

        Args:
            config: its parts.
            d_in: channels of the activations.
            context_size: number of positions.
            steps: of its training.
            ends: the first and the last position of activations; by default, of the context.
        """
        super().__init__()
        self.config, self.d_in, self.d_sae, self.context_size = config, d_in, config.d_sae, context_size
        self.steps, self.ends = steps, ends or (0, context_size - 1)
        shape = Shape(d_in, config.d_sae, context_size)
        self.centering = config.centering.build(shape=shape)
        self.encoder = config.encoder.build(shape=shape)
        self.norm = config.norm.build(shape=shape)
        self.mask = config.mask.build(shape=shape)
        self.sparsity = config.sparsity.build(shape=shape)
        self.loss_terms: list[Loss] = [loss.build(shape=shape) for loss in config.losses]
        self.losses = nn.ModuleList(self.loss_terms)
        self.schedule = config.position_schedule.build()
        self.W_dec = nn.Parameter(torch.empty(config.d_sae, d_in))
        self.b_dec = nn.Parameter(torch.zeros(d_in))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("done", torch.zeros((), dtype=torch.long))
        if any(loss.needs_parts for loss in self.loss_terms) and self.encoder.parts() is None:
            raise ValueError(
                "losses: scale_targets requires an encoder whose dictionary has parts, such as multi_scale"
            )

    def reset_parameters(self) -> None:
        directions = self.config.init.build().directions(self.d_sae, self.d_in)
        self.W_dec.data.copy_(directions)
        bias = self.sparsity.initial_bias(self.d_sae)
        self.encoder.init_weights(directions, bias)
        self.norm.init_bias(bias)

    @torch.no_grad()
    def fit(self, everything: Iterable[ActivationBatch]) -> None:
        """Fit centering and scale. The scale does not depend on the centering, so that errors are comparable."""
        sums = torch.zeros(self.context_size, self.d_in, dtype=torch.double)
        counts = torch.zeros(self.context_size, dtype=torch.double)
        squares = 0.0
        for activations, positions in everything:
            at = self._clamped(positions)
            sums += by_position(activations, at, self.context_size)
            counts += torch.bincount(at, minlength=self.context_size)
            squares += sum_of_squares(activations)
        mean = sums.sum(0) / counts.sum()
        variance = squares / float(counts.sum()) - float(mean.square().sum())
        if not variance > 0:
            raise UserError("data: expected activations that vary, got constant ones. Check the layer and the text.")
        self.centering.fit(sums, counts)
        self.scale.fill_((variance / self.d_in) ** 0.5)

    def positional_parameters(self) -> list[Tensor]:
        """Position-dependent parameters, which have their own learning rate."""
        parts = (self.encoder, *self.loss_terms)
        named = [getattr(part, name) for part in parts for name in part.positional]
        return [*self.mask.parameters(), *(parameter for parameter in named if parameter is not None)]

    @property
    def progress(self) -> float:
        return min(1.0, float(self.done) / self.steps)

    def loss(self, activations: Tensor, positions: Tensor) -> Tensor:
        """Training loss; without penalties, the fraction of variance unexplained."""
        positions = self._clamped(positions)
        x = self._standardized(activations, positions)
        code = self._code(x, positions)

        def decoded(values: Tensor) -> Tensor:
            return self._restored(code.times(self.W_dec, values), positions)

        batch = EncodedBatch(x, positions, code, decoded, self.encoder.parts())
        total = (batch.error() * math.prod(loss.weights(positions) for loss in self.loss_terms)).mean()
        price = self.sparsity.penalty(code, self.W_dec)
        total = total + self.schedule.penalty(self.progress) * price
        for loss in self.loss_terms:
            total = total + loss.term(batch)
        if self.training:
            self.done += 1
        return total

    def encode(self, activations: Tensor, positions: Tensor, mask_off: bool = False) -> Tensor:
        """(n, d_sae)"""
        positions = self._clamped(positions)
        return self._code(self._standardized(activations, positions), positions, mask_off).dense(self.d_sae)

    def decode(self, codes: Tensor, positions: Tensor) -> Tensor:
        """(n, d_in)"""
        positions = self._clamped(positions)
        return self._restored(codes @ self.W_dec, positions) * self.scale + self.centering(positions)

    @property
    def directions(self) -> Tensor:
        return self.W_dec * self.scale

    def mask_values(self) -> Tensor | None:
        """Mask values (context_size, d_sae), multipliers of each feature at each position; None: no mask."""
        if self.config.position_ablated:
            return None
        strength = self.schedule.strength(self.progress)
        tables = [table for table in (self._masked(strength), self.encoder.scale(strength)) if table is not None]
        whole = [table.expand(self.context_size, self.d_sae) for table in tables]
        return torch.stack(whole).prod(0) if whole else None

    def _clamped(self, positions: Tensor) -> Tensor:
        """Positions clamped to those of the training data."""
        if self.config.position_ablated:
            return torch.full_like(positions, self.context_size // 2)
        return positions.clamp(*self.ends)

    def _standardized(self, activations: Tensor, positions: Tensor) -> Tensor:
        return (activations - self.centering(positions)) / self.scale

    def _restored(self, decoded: Tensor, positions: Tensor) -> Tensor:
        return self.encoder.restore(decoded + self.b_dec, positions, self.schedule.strength(self.progress))

    def _masked(self, strength: float) -> Tensor | None:
        table = self.mask.table(self.progress)
        return None if table is None else toward(table, strength)

    def _code(self, x: Tensor, positions: Tensor, mask_off: bool = False) -> Code:
        strength, mask_off = self.schedule.strength(self.progress), mask_off or self.config.position_ablated
        x = self.encoder.prepare(x, positions, strength)
        scale = None if mask_off else self.encoder.scale(strength)
        shift = self.encoder.shift(strength)
        mask = None if mask_off else self._masked(strength)

        def placed(table: Tensor, indices: Tensor | None) -> Tensor:
            """Rows of a table at the positions, all features or some."""
            return table[positions] if indices is None else table[positions[:, None], indices]

        def moved(linear: Tensor, indices: Tensor | None) -> Tensor:
            pre = linear if scale is None else linear * placed(scale, indices)
            return pre if shift is None else pre + placed(shift, indices)

        def masked(raw: Tensor, indices: Tensor | None) -> Tensor:
            return raw if mask is None else raw * placed(mask, indices)

        whole = not self.norm.is_identity  # then every feature's gradient depends on all others
        with torch.set_grad_enabled(torch.is_grad_enabled() and whole):
            linear = self.encoder.linear(x, positions)
            pre = self.norm(moved(linear, None))
        indices = None
        if torch.is_grad_enabled() or self.sparsity.selects:
            with torch.no_grad():
                indices = self.sparsity.chosen(pre, masked(pre, None))
        named = None if indices is None else ByFeature(indices, self.d_sae)
        if whole:
            pre = pre if indices is None else pre.gather(1, indices)
        elif named is not None:
            pre = moved(self.encoder.linear_at(x, positions, named, linear), indices)
        elif torch.is_grad_enabled():
            pre = moved(self.encoder.linear(x, positions), None)
        raw = self.sparsity.activate(pre)
        return Code(self.sparsity.select(masked(raw, indices)), raw, named)
