"""Locks of directories: one writer each, which notices when its directory was moved or replaced.

The lock is held on the directory itself, since a lock file could be deleted. Some network file systems lock files only;
there it is held on a file `lock` in the directory, and a writer stops when that file is deleted.
The kernel releases the lock when the process dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from whence.store import disk

FILE = "lock"
PATIENCE = 1.0
"""Seconds to wait for a lock, since a reader holds it for a moment only"""
NOT_FOR_FOLDERS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)


class LockedError(Exception):
    """Another process is writing to this directory."""


class LockLostError(LockedError):
    """The directory was moved or replaced, or its lock file deleted, while this process was writing."""


@dataclass(frozen=True)
class Lock:
    """A lock that is held."""

    path: Path
    """The locked directory, or the lock file in it"""
    handle: int

    def check(self) -> None:
        """Raise `LockLostError`, before anything is written, if the locked entry is no longer at its path."""
        held = os.fstat(self.handle)
        try:
            there = os.lstat(self.path)
        except OSError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            raise LockLostError(f"{self.path} was moved or deleted while it was being written")


@contextmanager
def lock_folder(folder: Path) -> Generator[Lock]:
    """Lock a directory for writing; `LockedError` if another process has locked it."""
    with disk.directory(folder) as handle:
        try:
            held = _flock(handle)
        except OSError as error:
            if error.errno not in NOT_FOR_FOLDERS:
                raise
            with lock_file(folder / FILE) as lock:
                yield lock
            return
        if not held:
            raise LockedError(folder.name)
        lock = Lock(folder, handle)
        _check_taken(lock)
        yield lock


@contextmanager
def lock_file(path: Path, patience: float = PATIENCE) -> Generator[Lock]:
    """Lock a file for writing, which is created if it is missing."""
    handle = disk.open_to_append(path, 0)
    try:
        if not _flock(handle, patience):
            raise LockedError(path.parent.name)
        lock = Lock(path, handle)
        _check_taken(lock)
        yield lock
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Tests with a shared lock, so that many processes may ask at once, also in a read-only store."""
    try:
        with disk.directory(folder) as handle:
            return _is_locked(handle)
    except OSError as error:
        if error.errno not in NOT_FOR_FOLDERS:
            return False
    except disk.CorruptFileError:
        return False
    try:
        with disk.open_file(folder / FILE) as file:
            return _is_locked(file.fileno())
    except (OSError, disk.CorruptFileError):
        return False


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _check_taken(lock: Lock) -> None:
    """Check that the directory was not moved between opening and locking it."""
    try:
        lock.check()
    except LockLostError:
        raise LockedError(lock.path.name) from None


def _flock(handle: int, patience: float = PATIENCE) -> bool:
    deadline = time.monotonic() + patience
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
