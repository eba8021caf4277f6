"""Pathways through which position enters a model: one file for each kind, with its detector."""

from __future__ import annotations

from whence.leak.pathways.base import Detector
from whence.registry import Registry

PATHWAYS: Registry[Detector] = Registry(__name__, Detector)
