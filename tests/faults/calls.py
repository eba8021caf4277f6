"""The calls by which `whence.store.disk` changes something: to count them, to let one fail, to end at one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from whence.store import disk

CHANGING = ("open", "write", "fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "ftruncate")
Before = Callable[[str, tuple[Any, ...]], None]
"""Called with the name and the arguments of a call before it is made; what it raises is the call's error"""


class WatchedOs:
    """The module `os` for `whence.store.disk`."""

    def __init__(self, before: Before, longest_write: Callable[[int], int] = lambda size: size) -> None:
        self._before, self._longest_write = before, longest_write

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CHANGING:
            return real

        def call(*arguments: Any, **keywords: Any) -> Any:
            if name != "open" or arguments[1] & os.O_CREAT:
                self._before(name, arguments)
            if name == "write":
                arguments = (arguments[0], arguments[1][: self._longest_write(len(arguments[1]))])
            return real(*arguments, **keywords)

        return call

    def install(self) -> None:
        """For the rest of this process."""
        replace_os(self)


def replace_os(calls: Any) -> None:
    """Let `whence.store.disk` call this instead of the module `os`, for the rest of this process."""

    def remove_tree(path: Path) -> None:
        """As `shutil.rmtree`, by the same calls."""
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(Path(entry.path))
            else:
                calls.unlink(entry.path)
        calls.rmdir(str(path))

    disk.os = calls
    disk.shutil = SimpleNamespace(rmtree=remove_tree)
