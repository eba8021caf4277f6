"""Packages whose public names are imported when first used, so that importing the package costs nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        package: its name.
        names: by public name, the module that defines it; empty for a subpackage.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"{package} has no {name!r}; it has {', '.join(sorted(names))}")
        if module := names[name]:
            return getattr(importlib.import_module(module), name)
        return importlib.import_module(f"{package}.{name}")

    return get, lambda: sorted(names)
