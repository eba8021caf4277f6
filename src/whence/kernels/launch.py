"""Compile a kernel at its first use, keep the result on disk, and run it on the threads that torch uses.

torch's own threads, because they go on spinning for milliseconds after each of torch's operations: threads of our own
would have to share the cores with them (measured: 40 % slower). The compiled code runs without Python's lock.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from numba.core import config, event
from numba.core.errors import NumbaError
from torch import Tensor

_lock = threading.Lock()
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Kernel:
    """A function for Numba that takes job numbers from a shared counter until none is left.

    Its first argument is that counter. Threads may come and go, and get more or fewer jobs: what a job computes
    must not depend on who does it.
    """

    def __init__(self, function: Callable[..., None], signature: Any) -> None:
        self.function, self.signature = function, signature
        self.compiled: Callable[..., None] | None = None

    def __call__(self, jobs: int, *arguments: Tensor | bool | int) -> None:
        if self.compiled is None:
            with _lock:
                self.compiled = self.compiled or _compile(self.function, self.signature)
        work = self.compiled
        plain = [value.detach().numpy() if isinstance(value, Tensor) else value for value in arguments]
        counter = np.zeros(1, np.int64)
        on_threads(min(torch.get_num_threads(), jobs), lambda: work(counter, *plain))


def on_threads(count: int, work: Callable[[], None]) -> None:
    """Call `work` once on each of `count` threads, this one included, and wait for all."""
    failures: list[BaseException] = []

    def once(_: Any = None) -> None:
        try:
            work()
        except BaseException as failure:  # an exception crosses neither threads nor the C code of OpenMP
            failures.append(failure)

    openmp = _openmp()
    if count <= 1:
        once()
    elif openmp:
        openmp(_Callback(once), None, count, 0)
    else:
        threads = [threading.Thread(target=once) for _ in range(count - 1)]
        for thread in threads:
            thread.start()
        once()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


@cache
def _openmp() -> Callable[..., None] | None:
    """The entry to the OpenMP runtime that torch itself is linked to; None where torch uses another one."""
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        library = Path(torch.__file__).parent / "lib" / name
        if library.exists():
            try:
                parallel = ctypes.CDLL(str(library)).GOMP_parallel  # looked up in its dependencies too
            except (OSError, AttributeError):
                return None
            parallel.argtypes, parallel.restype = [_Callback, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
            return parallel
    return None


def cache_folder() -> Path:
    """Named after the sources of the kernels: Numba itself looks only at the file that holds the function."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "whence" / f"kernels-{digest.hexdigest()[:12]}"


def _compile(function: Callable[..., None], signature: Any) -> Callable[..., None]:
    name = f"{function.__module__.rsplit('.', 2)[-2]} ({function.__name__})"
    try:
        folder = cache_folder()
        try:
            return _compile_into(folder, name, function, signature)
        except (OSError, NumbaError):
            raise
        except Exception:  # a damaged file, else every process to come would compile again
            shutil.rmtree(folder, ignore_errors=True)
            return _compile_into(folder, name, function, signature)
    except NumbaError:
        raise
    except Exception as error:  # no home, an unwritable folder, a full disk: compile without
        why = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}".splitlines()[0]
        with _announced(f"{name}: it cannot be kept ({why})"):
            return numba.njit(signature, nogil=True)(function)


def _compile_into(folder: Path, name: str, function: Callable[..., None], signature: Any) -> Callable[..., None]:
    folder.mkdir(parents=True, exist_ok=True)
    with _announced(f"{name}: once, then kept in {folder}"), _numba_caches_in(folder):
        return numba.njit(signature, nogil=True, cache=True)(function)


@contextmanager
def _numba_caches_in(folder: Path) -> Iterator[None]:
    """Numba reads the place from its configuration at the moment a function is decorated."""
    settings: Any = config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(folder)
    try:
        yield
    finally:
        settings.CACHE_DIR = before


@contextmanager
def _announced(what: str) -> Iterator[None]:
    """Say on stderr that something is compiled, if it comes to that."""
    listener = _Announcement(what)
    event.register("numba:compile", listener)
    try:
        yield
    finally:
        event.unregister("numba:compile", listener)


class _Announcement(event.Listener):
    def __init__(self, what: str) -> None:
        self.what: str | None = what

    def on_start(self, event: event.Event) -> None:
        if self.what:
            print(f"whence: compiling {self.what}", file=sys.stderr, flush=True)
        self.what = None

    def on_end(self, event: event.Event) -> None:
        pass
