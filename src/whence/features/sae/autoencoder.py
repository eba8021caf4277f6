"""A sparse autoencoder that knows positions: a composition of parts, each of which is one file."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.config import Config
from whence.errors import UserError
from whence.features.data.base import States, by_position, sum_of_squares
from whence.features.sae.centering.base import Centre
from whence.features.sae.code import Code
from whence.features.sae.encoders.base import Encoder, toward
from whence.features.sae.inits.base import Start
from whence.features.sae.losses.base import Batch, Loss
from whence.features.sae.masks.base import Mask
from whence.features.sae.norms.base import Norm
from whence.features.sae.parts import (
    CENTRES,
    ENCODERS,
    MASKS,
    NORMS,
    SCHEDULES,
    SPARSITY,
    STARTS,
    CentreChoice,
    EncoderChoice,
    LossChoice,
    MaskChoice,
    NormChoice,
    ScheduleChoice,
    SparsityChoice,
    StartChoice,
)
from whence.features.sae.schedules.base import Schedule
from whence.features.sae.sparsity.base import Sparsity
from whence.kernels.sparse_code import ByFeature


class AutoencoderSpec(Config):
    """What an autoencoder is composed of."""

    size: int = Field(default=2048, ge=1, le=2**20, description="features")
    centre: CentreChoice = Field(default=CENTRES.choose("mean"), description="taken off states beforehand")
    encoder: EncoderChoice = Field(default=ENCODERS.choose("shared"), description="states to pre-activations")
    norm: NormChoice = Field(default=NORMS.choose("none"), description="of all pre-activations of a state")
    mask: MaskChoice = Field(default=MASKS.choose("none"), description="which features may speak where")
    sparsity: SparsityChoice = Field(default=SPARSITY.choose("topk"), description="what keeps codes sparse")
    losses: tuple[LossChoice, ...] = Field(default=(), description="what is asked besides reconstruction")
    position_schedule: ScheduleChoice = Field(default=SCHEDULES.choose("constant"), description="how position comes in")
    start: StartChoice = Field(default=STARTS.choose("unit"), description="first directions")
    blind: bool = Field(default=False, description="control: nothing is masked, all states stand at one position")

    @property
    def knows_positions(self) -> bool:
        """Whether any part depends on where a state stands."""
        plain = AutoencoderSpec()
        return any(getattr(self, part) != getattr(plain, part) for part in ("centre", "encoder", "mask", "losses"))

    def build(self, width: int, context: int, steps: int, ends: tuple[int, int] | None = None) -> Autoencoder:
        """steps: of its training. ends: the first and the last position that states stand at."""
        return Autoencoder(self, width, context, steps, ends or (0, context - 1))


class Autoencoder(nn.Module):
    """States in, states out. Inside, states are centred, and scaled so that their numbers have variance 1."""

    scale: Tensor
    done: Tensor

    def __init__(self, spec: AutoencoderSpec, width: int, context: int, steps: int, ends: tuple[int, int]) -> None:
        super().__init__()
        self.spec, self.width, self.size, self.context = spec, width, spec.size, context
        self.steps, self.ends = steps, ends
        shape = {"width": width, "size": spec.size, "context": context}
        self.centre: Centre = spec.centre.build(**shape)
        self.encoder: Encoder = spec.encoder.build(**shape)
        self.norm: Norm = spec.norm.build(**shape)
        self.mask: Mask = spec.mask.build(**shape)
        self.sparsity: Sparsity = spec.sparsity.build(**shape)
        self.losses = nn.ModuleList(loss.build(**shape) for loss in spec.losses)
        self.schedule: Schedule = spec.position_schedule.build()
        self.decoder = nn.Parameter(torch.empty(spec.size, width))
        self.bias = nn.Parameter(torch.empty(width))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("done", torch.zeros((), dtype=torch.long))
        if any(loss.needs_parts for loss in self._losses()) and self.encoder.parts() is None:
            raise ValueError("losses: scale_targets needs an encoder whose dictionary has parts, as multi_scale has")

    def reset_parameters(self) -> None:
        start: Start = self.spec.start.build()
        directions = start.directions(self.size, self.width)
        self.decoder.data.copy_(directions)
        bias = self.sparsity.first_bias(self.size)
        self.encoder.start(directions, bias)
        self.norm.start(bias)
        nn.init.zeros_(self.bias)

    @torch.no_grad()
    def fit(self, everything: Iterable[States]) -> None:
        """The centre, and the scale, which is the same for all centres: what is left over is then comparable."""
        sums = torch.zeros(self.context, self.width, dtype=torch.double)
        counts = torch.zeros(self.context, dtype=torch.double)
        squares = 0.0
        for states, positions in everything:
            seen = self._seen(positions)
            sums += by_position(states, seen, self.context)
            counts += torch.bincount(seen, minlength=self.context)
            squares += sum_of_squares(states)
        mean = sums.sum(0) / counts.sum()
        variance = squares / float(counts.sum()) - float(mean.square().sum())
        if not variance > 0:
            raise UserError("data: all states are alike. Allowed: states that vary.", field="data")
        self.centre.fit(sums, counts)
        self.scale.fill_((variance / self.width) ** 0.5)

    def positional_parameters(self) -> list[Tensor]:
        """Those that are about position: their learning rate is their own."""
        found: list[Any] = [*self.mask.parameters()]
        for part in (self.encoder, *self.losses):
            found += [getattr(part, name) for name in getattr(part, "positional", ())]
        return [parameter for parameter in found if parameter is not None]

    @property
    def progress(self) -> float:
        return min(1.0, float(self.done) / self.steps)

    def loss(self, states: Tensor, positions: Tensor) -> Tensor:
        """Of one training step. Without penalties: the share of variance that is not explained."""
        positions = self._seen(positions)
        x = self._inside(states, positions)
        code = self._encode(x, positions)

        def decoded(values: Tensor) -> Tensor:
            return self._restored(code.times(self.decoder, values), positions)

        batch = Batch(x, positions, code, decoded, self.encoder.parts())
        total = (batch.error() * math.prod(loss.weights(positions) for loss in self._losses())).mean()
        price = self.sparsity.penalty(code, self.decoder)
        total = total + self.schedule.penalty(self.progress) * price
        for loss in self._losses():
            total = total + loss.term(batch)
        if self.training:
            self.done += 1
        return total

    def codes(self, states: Tensor, positions: Tensor, lifted: bool = False) -> Tensor:
        """(n, size)"""
        positions = self._seen(positions)
        return self._encode(self._inside(states, positions), positions, lifted).dense(self.size)

    def decode(self, codes: Tensor, positions: Tensor) -> Tensor:
        """(n, width)"""
        positions = self._seen(positions)
        return self._restored(codes @ self.decoder, positions) * self.scale + self.centre(positions)

    @property
    def directions(self) -> Tensor:
        return self.decoder * self.scale

    def assigned(self) -> Tensor | None:
        """(context, size): how far each feature may speak at each position; None: everywhere alike."""
        if self.spec.blind:
            return None
        strength = self.schedule.strength(self.progress)
        tables = [table for table in (self._masked(strength), self.encoder.scale(strength)) if table is not None]
        return torch.stack([table.expand(self.context, self.size) for table in tables]).prod(0) if tables else None

    def _seen(self, positions: Tensor) -> Tensor:
        """Positions as the parts know them: what lies beyond those trained on counts as the nearest of them."""
        if self.spec.blind:
            return torch.full_like(positions, self.context // 2)
        return positions.clamp(*self.ends)

    def _inside(self, states: Tensor, positions: Tensor) -> Tensor:
        return (states - self.centre(positions)) / self.scale

    def _restored(self, said: Tensor, positions: Tensor) -> Tensor:
        return self.encoder.restore(said + self.bias, positions, self.schedule.strength(self.progress))

    def _masked(self, strength: float) -> Tensor | None:
        table = self.mask.table(self.progress)
        return None if table is None else toward(table, strength)

    def _encode(self, x: Tensor, positions: Tensor, lifted: bool = False) -> Code:
        strength, lifted = self.schedule.strength(self.progress), lifted or self.spec.blind
        x = self.encoder.prepare(x, positions, strength)
        scale = None if lifted else self.encoder.scale(strength)
        shift = self.encoder.shift(strength)
        mask = None if lifted else self._masked(strength)

        def placed(table: Tensor, indices: Tensor | None) -> Tensor:
            """Rows of a table at the positions, all features or some."""
            return table[positions] if indices is None else table[positions[:, None], indices]

        def moved(linear: Tensor, indices: Tensor | None) -> Tensor:
            pre = linear if scale is None else linear * placed(scale, indices)
            return pre if shift is None else pre + placed(shift, indices)

        def masked(raw: Tensor, indices: Tensor | None) -> Tensor:
            return raw if mask is None else raw * placed(mask, indices)

        whole = not self.norm.nothing  # then every feature's gradient depends on all others
        with torch.set_grad_enabled(torch.is_grad_enabled() and whole):
            linear = self.encoder.linear(x, positions)
            pre = self.norm(moved(linear, None))
        indices = None
        if torch.is_grad_enabled() or self.sparsity.selects:
            with torch.no_grad():
                indices = self.sparsity.chosen(pre, masked(pre, None))
        named = None if indices is None else ByFeature(indices, self.size)
        if whole:
            pre = pre if indices is None else pre.gather(1, indices)
        elif named is not None:
            pre = moved(self.encoder.linear_at(x, positions, named, linear), indices)
        elif torch.is_grad_enabled():
            pre = moved(self.encoder.linear(x, positions), None)
        raw = self.sparsity.activate(pre)
        return Code(self.sparsity.settle(masked(raw, indices)), raw, named)

    def _losses(self) -> list[Loss]:
        return [cast(Loss, loss) for loss in self.losses]
