"""Command lines, and the configuration files that they name."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.fuzz import guard, mutation, samples
from tests.fuzz.guard import Case, Run
from tests.fuzz.targets import NotRunError, target

STORED = "store"
"""In the folder of a case"""
HEAVY = ("minilm", "smollm2")
"""Models of packages, which take seconds to load: their place is taken by names of directories"""


def in_folder(case: Case, call: Any) -> str:
    """A call that works in the folder of the case. Work that would begin counts as accepted."""
    os.chdir(case.folder)
    try:
        return call()
    except NotRunError:
        return "accepted"
    finally:
        os.chdir("/")


def verbs() -> dict[tuple[str, ...], list[Any]]:
    """The words of every verb, with its options."""
    from whence.cli.main import COMMANDS, INSTRUMENTS, verbs_of

    found: dict[tuple[str, ...], list[Any]] = {}
    for name in (*INSTRUMENTS, *COMMANDS):
        for verb in verbs_of(name):
            words = (name,) if verb == name else (name, verb)
            with guard.captured() as (out, _):
                from whence.cli.main import run

                run([*words, "--help"])
            found[words] = sorted({word for word in out.text.split() if word.startswith("--") and word[2:].islower()})
    return found


def random_words(random: Random, known: dict[tuple[str, ...], list[str]], store: Any) -> list[str]:
    """A verb with a few of its options, values that fit and values that do not."""
    ids, names = store.ids(), [path.stem for path in store.reports.iterdir()]
    artifacts = [path.stem for path in store.artifacts.iterdir()]
    fitting = (
        *ids,
        *(run[:4] for run in ids),
        *names,
        *artifacts,
        *[
            "arena",
            "rope",
            "alibi",
            "copy",
            "k_back:k=2",
            "none",
            "all",
            "0",
            "1",
            "2",
            "0.5",
            "-1",
            "1e-3",
            "cpu",
            "table",
            "report.html",
            "report.md",
            "out.csv",
        ],
        *[
            "a.json",
            "store",
            "collected",
            "lr=1e-3,3e-3",
            "d_model=8,16",
            "finished",
            "config.yaml",
            "plain_topk",
            "source_encodings",
        ],
    )

    def some() -> str:
        kind = random.randrange(10)
        if kind < 8:
            return random.choice(fitting)
        if kind < 9:
            return random.choice(mutation.TEXTS)
        return os.fsdecode(mutation.spoil(random, random.choice(fitting).encode()))

    words = list(random.choice(list(known)))
    flags = known[tuple(words)] or ["--json"]
    for _ in range(random.choice((0, 1, 1, 2, 3, 5))):
        words.append(random.choice(flags))
        words += [some() for _ in range(random.choice((0, 1, 1, 1, 2)))]
    words += [some() for _ in range(random.choice((0, 0, 1, 1, 2)))]
    if random.random() < 0.1:
        words[random.randrange(len(words))] = some()
    if random.random() < 0.8:
        words += ["--store", STORED]
    # as arguments of a process arrive; and no file is named outside of the folder
    arrived = [os.fsdecode(mutation.encoded(word.replace("\0", ""))) for word in words]
    return [word for word in arrived if not word.startswith(("/", "..", "~")) and "/../" not in word]


@target(cases=11_000)
def words(prepared: Path) -> Run:
    """Words of the command line: every verb, its options, values of all kinds."""
    store, known = samples.small_store(prepared / STORED), verbs()

    def run(case: Case) -> str:
        chosen = random_words(case.random, known, store)
        shutil.copytree(store.root, case.folder / STORED)
        return in_folder(case, lambda: guard.command(case, chosen))

    return run


@target(cases=9_000)
def configs(prepared: Path) -> Run:
    """Configuration files, YAML and JSON, of all verbs that take one."""
    from whence.instruments import instruments

    valid: dict[tuple[str, ...], list[Any]] = {}
    for instrument in instruments().values():
        compared = [instrument.config.read({}).model_dump(mode="json")]
        if instrument.presets and instrument.presets.config is instrument.config:
            compared += [instrument.presets.read(name) for name in instrument.presets.names()[:6]]
        valid[*instrument.command] = compared
        trained = [document for document in samples.OTHER_RUNS if document["kind"] == instrument.name]
        plain = [{key: value for key, value in one.items() if key != "kind"} for one in trained]
        valid[instrument.name, "train"] = [*plain, {}]
    valid["arena", "compare"].append(samples.COMPARISON)
    everything = [document for documents in valid.values() for document in documents]

    def run(case: Case) -> str:
        random = case.random
        verb = random.choice(list(valid))
        document = random.choice(valid[verb])
        if random.random() < 0.5:
            name, content = "config.json", mutation.spoil_text(random, document, everything)
        else:
            name, content = random.choice(("config.yaml", "config.yml")), spoiled_yaml(random, document, everything)
        (case.folder / name).write_bytes(content)
        case.note(content[:3000])
        return in_folder(case, lambda: guard.command(case, [*verb, "--config", name, "--print-config"]))

    return run


YAML_TRICKS = (
    "&a [x, x, x, x, x, x, x, x, x]",
    "!!python/object/apply:os.system ['touch pwned']",
    "!!python/name:os.system",
    "!!timestamp 2001-12-14t21:59:43.10-05:00",
    "!!binary R0lGODlhDAAMAIQAAP",
    "!!set {a, b}",
    "!!omap [a: 1]",
    *["0x_", "0b2", "190:20:30", "1_000", ".inf", ".NaN", "2001-01-01", "2024-99-99", "1e400", "~", "*a", "'"],
    *("? [a, b] : c", "<<: {seeds: 3}", "- -", ": :", "{[a]: 1}", "{{}: 1}", '"\\x"', "\t", "|\n  text"),
    *("%YAML 9.9\n---\n", "--- 1\n--- 2\n"),
)


def spoiled_yaml(random: Random, document: Any, others: list[Any]) -> bytes:
    if random.random() < 0.1:
        return bomb(random)
    spoiled = mutation.spoil_document(random, document, others) if random.random() < 0.7 else document
    try:
        text = yaml.safe_dump(json.loads(json.dumps(spoiled)), allow_unicode=random.random() < 0.5)
    except (yaml.YAMLError, ValueError, RecursionError):
        text = mutation.dumps(random, spoiled)
    if random.random() < 0.5:
        lines = text.splitlines() or [""]
        line = random.randrange(len(lines))
        trick = random.choice(YAML_TRICKS)
        lines[line] = random.choice((trick, f"{lines[line].partition(':')[0]}: {trick}", f"{lines[line]}\n{trick}"))
        text = "\n".join(lines)
    content = mutation.encoded(text)
    return mutation.spoil(random, content) if random.random() < 0.2 else content


def bomb(random: Random) -> bytes:
    """Few bytes that stand for many values."""
    deep, wide = random.choice(((9, 9), (25, 2), (3, 500))), random.choice(("[", "{"))
    if random.random() < 0.3:
        return (wide * random.choice((30, 70, 1000, 100_000))).encode()
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * deep[1])}]" for n in range(1, deep[0])]
    if random.random() < 0.3:
        lines = ["a0: &a0 {b: 1}"]
        lines += [f"a{n}: &a{n} {{c: *a{n - 1}, d: *a{n - 1}, <<: *a{n - 1}}}" for n in range(1, 40)]
    if random.random() < 0.2:
        lines = ["a: &a [*a, *a]"]
    key = random.choice(("encodings", "seeds", "model", "tasks", "data"))
    return "\n".join([*lines, f"{key}: *a{max(1, deep[0] - 1)}"]).encode()
