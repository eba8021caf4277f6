"""A store from somebody else: any of its files spoiled, as bytes or as a document that is sealed again correctly."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import guard, mutation, samples
from tests.fuzz.guard import Case, Run
from tests.fuzz.targets import target
from tests.fuzz.targets.words import STORED, in_folder
from whence.store.files import FORMAT, canonical, chain_start, digest
from whence.store.runs import ID, Store

LARGE = 300_000
"""Bytes of a file that is not spoiled here: pages"""


def sealed(text: str, of: Any) -> bytes:
    """A document whose body is any text, with the checksum and the address that belong to it."""
    whole = f'"body":{text},"format":{FORMAT},"of":{canonical(of)}'
    return mutation.encoded(f'{{{whole},"sha256":"{digest(mutation.encoded(whole))}"}}\n')


def chained(path: Path, records: Sequence[Any], random: Random) -> bytes:
    """Records that continue each other, whatever they are."""
    lines, last = [], chain_start(path)
    for record in records:
        text = mutation.dumps(random, record)
        try:
            text = canonical(json.loads(text))
        except (ValueError, RecursionError):
            text = text.replace("\n", " ")
        last = digest(mutation.encoded(last + text))[:16]
        lines.append(mutation.encoded(f'{{"chain":"{last}","record":{text}}}\n'))
    return b"".join(lines)


def spoiled_file(random: Random, path: Path, others: Sequence[Any]) -> bytes:
    """What could be in place of a stored file."""
    data = path.read_bytes()
    if random.random() < 0.3 or path.suffix not in (".json", ".jsonl"):
        return mutation.spoil(random, data)
    if path.suffix == ".jsonl":
        records = [json.loads(line)["record"] for line in data.splitlines()]
        return chained(path, mutation.spoil_document(random, records, others) or [], random)
    document = json.loads(data)
    if "sha256" not in document:  # configurations and looks, which hold their checksum in their names
        return mutation.spoil_text(random, document, others)
    body = mutation.spoil_document(random, document["body"], others)
    return sealed(mutation.dumps(random, body), document["of"] if random.random() < 0.97 else mutation.value(random))


def addressed(path: Path, data: bytes) -> Path:
    """The name that belongs to other bytes, for files that hold their checksum in their name."""
    stem, _, checksum = path.stem.rpartition("-")
    return path.with_name(f"{stem}-{digest(data)[:16]}{path.suffix}") if len(checksum) == 16 and stem else path


def renamed(random: Random, path: Path) -> Path:
    """A run, a job or an artifact with another config has another id: the names that belong to it."""
    if path.name == "job.json" and random.random() < 0.8:
        try:
            request = json.loads(path.read_bytes())["body"]["request"]
            name = digest(canonical(request))[:12]
        except (ValueError, TypeError, KeyError, RecursionError):
            return path.parent
    elif path.name == "config.json" and path.parent.parent.name == "runs" and random.random() < 0.8:
        try:
            body = json.loads(path.read_bytes())["body"]
            name = digest(canonical({"config": body["config"], "versions": body["versions"]}))[:12]
        except (ValueError, TypeError, KeyError, RecursionError):
            return path.parent
    else:
        return path.parent
    if name == path.parent.name:
        return path.parent
    moved = path.parent.with_name(name)
    path.parent.rename(moved)
    for file in moved.iterdir():  # sealed for the folder it is in now
        # another of them may have been spoiled before, such that it cannot be sealed
        if file.suffix == ".json":
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                document = json.loads(file.read_bytes())
                document["of"] = f"{name}/{file.name}"
                if isinstance(document["body"], dict) and document["body"].get("id"):
                    document["body"]["id"] = name
                file.write_bytes(sealed(canonical(document["body"]), document["of"]))
    return moved


def commands(random: Random, store: Store, spoiled: Path) -> list[list[str]]:
    """Some that read the file, among others."""
    ids = sorted(name for name in os.listdir(store.root / "runs") if ID.fullmatch(name)) or ["0"]
    own = spoiled.parent.name if spoiled.parent.name in ids else random.choice(ids)
    compared = next((path.stem for path in sorted(store.reports.glob("arena-*.json"))), "arena")
    audits = [path.stem for path in sorted(store.artifacts.glob("audit-*"))]
    every = [
        ["runs", "list"],
        ["runs", "list", "--json"],
        ["runs", "show", own],
        ["runs", "show", own, "--json"],
        ["runs", "verify"],
        ["runs", "verify", own, "--json"],
        ["runs", "export"],
        ["runs", "export", "--json"],
        ["runs", "resume", "--print-config"],
        ["runs", "resume", own],
        ["runs", "repair", "--print-config"],
        ["runs", "repair", "--yes", "--retrain"],
        ["runs", "rm", own, "--yes"],
        ["report"],
        ["report", own, "--out", "one.html"],
        ["report", own, "--out", "one.json"],
        ["report", compared, "--out", "all.md"],
        ["report", compared, compared, "--diff"],
        ["features", "collect", "--model", f"run:{own}", "--layer", "1", "--tokens", "200", "--name", "collected"],
        ["features", "train", "--activations", "collected", "--print-config"],
        ["arena", "show", own, "--out", "page.html"],
        ["fields", "show", own],
        ["fields", "analyze", own],
        ["features", "show", own],
        *(["leak", "show", audit] for audit in audits),
    ]
    return random.sample(every, 2)


def app_readers(store: Store) -> list[Callable[[], object]]:
    """What pages of the app read, without the pages."""
    from whence.app.comparisons import Comparisons
    from whence.app.jobs import ALIVE, Job, jobs
    from whence.arena.instrument import ARENA
    from whence.experiments.saved import saved_configs
    from whence.features.activations.store import collections
    from whence.leak.audit.artifact import AUDITS
    from whence.report.runs import beside, runs_page

    def every_job() -> None:
        for job in jobs(store):
            assert job.state not in ALIVE
            _ = job.progress, job.failure, job.started, job.submission.title, dict(job.submission.link)
        for folder in (store.root / "jobs").iterdir():
            _ = Job(folder).state, Job(folder).progress, Job(folder).failure

    def labels() -> None:
        page = Comparisons(ARENA, first=())
        for path in saved_configs("arena", store):
            page._label(path)

    def side_by_side() -> None:
        compared, _ = beside(store, store.ids())
        if compared:  # figures take long
            runs_page(compared[:1], "a command")

    return [
        every_job,
        labels,
        side_by_side,
        store.summaries,
        lambda: collections(store),
        lambda: list(AUDITS.all(store)),
    ]


def spoiled_store(case: Case, files: Sequence[Path], root: Path, others: Sequence[Any]) -> Path:
    """A copy in which one file, now and then two, is not what was written. Returns that file."""
    random = case.random
    shutil.copytree(root, case.folder / STORED)
    file = case.folder
    for _ in range(random.choice((1, 1, 1, 1, 2))):
        source = random.choice(files)
        file = case.folder / STORED / source.relative_to(root)
        if not file.exists():
            continue
        data = spoiled_file(random, source, others)
        case.note(f"{source.relative_to(root)}: {data[:3000]!r}")
        file.write_bytes(data)
        if random.random() < 0.8 and file.parent.name == "reports":
            file = file.rename(addressed(file, data))
        file = renamed(random, file) / file.name
    if random.random() < 0.5 and file.name != "index.json":
        (case.folder / STORED / "index.json").unlink(missing_ok=True)
    return file


@target(cases=8_000)
def documents(prepared: Path) -> Run:
    """Every file of a store, as bytes and as documents that are sealed again, then commands and the app's readers."""
    root = samples.full_store(prepared / STORED).root
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size < LARGE)
    # documents more often than tensors, which have a target of their own
    files = [path for path in files for _ in range(1 if path.suffix in (".safetensors", ".txt", ".html") else 4)]
    others = [json.loads(path.read_bytes()).get("body") for path in files[::7] if path.suffix == ".json"]

    def run(case: Case) -> str:
        spoiled = spoiled_store(case, files, root, others)
        store = Store(case.folder / STORED)
        ends = []
        for words in commands(case.random, store, spoiled):
            ends.append(in_folder(case, lambda words=words: guard.command(case, [*words, "--store", STORED])))
        for reader in case.random.sample(app_readers(Store(case.folder / STORED)), 2):
            case.note(getattr(reader, "__name__", reader))
            ends.append(guard.read(reader))
        return max(ends, key=("accepted", "refused", "damaged").index)

    return run


@target(cases=18_000)
def readers(prepared: Path) -> Run:
    """The same documents through the functions that read them, which take less time."""
    from whence.app.jobs import Job
    from whence.experiments.looks import _recorded
    from whence.experiments.saved import read_config
    from whence.instruments import instruments
    from whence.store.artifacts import read_artifact
    from whence.store.files import check_addressed, read_chained, read_sealed

    root = samples.small_store(prepared / STORED).root
    names = (".json", ".jsonl")
    files = sorted(path for path in root.rglob("*") if path.suffix in names and path.stat().st_size < LARGE)
    others = [json.loads(path.read_bytes()).get("body") for path in files[::7] if path.suffix == ".json"]
    known = instruments()

    def run(case: Case) -> str:
        random, source = case.random, case.random.choice(files)
        folder = case.folder / STORED / source.relative_to(root).parent
        shutil.copytree(source.parent, folder)
        path, data = folder / source.name, spoiled_file(random, source, others)
        case.note(f"{source.relative_to(root)}: {data[:3000]!r}")
        path.write_bytes(data)
        store = Store(case.folder / STORED)
        match folder.name, folder.parent.name:
            case _, "runs":
                run = store.folder(folder.name)
                calls: list[Callable[[], object]] = [run.status, run.config, run.metrics, run.evaluations]
                calls += [lambda: read_chained(path), lambda: store.summary(run.id)]
            case _, "jobs":
                job = Job(folder)
                calls = [lambda: job.submission, lambda: job.state, lambda: job.failure, lambda: job.started]
            case "reports", _:
                path = path.rename(addressed(path, data))
                config = known["arena"].config
                calls = [lambda: read_config(path, config), lambda: _recorded(store), lambda: check_addressed(path)]
            case "artifacts", _:
                calls = [lambda: read_artifact(path), lambda: read_sealed(path)]
            case _:
                calls = [store.summaries, lambda: read_sealed(path, "")]
        ends = [guard.read(call) for call in calls]
        return max(ends, key=("accepted", "refused", "damaged").index)

    return run


@target(cases=8_000)
def checkpoints(prepared: Path) -> Run:
    """Checkpoints, weights and parts of activations: headers and bytes of safetensors, then what reads them."""
    from whence.execution.execute import execute
    from whence.execution.options import ExecutionOptions
    from whence.store.data import DataFolder
    from whence.store.tensors import all_tensors, open_tensors
    from whence.training import checkpoint

    store = samples.small_store(prepared / STORED)
    files = sorted(store.root.rglob("*.safetensors"))

    def run(case: Case) -> str:
        random, source = case.random, case.random.choice(files)
        shutil.copytree(source.parent, case.folder / STORED / source.relative_to(store.root).parent)
        own = Store(case.folder / STORED)
        path = case.folder / STORED / source.relative_to(store.root)
        data = spoiled_tensors(random, source.read_bytes())
        case.note(f"{source.relative_to(store.root)}: {data[:1500]!r}")
        path.unlink()
        path = addressed(path, data) if random.random() < 0.9 else path
        path.write_bytes(data)
        calls: list[Callable[[], object]] = [lambda: all_tensors(open_tensors(path, path.parent.name)[0])]
        if path.parent.parent.name == "runs":
            folder = own.folder(path.parent.name)
            if path.name.startswith("checkpoint"):
                model = folder.config().build_model("cpu")
                calls += [lambda: checkpoint.read(path, model)]
                if random.random() < 0.2:  # goes back to an earlier checkpoint, and trains a step
                    config = folder.config()
                    calls += [lambda: execute(config, own, ExecutionOptions(threads=1, device="cpu"))]
            else:
                calls += [lambda: checkpoint.weights_of(folder)]
        else:
            data_folder = DataFolder(path.parent)
            calls += [lambda: list(data_folder.problems())]
        ends = [guard.read(call) for call in calls]
        return max(ends, key=("accepted", "refused", "damaged").index)

    return run


def spoiled_tensors(random: Random, data: bytes) -> bytes:
    """With another header that is well formed, or any change of the first bytes."""
    size = int.from_bytes(data[:8], "little")
    try:
        document = json.loads(data[8 : 8 + size]) if random.random() < 0.5 else None
    except (ValueError, RecursionError):  # spoiled before
        document = None
    if document is None:
        return mutation.spoil(random, data[: size + 8 + 64]) + data[size + 8 + 64 :]
    header = mutation.spoil_document(random, document)
    text = mutation.encoded(mutation.dumps(random, header))
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]
