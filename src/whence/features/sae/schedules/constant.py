"""All from the beginning."""

from __future__ import annotations

from whence.features.sae.schedules.base import Schedule


class Constant(Schedule):
    """Position counts fully from the first step on."""
