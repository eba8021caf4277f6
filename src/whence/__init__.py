"""Measure how sequence models use position: positional encodings, position leakage, features and fields.

`compare` runs one of the four instruments (arena, leak, features, fields), `audit` measures position leakage in a
masked model, and `capture` records attention and hidden states. The other names are packages. Each is imported when it
is first used, so that `import whence` takes milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.lazy import lazily

__version__ = "0.1.0"

if TYPE_CHECKING:
    from whence import arena, encodings, features, fields, kernels, leak, mixers, models, tasks
    from whence.api import compare
    from whence.leak.audit.auditing import audit
    from whence.models.capture import capture

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

_MODULES = {"audit": "whence.leak.audit.auditing", "compare": "whence.api", "capture": "whence.models.capture"}
__getattr__, __dir__ = lazily(__name__, {name: _MODULES.get(name, "") for name in __all__})
