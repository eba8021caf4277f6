"""Models built from a configuration, pretrained models, and the capture of activations and attention."""

from typing import TYPE_CHECKING

from whence.lazy import lazily

if TYPE_CHECKING:
    from whence.models.mamba_lm import MambaLM
    from whence.models.sequence import ModelConfig, SequenceModel

__all__ = ["MambaLM", "ModelConfig", "SequenceModel"]

_MODULES = {"MambaLM": "whence.models.mamba_lm"}
__getattr__, __dir__ = lazily(__name__, {name: _MODULES.get(name, "whence.models.sequence") for name in __all__})
