"""The tour in seconds: `--quick` is made smaller, in this process or in one that runs `python -m tests.demo.tiny`."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

ARENA = {
    "tasks": ["k_back_recall"],
    "encodings": ["sinusoidal", "learned", "rope", "alibi"],
    "seeds": 1,
    "model": {"d_model": 16, "heads": 2, "layers": 1},
    "lengths": {"test_lengths": [64], "test_sequences": 8},
    "training": {"steps": 4, "batch_size": 4, "evaluations": 1},
}
LEAK = {
    "data": "synthetic:position=0.3,steps=24,channels=2",
    "mitigations": ["none", "content_gated"],
    "seeds": 1,
    "model": {"d_model": 8},
    "masking": {"test_rows": 16},
    "training": {"steps": 4, "batch_size": 8, "evaluations": 1},
}
COLLECT = {"tokens": 2000}
FEATURES = {"model": {"d_sae": 64}, "training": {"steps": 5, "batch_size": 128, "evaluations": 1}}
SetItem = Callable[[MutableMapping[Any, Any], Any, Any], None]


def shrink(
    set_item: SetItem = lambda mapping, key, value: mapping.__setitem__(key, value), arena_steps: int = 4
) -> None:
    """set_item: `monkeypatch.setitem`, where it is to be undone."""
    from whence.arena.config import ArenaConfig
    from whence.demo import arena, features, leak
    from whence.leak.config import LeakConfig

    training = {**ARENA["training"], "steps": arena_steps}
    set_item(arena.CONFIGS, "quick", ArenaConfig.read({**ARENA, "training": training}))
    set_item(leak.CONFIGS, "quick", LeakConfig.read(LEAK))
    set_item(features.COLLECT, "quick", COLLECT)
    set_item(features.TRAINING, "quick", FEATURES)


class Blocked(importlib.abc.MetaPathFinder):
    """Makes packages missing: they cannot be imported."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


if __name__ == "__main__":  # STEPS BLOCKED,… ARGUMENT …
    from whence.cli.main import main

    steps, blocked, *arguments = sys.argv[1:]
    sys.meta_path.insert(0, Blocked(blocked.split(",")))
    shrink(arena_steps=int(steps))
    main(arguments)
