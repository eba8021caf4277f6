"""A signal at any resolution, from learnable position tokens."""

from typing import TYPE_CHECKING

from whence.lazy import lazily

if TYPE_CHECKING:
    from whence.fields.api import RenderedImage, load, render_image, train
    from whence.fields.model import FieldModel

__all__ = ["FieldModel", "RenderedImage", "load", "render_image", "train"]

_MODULES = {"FieldModel": "whence.fields.model"}
__getattr__, __dir__ = lazily(__name__, {name: _MODULES.get(name, "whence.fields.api") for name in __all__})
