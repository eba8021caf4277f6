"""A causal language model cut after some of its blocks, so that the activations between the halves can be replaced.

What lies below the cut is the same whatever is spliced in: it runs once, and each edit costs the upper half alone.

    split_model = SplitModel.of("smollm2", 15)
    text = split_model.read(ids)
    right, loss = split_model.predict(text.edited(reconstruction(dictionary)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whence.config import Config
from whence.errors import UserError
from whence.features.activations.sources import activations_after, module_of
from whence.features.activations.store import SPECIAL, Collection, sinks
from whence.features.sae.dictionary import Dictionary, check_fits
from whence.models.capture import blocks
from whence.models.pretrained import longest, pretrained

Edit = Callable[[Tensor, Tensor], Tensor]
"""Returns replacements of activations (batch, length, d_in) at positions (batch, length)."""
BATCH = 16
"""Sequences at once."""


@dataclass(frozen=True)
class SplitText:
    """Sequences, and their activations at the cut.

    The first position, special tokens and whatever else attention rests on (`sinks`) are never edited: no autoencoder
    is trained on them, and exchanging them measures that.
    """

    ids: Tensor
    """(sequences, length)"""
    activations: Tensor
    """(sequences, length, d_in)"""
    special: Tensor
    """bool (length,)"""
    sinks: Tensor
    """bool (sequences, length)"""

    @property
    def shape(self) -> tuple[int, int]:
        """d_in, and the number of positions"""
        return self.activations.shape[2], self.activations.shape[1]

    @property
    def editable(self) -> Tensor:
        """bool (sequences, length)"""
        return ~self.special & ~self.sinks & (torch.arange(len(self.special)) > 0)

    @property
    def positions(self) -> Tensor:
        """(sequences, length)"""
        return torch.arange(self.ids.shape[1]).expand(len(self.ids), -1)

    @property
    def targets(self) -> Tensor:
        """bool (sequences, length - 1): places whose next token is not a special one."""
        return (~self.special[1:]).expand(len(self.ids), -1)

    def __getitem__(self, rows: Tensor | slice) -> SplitText:
        return replace(self, ids=self.ids[rows], activations=self.activations[rows], sinks=self.sinks[rows])

    def edited(self, edit: Edit) -> SplitText:
        new = [edit(part.activations, part.positions) for part in self._batches()]
        return replace(self, activations=torch.where(self.editable[..., None], torch.cat(new), self.activations))

    def _batches(self) -> Iterator[SplitText]:
        return (self[start : start + BATCH] for start in range(0, len(self.ids), BATCH))

    def flat(self) -> tuple[Tensor, Tensor]:
        """States (n, d_in) and positions (n,) of every token that may be edited."""
        return self.activations[self.editable], self.positions[self.editable]


@dataclass(frozen=True)
class SplitModel:
    """A model of transformers with what says the next token."""

    model: Any
    tokenizer: Any
    layer: int
    """Blocks below the cut."""

    @classmethod
    def of(cls, name: str, layer: int) -> SplitModel:
        """`minilm` has no such head; smollm2, or a directory, has."""
        model, tokenizer = pretrained(name, head=True)
        module_of(model.base_model, layer)
        split_model = cls(model, tokenizer, layer)
        if not split_model._same():
            raise UserError(
                f"model: {name!r} cannot be cut at layer {layer}: its two halves do not reproduce its predictions. "
                "Expected a causal model of consecutive blocks with a linear head."
            )
        return split_model

    @property
    def blocks(self) -> list[nn.Module]:
        base = self.model.base_model
        return [base.get_submodule(name) for name in blocks(base)[: self.model.config.num_hidden_layers]]

    @torch.no_grad()
    def read(self, ids: Tensor, special: Tensor | None = None) -> SplitText:
        """The lower half. ids: (sequences, length); special: bool (length,), none by default."""
        most = longest(self.model)
        if ids.shape[1] > (most or ids.shape[1]):
            raise UserError(f"length: the model takes up to {most} tokens, got {ids.shape[1]}. Pass shorter sequences.")
        base, ids = self.model.base_model, ids.long()
        name = module_of(base, self.layer)
        parts = [activations_after(base, name, lambda some=some: base(input_ids=some)) for some in ids.split(BATCH)]
        activations = torch.cat(parts)
        special = torch.zeros(ids.shape[1], dtype=torch.bool) if special is None else special
        return SplitText(ids, activations, special, sinks(activations.norm(dim=-1)))

    @torch.no_grad()
    def predict(self, text: SplitText, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Of the token that follows each of the places: whether it is the likeliest, and its cross-entropy; (n,) each.

        places: bool (sequences, length - 1), `text.targets` by default.
        """
        places = text.targets if places is None else places
        right, loss = [], []
        for start in range(0, len(text.ids), BATCH):
            rows = slice(start, start + BATCH)
            logits = self.logits(self.upper(text.activations[rows])[:, :-1][places[rows]])
            following = text.ids[rows, 1:][places[rows]]
            right.append(logits.argmax(-1) == following)
            loss.append(F.cross_entropy(logits, following, reduction="none"))
        return torch.cat([*right, torch.zeros(0, dtype=torch.bool)]), torch.cat([*loss, torch.zeros(0)])

    @torch.no_grad()
    def upper(self, activations: Tensor) -> Tensor:
        """Inputs of the head, from activations (batch, length, d_in) at the cut.

        The whole model is called, so that masks and position embeddings are its own. States take the place of what the
        first block is given, and the blocks below the cut pass them on.
        """

        def given(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
            return ((activations, *inputs[1:]), named) if inputs else ((), {**named, "hidden_states": activations})

        handle = self.blocks[0].register_forward_pre_hook(given, with_kwargs=True)
        try:
            with _passing(self.blocks[: self.layer]):
                anything = torch.zeros(activations.shape[:2], dtype=torch.long)
                return self.model.base_model(input_ids=anything, use_cache=False).last_hidden_state
        finally:
            handle.remove()

    def logits(self, read: Tensor) -> Tensor:
        return self.model.get_output_embeddings()(read)

    @torch.no_grad()
    def _same(self) -> bool:
        ids = torch.arange(8)[None] % self.model.config.vocab_size
        whole = self.model(input_ids=ids, use_cache=False).logits
        if self.model.get_output_embeddings() is None:
            return False
        parts = self.logits(self.upper(self.read(ids).activations))
        return parts.shape == whole.shape and bool((parts - whole).abs().max() <= 1e-4 * whole.abs().max())


@contextmanager
def _passing(lower: Sequence[nn.Module]) -> Iterator[None]:
    """Blocks give back what they are given."""

    def forward(hidden_states: Tensor, *rest: Any, **named: Any) -> Tensor:
        return hidden_states

    before = [block.forward for block in lower]
    try:
        for block in lower:
            block.forward = forward
        yield
    finally:
        for block, own in zip(lower, before, strict=True):
            block.forward = own


def reconstruction(dictionary: Dictionary, mask_off: bool = False) -> Edit:
    """Reconstructions of a dictionary. mask_off: without masks over positions."""

    def edit(activations: Tensor, positions: Tensor) -> Tensor:
        where = positions.flatten()
        codes = dictionary.encode(activations.flatten(0, 1), where, mask_off)
        return dictionary.decode(codes, where).view_as(activations)

    return edit


class Recovered(Config):
    """Cross-entropies per token in nats, and how much of the model's predictions survives.

    When the reconstructions of a dictionary replace the activations, 1 is the model itself, 0 a model whose activations
    at the cut are zeros. Zeros are far from anything that the blocks above know, so that this flatters; the mean
    activation everywhere is the stricter reference. A share is None where the reference does not harm the model.
    """

    clean: float
    zero: float
    mean: float
    spliced: float
    recovered: float | None
    recovered_from_mean: float | None
    mask_off: bool
    tokens: int


def held_out_text(split_model: SplitModel, collection: Collection, sequences: int = 32) -> SplitText:
    """The first of the sequences that a collection held out, read again in full precision."""
    rows = collection.sequences("held out")[:sequences]
    return split_model.read(collection.tokens[rows], collection.flags == SPECIAL)


@torch.no_grad()
def recovered(
    split_model: SplitModel, text: SplitText, dictionaries: Mapping[str, Dictionary], mask_off: bool = False
) -> dict[str, Recovered]:
    """By name of the dictionary. mask_off: without masks over positions."""
    for name, dictionary in dictionaries.items():
        check_fits(dictionary, *text.shape, name)

    def entropy(edited: SplitText) -> float:
        return float(split_model.predict(edited)[1].double().mean())

    typical = text.flat()[0].mean(0)
    clean = entropy(text)
    zero = entropy(text.edited(lambda activations, positions: torch.zeros_like(activations)))
    mean = entropy(text.edited(lambda activations, positions: typical.expand_as(activations)))
    results = {}
    for name, dictionary in dictionaries.items():
        spliced = entropy(text.edited(reconstruction(dictionary, mask_off)))
        results[name] = Recovered(
            clean=clean,
            zero=zero,
            mean=mean,
            spliced=spliced,
            recovered=_share(clean, spliced, zero),
            recovered_from_mean=_share(clean, spliced, mean),
            mask_off=mask_off,
            tokens=int(text.targets.sum()),
        )
    return results


def _share(clean: float, spliced: float, ablated: float) -> float | None:
    return (ablated - spliced) / (ablated - clean) if ablated > clean else None
