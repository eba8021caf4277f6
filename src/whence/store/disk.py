"""The only way to the files of a store: every byte that is read, and every change, passes through these functions.

A store may come from a stranger, so nothing here follows a symbolic link or waits for a device:
- what is opened is a regular file of bounded size, directly in a directory that is no link itself;
- what is written, renamed or deleted is an entry of such a directory.
`Store` refuses links between its root and these directories. What was synchronised survives a power cut.

Tests replace `os` here by one that records the calls, or lets one of them fail.
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
"""In bytes: of what is read as a whole, before it is read"""
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
    """A stored file is not what was written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


def kind_of(path: Path | str) -> str:
    """What an entry is, itself rather than what it links to: `a file`, `a directory` …; empty if there is none."""
    try:
        return KINDS[stat.S_IFMT(os.lstat(path).st_mode)]
    except (FileNotFoundError, NotADirectoryError):
        return ""


def is_directory(path: Path) -> bool:
    return kind_of(path) == "a directory"


def names(path: Path) -> list[str]:
    """Of what is in a directory; none if there is no such directory."""
    return os.listdir(path) if is_directory(path) else []


def entries(path: Path) -> list[Path]:
    """The same, as paths in the order of their names."""
    return [path / name for name in sorted(names(path))]


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a directory. Links count as themselves."""
    return os.lstat(path).st_size + sum(map(size_of, entries(path)))


def latest_first(paths: Iterable[Path]) -> list[Path]:
    """By when they were last written. What has gone meanwhile is left out."""
    times: dict[Path, float] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            times[path] = os.lstat(path).st_mtime
    return sorted(times, key=lambda path: times[path], reverse=True)


@contextmanager
def naming(path: Path) -> Generator[None]:
    """Errors name the file by its whole path."""
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
    """As many bytes as it has when it is opened, though it may grow meanwhile. Memory is taken for no more."""
    with open_file(path, largest) as file:
        return file.read(min(os.fstat(file.fileno()).st_size, largest))


# --- changing


def make_directory(path: Path) -> None:
    """With those above it. What is there is left alone; `CorruptFileError` if it is something else."""
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
    """Either the old file or the whole new one is there, whenever the process dies; durable: also after a power cut."""
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
    """A file that the user has named, whose folder may be a link."""
    write_atomically(path.absolute().parent.resolve() / path.name, data)


def write(handle: int, data: bytes) -> None:
    """All of it: one call may write less."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def sync(handle: int) -> None:
    os.fsync(handle)


def open_to_append(path: Path, size: int) -> int:
    """A handle of a file that is cut to its first `size` bytes, and made if it is missing."""
    with naming(path), directory(path.parent) as parent:
        missing = not kind_of(path)
        handle = os.open(path.name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644, dir_fd=parent)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise CorruptFileError(path, f"expected a file, found {kind_of(path)}")
            if status.st_nlink > 1:  # the other name may be that of a user's file
                raise CorruptFileError(path, "expected a file of one name, found a hard link")
            if missing:
                os.fsync(parent)
            os.ftruncate(handle, size)
            os.lseek(handle, size, os.SEEK_SET)
        except BaseException:
            os.close(handle)
            raise
    return handle


def move(path: Path, target: Path) -> None:
    """Both in directories of one store."""
    with naming(path), directory(path.parent) as source, directory(target.parent) as destination:
        os.rename(path.name, target.name, src_dir_fd=source, dst_dir_fd=destination)
        os.fsync(destination)
        os.fsync(source)


def remove(path: Path) -> None:
    """A file, or a link itself. Missing is fine."""
    with naming(path), directory(path.parent) as parent, suppress(FileNotFoundError):
        os.unlink(path.name, dir_fd=parent)


def remove_tree(path: Path) -> None:
    """A directory with all that is in it, or anything else. Links in it are deleted, not followed."""
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
    errno.EFBIG: "the file would be larger than this process may write",
    errno.EIO: "the disk does not work",
}


def reason_of(error: OSError) -> str:
    """In words for a user."""
    return REASONS.get(error.errno or 0, (error.strerror or str(error)).lower())


def explain(error: Exception) -> str:
    """Any error, in one line: of the disk in words, others by their class."""
    if isinstance(error, OSError):
        return f"{error.filename}: {reason_of(error)}" if error.filename else reason_of(error)
    plain = isinstance(error, CorruptFileError | UserError)
    return str(error) if plain else f"{type(error).__name__}: {error}"
