"""The one place that decides where tensors live."""

from __future__ import annotations

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
        raise UserError(f"device: {name!r} is not available on this machine. Allowed: auto, {there}.", field="device")
    return torch.device(name)
