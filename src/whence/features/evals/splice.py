"""A causal language model cut after some of its blocks, so that the states between the halves can be exchanged.

What lies below the cut is the same whatever is spliced in: it runs once, and each edit costs the upper half alone.

    halves = Halves.of("smollm2", 15)
    text = halves.read(ids)
    right, loss = halves.predict(text.edited(reconstruction(dictionary)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whence.errors import UserError
from whence.features.activations.sinks import sinks
from whence.features.activations.sources import module_of, states_after
from whence.features.sae.dictionary import Dictionary
from whence.models.capture import blocks
from whence.models.pretrained import longest, pretrained

Edit = Callable[[Tensor, Tensor], Tensor]
"""What takes the place of states (batch, length, width) at positions (batch, length)."""
BATCH = 16
"""Sequences at once."""


@dataclass(frozen=True)
class Text:
    """Sequences, and their states at the cut.

    The first position, special tokens and whatever else attention rests on (`sinks`) are never edited, unless
    `everywhere`: no autoencoder is trained on them, and exchanging them measures that.
    """

    ids: Tensor
    """(sequences, length)"""
    states: Tensor
    """(sequences, length, width)"""
    special: Tensor
    """bool (length,)"""
    sinks: Tensor
    """bool (sequences, length)"""
    everywhere: bool = False

    @property
    def editable(self) -> Tensor:
        """bool (sequences, length)"""
        if self.everywhere:
            return torch.ones_like(self.sinks)
        return ~self.special & ~self.sinks & (torch.arange(len(self.special)) > 0)

    @property
    def positions(self) -> Tensor:
        """(sequences, length)"""
        return torch.arange(self.ids.shape[1]).expand(len(self.ids), -1)

    @property
    def targets(self) -> Tensor:
        """bool (sequences, length - 1): places whose next token is not a special one."""
        return (~self.special[1:]).expand(len(self.ids), -1)

    def __getitem__(self, rows: Tensor | slice) -> Text:
        return replace(self, ids=self.ids[rows], states=self.states[rows], sinks=self.sinks[rows])

    def edited(self, edit: Edit) -> Text:
        new = [edit(part.states, part.positions) for part in self._batches()]
        return replace(self, states=torch.where(self.editable[..., None], torch.cat(new), self.states))

    def _batches(self) -> Iterator[Text]:
        return (self[start : start + BATCH] for start in range(0, len(self.ids), BATCH))

    def flat(self) -> tuple[Tensor, Tensor]:
        """States (n, width) and positions (n,) of every token that may be edited."""
        return self.states[self.editable], self.positions[self.editable]


@dataclass(frozen=True)
class Halves:
    """A model of transformers with what says the next token."""

    model: Any
    tokenizer: Any
    layer: int
    """Blocks below the cut."""

    @classmethod
    def of(cls, name: str, layer: int) -> Halves:
        """`minilm` has no such head; smollm2, or a directory, has."""
        model, tokenizer = pretrained(name, head=True)
        module_of(model.base_model, layer)
        halves = cls(model, tokenizer, layer)
        if not halves._same():
            raise UserError(
                f"model: {name!r} cannot be cut: its halves do not say what the whole says. "
                "Allowed: causal models made of blocks that pass states on, and a head that is one matrix.",
                field="model",
            )
        return halves

    @property
    def blocks(self) -> list[nn.Module]:
        base = self.model.base_model
        return [base.get_submodule(name) for name in blocks(base)[: self.model.config.num_hidden_layers]]

    @torch.no_grad()
    def read(self, ids: Tensor, special: Tensor | None = None, everywhere: bool = False) -> Text:
        """The lower half. ids: (sequences, length); special: bool (length,), none by default."""
        most = longest(self.model)
        if ids.shape[1] > (most or ids.shape[1]):
            raise UserError(f"length: the model takes up to {most} tokens.", field="length")
        base, ids = self.model.base_model, ids.long()
        name = module_of(base, self.layer)
        states = torch.cat(
            [states_after(base, name, lambda some=some: base(input_ids=some)) for some in ids.split(BATCH)]
        )
        none = torch.zeros(ids.shape[1], dtype=torch.bool)
        return Text(ids, states, none if special is None else special, sinks(states.norm(dim=-1)), everywhere)

    @torch.no_grad()
    def predict(self, text: Text, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Of the token that follows each of the places: whether it is the likeliest, and its cross-entropy; (n,) each.

        places: bool (sequences, length - 1), `text.targets` by default.
        """
        places = text.targets if places is None else places
        right, loss = [], []
        for start in range(0, len(text.ids), BATCH):
            rows = slice(start, start + BATCH)
            logits = self.logits(self.upper(text.states[rows])[:, :-1][places[rows]])
            following = text.ids[rows, 1:][places[rows]]
            right.append(logits.argmax(-1) == following)
            loss.append(F.cross_entropy(logits, following, reduction="none"))
        return torch.cat([*right, torch.zeros(0, dtype=torch.bool)]), torch.cat([*loss, torch.zeros(0)])

    @torch.no_grad()
    def upper(self, states: Tensor) -> Tensor:
        """What the head reads, of (batch, length, width) states at the cut.

        The whole model is called, so that masks and position embeddings are its own. States take the place of what the
        first block is given, and the blocks below the cut pass them on.
        """

        def given(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
            return ((states, *inputs[1:]), named) if inputs else ((), {**named, "hidden_states": states})

        handle = self.blocks[0].register_forward_pre_hook(given, with_kwargs=True)
        try:
            with _passing(self.blocks[: self.layer]):
                anything = torch.zeros(states.shape[:2], dtype=torch.long)
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
        parts = self.logits(self.upper(self.read(ids).states))
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


def reconstruction(dictionary: Dictionary, lifted: bool = False) -> Edit:
    """What the dictionary makes of states. lifted: without masks over positions."""

    def edit(states: Tensor, positions: Tensor) -> Tensor:
        where = positions.flatten()
        return dictionary.decode(dictionary.codes(states.flatten(0, 1), where, lifted), where).view_as(states)

    return edit


def check_fits(dictionary: Dictionary, text: Text) -> None:
    length, width = text.states.shape[1:]
    if dictionary.width != width:
        raise UserError(
            f"dictionary: it is of states of {dictionary.width} numbers, and those at the cut have {width}. "
            "Allowed: the model and the layer that it was trained on.",
            field="dictionary",
        )
    if dictionary.context < length:
        raise UserError(
            f"dictionary: it was trained on {dictionary.context} positions, and the text has {length}.",
            field="dictionary",
        )
