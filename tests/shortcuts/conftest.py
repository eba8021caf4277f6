"""These tests are about the search itself."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def declared_baselines() -> None:
    """Nothing is replaced here."""
