"""whence: a laboratory for positional information in sequence models.

The public index. Parts are imported when first used, so that `import whence` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from whence import arena, encodings, features, fields, kernels, leak, mixers, models, tasks
    from whence.api import compare
    from whence.leak.audit.auditing import audit
    from whence.models.capture import capture

_PARTS = ("arena", "encodings", "features", "fields", "kernels", "leak", "mixers", "models", "tasks")
_NAMES = {"audit": "whence.leak.audit.auditing", "compare": "whence.api", "capture": "whence.models.capture"}

__all__ = [
    "arena",
    "audit",
    "capture",
    "compare",
    "encodings",
    "features",
    "fields",
    "kernels",
    "leak",
    "mixers",
    "models",
    "tasks",
]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"whence.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"whence has no {name!r}; it has {', '.join(__all__)}")
