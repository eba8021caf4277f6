"""What was costly to make, kept for all tabs: the latest few."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Latest(Generic[K, V]):
    """Streamlit's caches would keep what is drawn meanwhile, too; a progress bar is to be drawn once."""

    def __init__(self, most: int) -> None:
        self._most, self._kept, self._lock = most, OrderedDict[K, V](), threading.Lock()
        self._making = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: K, value: V) -> V:
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return value

    def of(self, key: K, make: Callable[[], V]) -> V:
        """The one that all share."""
        with self._making:
            found = self.get(key)
            return self.put(key, make()) if found is None else found
