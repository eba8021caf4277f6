"""Mixers, one file each: layers that exchange information between the positions of a sequence.

A mixer maps (batch, length, d_model) to the same shape, and declares the hooks and masks that it supports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from torch import Tensor, nn

from whence.encodings.base import Encoding
from whence.registry import Choice, Registry, Variant, construction

Kind = Literal["causal", "bidirectional", "prefix"]


class Mixer(Variant, nn.Module):
    """Base class of mixers, which exchange information between the positions of a sequence.

    A mixer is a module that maps (batch, length, d_model) to the same shape. `contexts` prepares the second argument of
    `forward` for all layers at once.

    Example:
        >>> whence.mixers.Mamba.kinds
        ('causal',)
    """

    hooks: ClassVar[tuple[str, ...]] = ("embed",)
    """Hooks of an encoding that the mixer supports."""
    kinds: ClassVar[tuple[Kind, ...]] = ("causal",)
    """Supported values of the model's `attention`. The first is the default."""

    @classmethod
    def contexts(
        cls,
        encodings: Sequence[Encoding],
        positions: Tensor,
        kind: Kind,
        *,
        valid: Tensor | None = None,
        prefix: Tensor | None = None,
        explicit: bool = False,
    ) -> list[Any]:
        """The second argument of forward, one per encoding, computed once and shared by the layers.

        By default the mask of valid tokens, which suffices for mixers that use the order of tokens alone.
        """
        if prefix is not None:
            raise ValueError(f"{cls.name} takes no prefix lengths")
        return [valid] * len(encodings)

    @classmethod
    def usage(cls) -> list[str]:
        return [
            f">>> mixer = {construction(cls, 'whence.mixers')}",
            ">>> positions, encoding = torch.arange(6)[None], whence.encodings.NoPE()",
            f'>>> [context] = mixer.contexts([encoding], positions, "{cls.kinds[0]}")',
            ">>> mixer(torch.randn(1, 6, 16), context).shape  # (batch, length, d_model)",
            "torch.Size([1, 6, 16])",
        ]

    @classmethod
    def looks_ahead(cls, kind: Kind) -> bool:
        """Whether a token receives information from later tokens."""
        return kind == "bidirectional"

    def forward(self, x: Tensor, context: Any, /) -> Tensor:
        raise NotImplementedError


MIXERS: Registry[Mixer] = Registry(__name__, Mixer)
MixerChoice = Annotated[Choice[Mixer], MIXERS]


def __getattr__(name: str) -> type[Mixer]:
    return MIXERS.attribute(name)


def __dir__() -> list[str]:
    return ["MIXERS", "Mixer", *MIXERS.public_names()]
