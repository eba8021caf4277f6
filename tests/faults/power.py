"""The power fails: what was not synchronised is lost, torn or out of order; what was, is there.

`Recorder` notes every change that a command makes to its store. `Disk` plays the first of them back as a file system
with a write-back cache would have kept them:
- the content of a file is what it was at its last fsync, and any part of what was written since: none of it, all, a
  beginning, some of its sectors, or the new size with zeros;
- the entries of a directory are those of its last fsync, and a beginning of the changes since, in their order. A move
  from one directory to another happens in both or in neither.
"""

from __future__ import annotations

import itertools
import os
import pickle
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.calls import replace_os
from tests.faults.subjects import STORE, Subject
from tests.faults.trial import Trial, results
from whence.execution.events import Event, OnEvent, RunEnd
from whence.execution.execute import attempt
from whence.experiments import comparison

SECTOR = 512
Operation = tuple[Any, ...]
"""Its name and its arguments; files and directories are numbers, the folder of the store is in directory 0"""


class Recorder:
    """The module `os` for `whence.store.disk`, for a store that does not exist yet."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._directories: dict[int, dict[str, int]] = {0: {}}
        self._handles: dict[int, tuple[int, int]] = {}
        """By handle: what it is of, and the place in it"""
        self._known = 0
        self._here = Path.cwd()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def install(self) -> None:
        replace_os(self)

    def mark(self, text: str, promised: Mapping[str, str]) -> None:
        """What a user has been told is there from now on."""
        self.operations.append(("mark", text, dict(promised)))

    # --- calls

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        parent, name = self._place(path, dir_fd)
        there = parent is not None and name in self._directories[parent]
        handle = os.open(path, flags, mode, dir_fd=dir_fd)
        self._handles.pop(handle, None)  # an earlier file of this number was closed by others
        if Path(self._here / path) == self._here and dir_fd is None:
            self._handles[handle] = 0, 0
        if parent is not None:
            if not there:
                self._enter("create", parent, name)
            self._handles[handle] = self._directories[parent][name], 0
        return handle

    def close(self, handle: int) -> None:
        self._handles.pop(handle, None)
        os.close(handle)

    def write(self, handle: int, data: Any) -> int:
        count = os.write(handle, data)
        if handle in self._handles:
            node, at = self._handles[handle]
            self.operations.append(("write", node, at, bytes(data[:count])))
            self._handles[handle] = node, at + count
        return count

    def lseek(self, handle: int, at: int, whence: int) -> int:
        at = os.lseek(handle, at, whence)
        if handle in self._handles:
            self._handles[handle] = self._handles[handle][0], at
        return at

    def ftruncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)
        if handle in self._handles:
            self.operations.append(("truncate", self._handles[handle][0], size))

    def fsync(self, handle: int) -> None:
        os.fsync(handle)
        if handle in self._handles:
            node = self._handles[handle][0]
            self.operations.append(("sync directory" if node in self._directories else "sync", node))

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        os.mkdir(path, mode)
        parent, name = self._place(path, None)
        if parent is not None:
            self._directories[self._enter("mkdir", parent, name)] = {}

    def replace(
        self, source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        os.replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        (one, old), (other, new) = self._place(source, src_dir_fd), self._place(target, dst_dir_fd)
        if one is not None and other is not None:
            node = self._directories[one].pop(old)
            self._directories[other][new] = node
            self.operations.append(("rename", one, old, other, new, node))

    rename = replace

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        os.unlink(path, dir_fd=dir_fd)
        self._leave(path, dir_fd)

    def rmdir(self, path: Any) -> None:
        os.rmdir(path)
        self._leave(path, None)

    # --- what is where

    def _enter(self, how: str, parent: int, name: str) -> int:
        self._known += 1
        self._directories[parent][name] = self._known
        self.operations.append((how, parent, name, self._known))
        return self._known

    def _leave(self, path: Any, dir_fd: int | None) -> None:
        parent, name = self._place(path, dir_fd)
        if parent is not None and self._directories[parent].pop(name, None) is not None:
            self.operations.append(("unlink", parent, name))

    def _place(self, path: Any, dir_fd: int | None) -> tuple[int | None, str]:
        """The directory and the name in it; None outside of the store."""
        if dir_fd is not None:
            node = self._handles.get(dir_fd, (None, 0))[0]
            return node, str(path)
        absolute = Path(os.path.normpath(self._here / path))
        if not absolute.is_relative_to(self._here / STORE):
            return None, ""
        *parents, name = absolute.relative_to(self._here).parts
        node = 0
        for part in parents:
            node = self._directories.get(node, {}).get(part, -1)
        return (node if node in self._directories else None), name


def record(subject: Subject, path: Path) -> int:
    """Perform it in this process, stopped once in every run's middle; the operations go into a file."""
    recorder = Recorder()
    stopped: set[str] = set()

    def recorded(configs: Any, store: Any, options: Any, on_event: OnEvent) -> dict[str, RunEnd]:
        ends: dict[str, RunEnd] = {}

        def forward(event: Event) -> None:
            if event.kind == "finished":
                there = results(STORE)
                recorder.mark(event.run, {name: sum_ for name, sum_ in there.items() if name.startswith(event.run)})
            if event.end:
                ends[event.run] = event.end
            on_event(event)

        for config in configs:
            often = itertools.count(0 if config.id not in stopped else -(10**9))
            stopped.add(config.id)
            one_thread = options.model_copy(update={"threads": 1})
            attempt(config, store, one_thread, forward, lambda often=often: next(often) > 3)
        return ends

    comparison.run_all = recorded
    recorder.install()
    for command in subject.commands:
        while command():  # stopped
            pass
        recorder.mark("a command has ended", results(STORE))
    path.write_bytes(pickle.dumps(recorder.operations))
    return 0


@dataclass
class StoredFile:
    """What is certain of a file, and what may have reached the disk since: (place, data), or a size."""

    content: bytes = b""
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)


@dataclass
class StoredDirectory:
    """The same of a directory: by name what an entry is of, and changes of one name each; None: it has gone."""

    entries: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[str, int | None, int]] = field(default_factory=list)
    """name, node, number of the operation"""


class Disk:
    """What it may hold when the power fails after these operations."""

    def __init__(self, operations: list[Operation]) -> None:
        self.files: dict[int, StoredFile] = {}
        self.directories: dict[int, StoredDirectory] = {0: StoredDirectory()}
        self.moves: dict[int, tuple[int, int]] = {}
        """By number of an operation, the two directories of a move"""
        self.promised: dict[str, str] = {}
        for number, (name, *arguments) in enumerate(operations):
            getattr(self, f"_{name.replace(' ', '_')}")(number, *arguments)

    def _mark(self, number: int, text: str, promised: dict[str, str]) -> None:
        self.promised |= promised

    def _create(self, number: int, parent: int, name: str, node: int) -> None:
        self.files[node] = StoredFile()
        self.directories[parent].pending.append((name, node, number))

    def _mkdir(self, number: int, parent: int, name: str, node: int) -> None:
        self.directories[node] = StoredDirectory()
        self.directories[parent].pending.append((name, node, number))

    def _unlink(self, number: int, parent: int, name: str) -> None:
        self.directories[parent].pending.append((name, None, number))

    def _rename(self, number: int, source: int, old: str, target: int, new: str, node: int) -> None:
        self.moves[number] = source, target
        self.directories[target].pending.append((new, node, number))
        self.directories[source].pending.append((old, None, number))

    def _write(self, number: int, node: int, at: int, data: bytes) -> None:
        self.files[node].pending.append((at, data))

    def _truncate(self, number: int, node: int, size: int) -> None:
        self.files[node].pending.append(size)

    def _sync(self, number: int, node: int) -> None:
        file = self.files[node]
        for change in file.pending:
            file.content = _changed(file.content, change)
        file.pending = []

    def _sync_directory(self, number: int, node: int) -> None:
        moved = {change[2] for change in self.directories[node].pending} & set(self.moves)
        others = {other for move in moved for other in self.moves[move]} - {node}
        self._settle(node, len(self.directories[node].pending))
        for other in others:  # the other half of a move, and what was before it
            last = max(index for index, change in enumerate(self.directories[other].pending) if change[2] in moved)
            self._settle(other, last + 1)
        for move in moved:
            del self.moves[move]

    def _settle(self, node: int, count: int) -> None:
        directory = self.directories[node]
        for name, entry, _ in directory.pending[:count]:
            _enter(directory.entries, name, entry)
        del directory.pending[:count]

    def write_to(self, folder: Path, rng: random.Random) -> None:
        """One of the states that are possible."""
        mood = rng.choice(("nothing more", "names only", "anything", "anything"))
        counts = {
            node: {"nothing more": 0, "names only": len(d.pending)}.get(mood, rng.randint(0, len(d.pending)))
            for node, d in self.directories.items()
        }
        kept = {node: {change[2] for change in d.pending[: counts[node]]} for node, d in self.directories.items()}
        halves = {move for move, nodes in self.moves.items() if not all(move in kept[node] for node in nodes)}
        self._write_directory(0, folder, kept, halves, mood, rng)

    def _write_directory(
        self, node: int, path: Path, kept: dict[int, set[int]], halves: set[int], mood: str, rng: random.Random
    ) -> None:
        path.mkdir(exist_ok=True)
        entries = dict(self.directories[node].entries)
        for name, entry, number in self.directories[node].pending:
            if number in kept[node] and number not in halves:
                _enter(entries, name, entry)
        for name, entry in entries.items():
            if entry in self.directories:
                self._write_directory(entry, path / name, kept, halves, mood, rng)
            else:
                (path / name).write_bytes(_content(self.files[entry], mood, rng))


def _enter(entries: dict[str, int], name: str, entry: int | None) -> None:
    if entry is None:
        entries.pop(name, None)
    else:
        entries[name] = entry


def _changed(content: bytes, change: tuple[int, bytes] | int) -> bytes:
    if isinstance(change, int):
        return content[:change].ljust(change, b"\0")
    at, data = change
    return content[:at].ljust(at, b"\0") + data + content[at + len(data) :]


def _content(file: StoredFile, mood: str, rng: random.Random) -> bytes:
    if not file.pending or mood == "nothing more":
        return file.content
    whole = file.content
    for change in file.pending:
        whole = _changed(whole, change)
    how = "zeros" if mood == "names only" else rng.choice(("none", "all", "beginning", "sectors", "zeros"))
    if how == "beginning":
        content = file.content
        for change in file.pending[: rng.randint(0, len(file.pending))]:
            content = _changed(content, change)
        new = max(0, len(content) - len(file.content))
        return content[: len(content) - rng.randint(0, new)]
    if how == "sectors":
        old = file.content.ljust(len(whole), b"\0")
        places = range(0, len(whole), SECTOR)
        return b"".join((whole if rng.random() < 0.5 else old)[at : at + SECTOR] for at in places)
    zeros = file.content[: len(whole)].ljust(len(whole), b"\0")
    return {"none": file.content, "all": whole, "zeros": zeros}[how]


def cut(trial: Trial, number: int) -> None:
    operations: list[Operation] = pickle.loads(trial.of.recording.read_bytes())
    at = trial.rng.randint(1, len(operations))
    failed = Disk(operations[:at])
    failed.write_to(trial.folder, trial.rng)
    trial.told = f"after operation {at} of {len(operations)}: {operations[at - 1][:4]}"
    trial.check_kept(failed.promised, "after the power cut")
    if trial.store.exists():
        trial.look("runs list", "runs verify")
    kept = results(trial.store)
    trial.go_on()
    trial.check_kept(kept, "after the same command")
    trial.verify()
    trial.check_outside()
