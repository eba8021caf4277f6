"""What a store holds is changed between two commands: by a broken disk, by a mistake, or by a stranger."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.in_process import end_at
from tests.faults.subjects import SHORT, STORE, stopped_after
from tests.faults.trial import Trial, finished
from whence.store import disk
from whence.store.files import write_sealed

UNCHECKED = ("progress.txt", "log.txt", "turn")
"""Files of jobs that are shown and never relied upon"""
HARMLESS = ("log.jsonl", "checkpoint-")
"""Files of a run whose damage costs no training once it has finished"""
HUGE = 2**40
Damage = Callable[[random.Random, Path], None]
"""Done to one file"""


# --- bytes


def flip(rng: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 1, 30))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def truncate(rng: random.Random, path: Path) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def extend(rng: random.Random, path: Path) -> None:
    with path.open("ab") as file:
        file.write(rng.choice((rng.randbytes(rng.randint(1, 2000)), b"\0" * 512, b"{}\n")))


def zero(rng: random.Random, path: Path) -> None:
    """A sector, or everything."""
    data = bytearray(path.read_bytes())
    at = 512 * rng.randrange(len(data) // 512 + 1) if rng.random() < 0.5 else 0
    end = at + 512 if at else len(data)
    data[at:end] = bytes(len(data[at:end]))
    path.write_bytes(data)


def empty(rng: random.Random, path: Path) -> None:
    os.truncate(path, 0)


def delete(rng: random.Random, path: Path) -> None:
    path.unlink()


def huge(rng: random.Random, path: Path) -> None:
    os.truncate(path, HUGE)


def nest(rng: random.Random, path: Path) -> None:
    """Brackets, in a document that is sealed if the one before was."""
    depth = rng.choice((100, 100_000))
    if _sealed(path) and depth < 1000:
        body: Any = {}
        for _ in range(depth):
            body = {"a": body}
        _seal(path, body)
    else:
        path.write_bytes(b"[" * depth + b"]" * rng.choice((0, depth)) + b"\n")


# --- something else in place of a file


def hard_link(rng: random.Random, path: Path) -> None:
    os.link(_mine(path) / "letter.txt", path)


def directory(rng: random.Random, path: Path) -> None:
    (path / "inside").mkdir(parents=True)


def pipe(rng: random.Random, path: Path) -> None:
    os.mkfifo(path)


def listening(rng: random.Random, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(path.parent)  # addresses are short
        server.bind(path.name)
        os.chdir(here)


def link(rng: random.Random, path: Path) -> None:
    """To a user's file or folder, to a device, to itself, to nothing, or to where the file is now."""
    aims = ("letter.txt", "deep", "", "/dev/zero", "/dev/stdin", path.name, "nowhere")
    aim = rng.choice(aims)
    path.symlink_to(aim if aim.startswith("/") or aim in aims[-2:] else _mine(path) / aim)


def _mine(path: Path) -> Path:
    return next(each for each in path.parents if each.name == STORE.name).parent / "mine"


# --- a trial


@dataclass(frozen=True)
class Found:
    """A file that can be damaged, and what may be run again because of it."""

    path: Path
    touched: frozenset[str]


def damaged(damage: Damage, *, replaces: bool = False, seen: bool = True) -> Callable[[Trial, int], None]:
    """replaces: the file has gone before. seen: `runs verify` must report it."""

    def run(trial: Trial, number: int) -> None:
        begin(trial)
        spared = finished(trial.store)
        found = choose(trial)
        trial.told += f", {found.path.relative_to(trial.store)}"
        before = found.path.read_bytes()
        if replaces:
            found.path.unlink()
        elif not before and damage is not extend:
            trial.skipped = "the file is empty"
            return
        damage(trial.rng, found.path)
        same = found.path.is_file() and not found.path.is_symlink() and found.path.stat().st_size < HUGE
        if same and found.path.read_bytes() == before:
            trial.skipped = "the file is as before"
            return
        expected = seen and found.path.name not in UNCHECKED and not _earlier(found.path, before)
        carry_on(trial, {run: stamp for run, stamp in spared.items() if run not in found.touched}, seen=expected)

    return run


def _earlier(path: Path, before: bytes) -> bool:
    """Whether a file of an unfinished run was like this a little earlier, so that there is nothing to report.

    Metrics that a checkpoint refers to were not.
    """
    unfinished = not (path.parent / "model.safetensors").exists()
    grows = path.name == "log.jsonl" or (path.name == "metrics.jsonl" and not any(path.parent.glob("checkpoint-*")))
    if not (unfinished and grows and path.is_file() and path.stat().st_size < len(before)):
        return False
    now = path.read_bytes()
    return before.startswith(now) and now[-1:] in (b"", b"\n")


def begin(trial: Trial) -> None:
    """A store that is finished, or where a command was killed or stopped."""
    trial.told = trial.rng.choice(("finished", "killed", "stopped"))
    if trial.told == "finished":
        shutil.copytree(trial.of.finished, trial.store)
    elif trial.told == "killed":
        at = trial.rng.randrange(len(trial.of.calls))
        trial.attempt("killed", lambda: end_at(at, trial.subject))
        trial.told += f" before call {at}"
    else:
        trial.attempt("stopped", lambda: stopped_after(trial.rng.randint(0, SHORT)) or trial.subject.perform())
    if not any(trial.store.glob("runs/*/status.json")):
        shutil.copytree(trial.of.finished, trial.store, dirs_exist_ok=True)
        trial.told = "finished"


def choose(trial: Trial) -> Found:
    """First what kind of file, then which."""
    by_name: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(trial.store.rglob("*")):
        leftover = path.name.startswith(disk.TEMPORARY) or path.parent.name == "damaged"
        if path.is_file() and not leftover:
            by_name[path.name.split("-")[0]].append(path)
    path = trial.rng.choice(by_name[trial.rng.choice(sorted(by_name))])
    of_run = path.parent.parent.name == "runs" and not path.name.startswith(HARMLESS)
    return Found(path, frozenset({path.parent.name} if of_run else ()))


def carry_on(trial: Trial, spared: dict[str, Any], *, seen: bool) -> None:
    """Commands that read, perhaps a repair, and the same command."""
    run = trial.rng.choice(sorted(spared) or ["0"])
    codes = trial.look("runs verify", "runs list", f"runs show {run}", "runs export")
    if seen and codes.get("runs verify") == 0:
        trial.problem("silent change", "'runs verify' does not report it")
    if trial.rng.random() < 0.5:
        trial.repair("repair")
    ended = trial.attempt("same", trial.subject.perform)
    trial.told += f", then exit code {ended.code}: {ended.err[-200:].decode(errors='replace')}"
    if ended.code == 0:
        trial.check_results("although the exit code was 0")
    elif not ended.err.strip() and trial.subject.name != "job":  # which stores its reason
        trial.problem("silent change", f"exit code {ended.code} without a word")
    trial.repair("repair-after")
    trial.go_on(spared)
    trial.verify()
    trial.check_outside()


# --- documents that are sealed and wrong


VALUES: tuple[Any, ...] = (None, -1, 10**30, 1e300, "x" * 5000, [], {}, [[]], "\x1b[2J", "../../mine/letter.txt", True)


def hostile(trial: Trial, number: int) -> None:
    """With all checksums, as a stranger could write it: refused, or taken for what it says."""
    begin(trial)
    spared = finished(trial.store)
    candidates = [path for path in sorted(trial.store.rglob("*.json")) if _sealed(path)]
    path = trial.rng.choice(candidates)
    before = path.read_bytes()
    body = json.loads(before)["body"]
    trial.told += f", {path.relative_to(trial.store)}: {_change(trial.rng, body)}"
    _seal(path, trial.rng.choice(VALUES) if trial.rng.random() < 0.2 else body)
    trial.look("runs list", f"runs show {path.parent.name}", "runs export", "runs verify")
    trial.attempt("same", trial.subject.perform)
    trial.check_outside()
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(before)
    trial.repair("repair")
    trial.go_on({run: stamp for run, stamp in spared.items() if run != path.parent.name})


def _change(rng: random.Random, body: Any) -> str:
    """One field, at any depth."""
    place = ""
    while isinstance(body, dict | list) and body:
        key = rng.choice(sorted(body)) if isinstance(body, dict) else rng.randrange(len(body))
        place += f".{key}"
        if not isinstance(body[key], dict | list) or not body[key] or rng.random() < 0.3:
            value = rng.choice(VALUES)
            body[key] = value
            return f"{place} = {str(value)[:40]!r}"
        body = body[key]
    return "as it was"


def _sealed(path: Path) -> bool:
    return b',"sha256":"' in path.read_bytes()[-100:]


def _seal(path: Path, body: Any) -> None:
    of = json.loads(path.read_bytes())["of"]
    write_sealed(path, body, owner=of.rsplit("/", 1)[0])


# --- runs, and other stores


def exchanged(trial: Trial, number: int) -> None:
    """Two files of one name, or two whole runs; or what another seed left in place of this one's."""
    begin(trial)
    spared = finished(trial.store)
    whole = trial.rng.random() < 0.3
    here = sorted(trial.store.glob("runs/*" if whole else "runs/*/*"))
    others = trial.rng.choice(([trial.store], [trial.of.foreign]))[0]
    pairs = [
        (one, other)
        for one in here
        for other in sorted(others.glob("runs/*" if whole else "runs/*/*"))
        if one != other and (whole or one.name.split("-")[0] == other.name.split("-")[0])
    ]
    if not pairs:
        trial.skipped = "nothing to exchange"
        return
    one, other = trial.rng.choice(pairs)
    trial.told += f", {one.relative_to(trial.store)} and {other.relative_to(others)} of {others.parent.name}"
    copy = shutil.copytree if whole else shutil.copy
    aside = trial.folder / "out" / "aside"
    one.rename(aside)
    # two checkpoints of one run only change places: a copy under the other's name would be the other
    keeps_name = whole or trial.rng.random() < 0.5 or one.parent == other.parent
    copy(other, one if keeps_name else one.with_name(other.name))
    if others == trial.store:
        shutil.rmtree(other) if whole else other.unlink()
        copy(aside, other)
    changed = {path.name if whole else path.parent.name for path in (one, other)}
    harmless = not whole and one.name.startswith(HARMLESS)
    left = {run: stamp for run, stamp in spared.items() if harmless or run not in changed}
    carry_on(trial, left, seen=True)


def run_replaced(trial: Trial, number: int) -> None:
    """The whole folder of a run becomes something else."""
    begin(trial)
    spared = finished(trial.store)
    runs = sorted(trial.store.glob("runs/*"))
    if not runs:
        trial.skipped = "no run has begun"
        return
    path = trial.rng.choice(runs)
    damage = trial.rng.choice((pipe, listening, link, hard_link, directory))
    shutil.move(path, trial.folder / "out" / "aside")
    if damage is link:
        shutil.copytree(trial.folder / "out" / "aside", trial.folder / "mine" / path.name)
        trial.outside = trial.snapshot()
        path.symlink_to(trial.folder / "mine" / path.name)
    else:
        damage(trial.rng, path)
    trial.told += f", {path.name}: {damage.__name__}"
    carry_on(trial, {run: stamp for run, stamp in spared.items() if run != path.name}, seen=True)


PLACES = ("runs", "damaged", "reports", "artifacts", "activations", "labelled", "jobs")


def place_linked(trial: Trial, number: int) -> None:
    """A whole place of the store is a link to a user's folder: everything that would use it is refused."""
    begin(trial)
    place = PLACES[number % len(PLACES)]
    path = trial.store / place
    aside = trial.folder / "out" / "aside"
    if path.exists():
        path.rename(aside)
        shutil.copytree(aside, trial.folder / "mine" / "removing-me", dirs_exist_ok=True)
    trial.outside = trial.snapshot()
    aim = trial.rng.choice(("mine/removing-me", "mine", "mine/letter.txt"))
    path.symlink_to(trial.folder / aim)
    trial.told += f", {place} → {aim}"
    trial.look("runs list", "runs verify", "runs export", "runs gc --yes")
    trial.repair("repair")
    trial.attempt("same", trial.subject.perform)
    trial.check_outside()
    path.unlink(missing_ok=True)
    if aside.exists():
        shutil.rmtree(path, ignore_errors=True)
        aside.rename(path)
    trial.go_on()
