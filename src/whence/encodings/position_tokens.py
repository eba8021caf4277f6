"""Learnable position tokens (LPs): learned tokens that are inserted between the others."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.encodings._interleaving import Interleaving
from whence.encodings.base import Count, Encoding, Shift

Placement = Literal["equidistant", "middle", "n_group", "random", "adaptive", "hierarchical"]
COARSE = 0.2
"""Fraction of the tokens in the coarse set of a hierarchy."""


class PositionTokens(Encoding):
    """Insert learned tokens between the others, from which the model can read position."""

    extrapolation = "the same number of position tokens, spaced further apart"
    reference = "MAMBA-GINR"
    examples = (
        *(f"placement={placement}" for placement in ("middle", "n_group", "random", "adaptive", "hierarchical")),
        "conditional=true,count=3",
    )
    admits_transforms = False

    def __init__(
        self,
        d_model: Count,
        *,
        count: Annotated[int, Field(ge=1, le=65_536, description="number of position tokens M")] = 16,
        placement: Annotated[
            Placement,
            Field(
                description="placement in the sequence; middle: all in the middle; n_group: in groups; "
                "adaptive: learned; hierarchical: a coarse and a fine set"
            ),
        ] = "equidistant",
        groups: Annotated[int, Field(ge=1, le=2**20, description="number of groups of n_group")] = 2,
        conditional: Annotated[
            bool, Field(description="add a projection of the mean of the tokens since the previous position token")
        ] = False,
        init: Annotated[Literal["small", "xavier", "unit"], Field(description="initial scale")] = "unit",
        draw: Annotated[int, Field(ge=0, le=2**31, description="seed of the random placement")] = 0,
    ) -> None:
        super().__init__()
        self.count, self.placement, self.groups, self.draw, self.init = count, placement, groups, draw, init
        self.table = nn.Parameter(torch.empty(count, d_model))
        self.place = nn.Parameter(torch.empty(count)) if placement == "adaptive" else None
        self.place_embedding = nn.Parameter(torch.empty(2, d_model)) if placement == "adaptive" else None
        self.content = nn.Parameter(torch.empty(d_model, d_model)) if conditional else None
        self.selected: Tensor | None = None
        """Indices that remain after pruning; None: all."""
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.init == "xavier":
            nn.init.xavier_uniform_(self.table)
        else:
            nn.init.normal_(self.table, std=0.02 if self.init == "small" else 0.7)
        if self.place is not None and self.place_embedding is not None:
            shares = (torch.arange(self.count, device=self.place.device) + 0.5) / self.count
            with torch.no_grad():
                self.place.copy_(shares.logit())
            nn.init.normal_(self.place_embedding, std=0.1)
        if self.content is not None:
            nn.init.normal_(self.content, std=self.content.shape[0] ** -0.5)

    @property
    def shift(self) -> Shift:
        return "ignored"  # placement depends on the order of tokens

    def reach(self, axes: int) -> Tensor:
        """(count,): spacing within a set, relative to the spacing if all tokens were one set."""
        reach = torch.ones(self.count)
        if self.placement == "hierarchical":
            reach[: self._coarse] = (self.count / self._coarse) ** (1 / axes)
            reach[self._coarse :] = (self.count / max(1, self.count - self._coarse)) ** (1 / axes)
        return reach

    @property
    def _coarse(self) -> int:
        return min(self.count, max(1, round(COARSE * self.count)))

    def shares(self) -> Tensor:
        """(count,): position of each token as a fraction of the sequence."""
        index = torch.arange(self.count, dtype=torch.float64, device=self.table.device)
        if self.placement == "middle":
            shares = torch.full_like(index, 0.5)
        elif self.placement == "n_group":
            groups = min(self.groups, self.count)
            shares = ((index * groups / self.count).floor() + 0.5) / groups
        elif self.placement == "random":
            luck = torch.rand(self.count, generator=torch.Generator().manual_seed(self.draw), dtype=torch.float64)
            shares = luck.sort().values.to(self.table.device)
        elif self.placement == "hierarchical":
            sizes = (self._coarse, self.count - self._coarse)
            shares = torch.cat([(index[:size] + 0.5) / max(size, 1) for size in sizes])
        elif self.place is not None:
            shares = self.place.double().sigmoid()
        else:
            shares = (index + 0.5) / self.count
        return shares if self.selected is None else shares[self.selected.to(shares.device)]

    def interleaving(self, length: int, valid: Tensor | None = None) -> Interleaving:
        """Placement among `length` tokens, or among the valid tokens of every row."""
        counts = torch.tensor([[float(length)]]) if valid is None else valid.sum(1, keepdim=True)
        shares = self.shares()
        return Interleaving.of(shares * counts.to(shares) - 0.5, length, valid)

    def interleave(
        self, x: Tensor, positions: Tensor, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Interleaving]:
        """x: (rows, length, d_model). Returns merged tokens and LPs, their positions, and the permutation."""
        interleaving = self.interleaving(x.shape[1], valid)
        table = self.table if self.selected is None else self.table[self.selected.to(self.table.device)]
        lps = table.to(x.dtype).expand(len(x), -1, -1)
        if self.place_embedding is not None:
            turn = torch.pi * self.shares()
            lps = lps + (torch.stack([turn.sin(), turn.cos()], -1).to(self.place_embedding) @ self.place_embedding).to(
                x.dtype
            )
        if self.content is not None:
            lps = lps + (_since_the_one_before(interleaving, x, valid) @ self.content.to(x.dtype))
        places = interleaving.merge(positions.to(torch.float64), interleaving.between(positions, valid).double())
        return interleaving.merge(x, lps), places, interleaving

    def extract(self, x: Tensor, interleaving: Interleaving) -> Tensor:
        """(rows, length + count, d) → the LPs, (rows, count, d)."""
        return interleaving.inserted(x)


def _since_the_one_before(interleaving: Interleaving, x: Tensor, valid: Tensor | None) -> Tensor:
    """The mean of the tokens that stand between every LP and the one before it; 0 where there are none.

    Those before it only: an LP that knew of tokens behind it would tell a causal model the future.
    """
    dtype, x = x.dtype, x.float()  # sums over long sequences keep few digits in less
    weight = torch.ones(x.shape[:2], device=x.device) if valid is None else valid.float()
    nothing = torch.zeros(len(x), interleaving.count, device=x.device)
    sums = interleaving.merge(x * weight[..., None], nothing[..., None].expand(-1, -1, x.shape[-1])).cumsum(1)
    counts = interleaving.merge(weight, nothing).cumsum(1)
    index = torch.arange(interleaving.order.shape[1], device=x.device)
    by_place = interleaving.inserted(index[None].expand(len(x), -1)).argsort(1)
    total, many = interleaving.inserted(sums), interleaving.inserted(counts)
    ordered_total = total.gather(1, by_place[..., None].expand_as(total))
    ordered_many = many.gather(1, by_place)
    gained = ordered_total.diff(dim=1, prepend=torch.zeros_like(ordered_total[:, :1]))
    tokens = ordered_many.diff(dim=1, prepend=torch.zeros_like(ordered_many[:, :1]))
    means = gained / tokens.clamp(min=1)[..., None]
    back = by_place.argsort(1)
    return means.gather(1, back[..., None].expand_as(means)).to(dtype)
