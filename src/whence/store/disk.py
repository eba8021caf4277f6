"""All access to the files of a store, for reading and for writing.

A store may come from a stranger, so nothing here follows a symbolic link or waits for a device:
- what is opened is a regular file of bounded size, directly in a directory that is no link itself;
- what is written, renamed or deleted is an entry of such a directory.
`Store` refuses links between its root and these directories. Synchronised data survive a power cut.

Tests replace `os` in this module to record calls or to let one fail.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from whence.errors import UserError

TEMPORARY = ".tmp-"
LARGEST_DOCUMENT, LARGEST_CHAIN = 64 * 2**20, 2**30
"""Bytes; limits for files that are read as a whole"""
UNLIMITED = 2**62
KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFREG: "a file",
}


class CorruptFileError(Exception):
    """A stored file differs from what was written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


def kind_of(path: Path | str) -> str:
    """The kind of an entry, without following links: `a file`, `a directory` …; empty if there is none."""
    try:
        return KINDS[stat.S_IFMT(os.lstat(path).st_mode)]
    except (FileNotFoundError, NotADirectoryError):
        return ""


def is_directory(path: Path) -> bool:
    return kind_of(path) == "a directory"


def is_own_file(path: Path) -> bool:
    """Whether it is a file with this name only: the other name of a hard link may be that of a user's file."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def names(path: Path) -> list[str]:
    """Names of the entries of a directory; none if it does not exist."""
    return os.listdir(path) if is_directory(path) else []


def entries(path: Path) -> list[Path]:
    """Paths of the entries of a directory, sorted by name."""
    return [path / name for name in sorted(names(path))]


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a directory. Links are not followed."""
    return os.lstat(path).st_size + sum(map(size_of, entries(path)))


def latest_first(paths: Iterable[Path]) -> list[Path]:
    """Sort by time of modification. Files that no longer exist are left out."""
    times: dict[Path, float] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            times[path] = os.lstat(path).st_mtime
    return sorted(times, key=lambda path: times[path], reverse=True)


@contextmanager
def naming(path: Path) -> Generator[None]:
    """Errors in the body of the `with` statement name the full path of the file."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


# --- reading


@contextmanager
def directory(path: Path) -> Generator[int]:
    """A handle of a directory that is not a link."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except NotADirectoryError:
        raise CorruptFileError(path, f"expected a directory, found {kind_of(path) or 'a file above it'}") from None
    try:
        yield handle
    finally:
        os.close(handle)


def open_file(path: Path, largest: int = UNLIMITED) -> BufferedReader:
    """For reading. `CorruptFileError` unless it is a regular file of at most so many bytes."""
    with naming(path), directory(path.parent) as parent:
        if not stat.S_ISREG(os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise CorruptFileError(path, f"expected a file, found {kind_of(path)}")
        # it may have been replaced meanwhile: neither follow a link nor wait for a pipe
        handle = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    file = os.fdopen(handle, "rb")
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_size > largest:
        file.close()
        raise CorruptFileError(path, f"expected a file of at most {largest} bytes, found {status.st_size}")
    return file


def read(path: Path, largest: int = LARGEST_DOCUMENT) -> bytes:
    """The content of a file, up to the size that it has when it is opened."""
    with open_file(path, largest) as file:
        return file.read(min(os.fstat(file.fileno()).st_size, largest))


# --- changing


def make_directory(path: Path) -> None:
    """Make a directory and its parents, unless it exists; `CorruptFileError` if the entry is no directory."""
    if is_directory(path):
        return
    if not path.parent.exists():
        make_directory(path.parent)
    with naming(path):
        try:
            os.mkdir(path)
        except FileExistsError:
            if not is_directory(path):
                raise CorruptFileError(path, f"expected a directory, found {kind_of(path)}") from None
        else:
            _sync_directory(path.parent)


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace a file such that a kill leaves either the old or the new content; durable: so does a power cut."""
    temporary = f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}"
    with naming(path), directory(path.parent) as parent:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=parent)
        try:
            try:
                write(handle, data)
                if durable:
                    os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(temporary, path.name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise
        if durable:
            os.fsync(parent)


def write_output(path: Path, data: bytes) -> None:
    """Write a file that the user has named, whose directory may be a link."""
    write_atomically(path.absolute().parent.resolve() / path.name, data)


def write(handle: int, data: bytes) -> None:
    """Write all bytes, since one call of `os.write` may write fewer."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def sync(handle: int) -> None:
    os.fsync(handle)


def open_to_append(path: Path, size: int) -> int:
    """A handle of a file that is truncated to its first `size` bytes, and created if it is missing."""
    with naming(path), directory(path.parent) as parent:
        missing = not kind_of(path)
        handle = os.open(path.name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644, dir_fd=parent)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise CorruptFileError(path, f"expected a file, found {kind_of(path)}")
            if status.st_nlink > 1:  # the other name may be that of a user's file
                raise CorruptFileError(path, "expected a file with one name, found a hard link")
            if missing:
                os.fsync(parent)
            os.ftruncate(handle, size)
            os.lseek(handle, size, os.SEEK_SET)
        except BaseException:
            os.close(handle)
            raise
    return handle


def move(path: Path, target: Path) -> None:
    """Rename an entry within one store."""
    with naming(path), directory(path.parent) as source, directory(target.parent) as destination:
        os.rename(path.name, target.name, src_dir_fd=source, dst_dir_fd=destination)
        os.fsync(destination)
        os.fsync(source)


def remove(path: Path) -> None:
    """Delete a file or a link, if it exists."""
    with naming(path), directory(path.parent) as parent, suppress(FileNotFoundError):
        os.unlink(path.name, dir_fd=parent)


def remove_tree(path: Path) -> None:
    """Delete an entry; a directory with its content. Links are deleted, not followed."""
    if is_directory(path):
        shutil.rmtree(path)
    else:
        remove(path)


def _sync_directory(path: Path) -> None:
    with suppress(CorruptFileError), directory(path) as handle:
        os.fsync(handle)


REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the disk is read-only",
    errno.EFBIG: "the file would exceed the size limit of this process",
    errno.EIO: "the disk reports an input/output error",
}


def reason_of(error: OSError) -> str:
    """The reason of an error, for messages."""
    return REASONS.get(error.errno or 0, (error.strerror or str(error)).lower())


def explain(error: Exception) -> str:
    """Any error in one line: errors of the disk in words, others with the name of their class."""
    if isinstance(error, OSError):
        return f"{error.filename}: {reason_of(error)}" if error.filename else reason_of(error)
    plain = isinstance(error, CorruptFileError | UserError)
    return str(error) if plain else f"{type(error).__name__}: {error}"
