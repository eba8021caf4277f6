"""A masked model as an audit sees it: how to hide tokens, where they are, what is predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from whence.errors import UserError
from whence.leak.audit.measures import check_aligned
from whence.leak.masks import Pattern, draw
from whence.models.capture import capture

BATCH = 32


@contextmanager
def training_mode_restored(model: nn.Module) -> Iterator[None]:
    before = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


@dataclass(frozen=True)
class AuditTarget:
    """A masked model with the examples to audit it on, and how to call it.

    `whence.leak.audit_target` and `whence.leak.load` return one, and `whence.audit` takes one.

    Example:
        >>> target = whence.leak.audit_target(torch.nn.Linear(3, 3), torch.randn(32, 16, 3))
        >>> masked = target.draw_mask(0.5)
        >>> target.predictions(target.content, masked).shape  # (rows, tokens, outputs)
        torch.Size([32, 16, 3])
    """

    name: str
    model: nn.Module
    content: Tensor
    """(rows, tokens, …): real examples, of which parts will be masked"""
    predict: Callable[[Tensor, Tensor], Tensor]
    """(content, masked) → (rows, tokens, outputs); must not look at content where it is masked"""
    target: Callable[[Tensor], Tensor]
    """content → what would be right, (rows, tokens, outputs)"""
    layers: tuple[str, ...]
    """Names of modules whose outputs are (rows, tokens, width), from the embedded tokens to the last block"""
    mask_module: str | None = None
    """The module whose output has mask tokens in their places, before anything tells them where they are"""
    ends: tuple[int, int] = (0, 0)
    """Tokens at the beginning and at the end that are never masked and never moved, as [CLS] and [SEP]"""
    stride: int = 1
    """Tokens per step of position: several where every moment has one token per channel"""
    pattern: Pattern = "random"
    fitted: bool = False
    """The model was never asked to say the target: its error is that of the best linear map from what it says"""
    untrained: Callable[[int], AuditTarget | None] | None = None
    """seed → the same architecture before training; None where no such model can be made"""
    mask_description: str = ""
    """What masked tokens are replaced by, as a sentence"""
    limits: tuple[str, ...] = ()
    """Where less than was requested is audited, as sentences"""
    current: dict[str, Tensor] = field(default_factory=dict)
    """While the model runs, under "masked": what is masked from it"""

    @property
    def tokens(self) -> int:
        return self.content.shape[1]

    @property
    def position(self) -> Tensor:
        return torch.arange(self.tokens) // self.stride

    @property
    def inner(self) -> slice:
        """The tokens that may be masked"""
        return slice(self.ends[0], self.tokens - self.ends[1])

    @property
    def maskable(self) -> int:
        """How many these are"""
        return max(0, self.tokens - sum(self.ends))

    def draw_mask(self, ratio: float, seed: int = 0) -> Tensor:
        masked = torch.zeros(len(self.content), self.tokens, dtype=torch.bool)
        generator = torch.Generator().manual_seed(seed)
        masked[:, self.inner] = draw(generator, len(masked), self.maskable, ratio, self.pattern)
        return masked

    def predictions(self, content: Tensor, masked: Tensor, batch: int = BATCH) -> Tensor:
        """Predictions, a few rows at a time."""
        self.model.eval()
        parts = []
        with torch.no_grad():
            for some, gone in zip(content.split(batch), masked.split(batch), strict=True):
                self.current["masked"] = gone
                parts.append(self.predict(some, gone))
                check_aligned(parts[-1], gone)
        return torch.cat(parts).detach().float().cpu()

    def activations(self, content: Tensor, masked: Tensor) -> dict[str, Tensor]:
        """Hidden states after every layer, (rows, tokens, width)."""
        with capture(self.model, list(self.layers), attention=False) as cache:
            self.predictions(content, masked)
        activations = {}
        for layer in self.layers:
            parts = cache.hidden[layer]
            states = torch.cat(parts) if isinstance(parts, list) else parts
            if states.shape[:2] != masked.shape:
                raise UserError(
                    f"model: {layer} returns {tuple(states.shape)}, not one vector per token of {tuple(masked.shape)}."
                )
            activations[layer] = states.float().cpu()
        return activations

    def is_noisy(self) -> bool:
        """Whether two forward passes on the same input differ."""
        masked = self.draw_mask(0.5)[:1]
        return not torch.equal(self.predictions(self.content[:1], masked), self.predictions(self.content[:1], masked))

    def targets(self) -> Tensor:
        self.model.eval()
        with torch.no_grad():
            return torch.cat([self.target(part) for part in self.content.split(BATCH)]).float().cpu()

    def with_rows(self, rows: int) -> AuditTarget:
        return replace(self, content=self.content[:rows])
