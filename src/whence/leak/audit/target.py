"""The interface between audits and models: how tokens are masked, where they are, and what is predicted."""

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
    """A model and examples, in the form that audits require.

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
    """Examples, (rows, tokens, …)"""
    predict: Callable[[Tensor, Tensor], Tensor]
    """(content, masked) → predictions (rows, tokens, outputs), which must not depend on masked content"""
    target: Callable[[Tensor], Tensor]
    """content → targets (rows, tokens, outputs)"""
    layers: tuple[str, ...]
    """Names of modules whose outputs are (rows, tokens, width), from the embedded tokens to the last block"""
    mask_module: str | None = None
    """The module whose output contains the mask tokens before position encodings are added; None: unknown"""
    ends: tuple[int, int] = (0, 0)
    """Tokens at the beginning and at the end that are never masked and never shifted, as [CLS] and [SEP]"""
    stride: int = 1
    """Tokens per position: the number of channels where every time step has one token per channel"""
    pattern: Pattern = "random"
    fitted: bool = False
    """The model was not trained to predict the targets: its error is that of the best linear map to them"""
    untrained: Callable[[int], AuditTarget | None] | None = None
    """seed → the same architecture with new weights; None where it cannot be built"""
    mask_description: str = ""
    """The replacement of masked tokens, as a sentence"""
    limits: tuple[str, ...] = ()
    """Sentences on where less than requested is audited"""
    current: dict[str, Tensor] = field(default_factory=dict)
    """While the model runs, its mask under the key `masked`"""

    @property
    def tokens(self) -> int:
        return self.content.shape[1]

    @property
    def position(self) -> Tensor:
        return torch.arange(self.tokens) // self.stride

    @property
    def inner(self) -> slice:
        """The tokens that may be masked."""
        return slice(self.ends[0], self.tokens - self.ends[1])

    @property
    def maskable(self) -> int:
        """The number of tokens that may be masked."""
        return max(0, self.tokens - sum(self.ends))

    def draw_mask(self, ratio: float, seed: int = 0) -> Tensor:
        masked = torch.zeros(len(self.content), self.tokens, dtype=torch.bool)
        generator = torch.Generator().manual_seed(seed)
        masked[:, self.inner] = draw(generator, len(masked), self.maskable, ratio, self.pattern)
        return masked

    def predictions(self, content: Tensor, masked: Tensor, batch: int = BATCH) -> Tensor:
        """Predictions (rows, tokens, outputs), computed in batches."""
        self.model.eval()
        parts = []
        with torch.no_grad():
            for some, mask in zip(content.split(batch), masked.split(batch), strict=True):
                self.current["masked"] = mask
                parts.append(self.predict(some, mask))
                check_aligned(parts[-1], mask)
        return torch.cat(parts).detach().float().cpu()

    def activations(self, content: Tensor, masked: Tensor) -> dict[str, Tensor]:
        """Activations after every layer, (rows, tokens, width)."""
        with capture(self.model, list(self.layers), attention=False) as cache:
            self.predictions(content, masked)
        activations = {}
        for layer in self.layers:
            parts = cache.hidden[layer]
            output = torch.cat(parts) if isinstance(parts, list) else parts
            if output.shape[:2] != masked.shape:
                raise UserError(
                    f"layers: expected {layer} to return one vector per token, of shape {tuple(masked.shape)} and "
                    f"width, got {tuple(output.shape)}. Pass layers= with the names of other modules."
                )
            activations[layer] = output.float().cpu()
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
