from pathlib import Path

import pytest

from whence.runs.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty one, ready to be written."""
    store = Store(tmp_path / "store")
    store.prepare()
    return store
