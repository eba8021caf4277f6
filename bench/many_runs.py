"""A store of thousands of runs: one is trained, others are copies under other seeds and ids; each tenth has failed."""

from __future__ import annotations

import os

from whence.arena.run import ArenaRun
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.store.files import read_sealed, write_sealed
from whence.store.runs import Store

DOCUMENT = {
    "model": {"d_model": 16, "heads": 2, "layers": 1},
    "lengths": {"train_length": 8, "test_lengths": [16]},
    "training": {"steps": 5},
}


def fill(store: Store, count: int) -> None:
    first = ArenaRun.read(DOCUMENT)
    execute(first, store, ExecutionOptions(threads=1))
    status = read_sealed(store.folder(first.id).path / "status.json")
    for seed in range(1, count):
        run = ArenaRun.read({**DOCUMENT, "seed": seed})
        folder = store.runs / run.id
        folder.mkdir()
        body = {"config": run.document(), "versions": run.versions(), "streams": {}}
        write_sealed(folder / "config.json", body, durable=False)
        end = (
            {"state": "failed", "error": {"kind": "exception", "message": "made for a benchmark"}}
            if seed % 10 == 0
            else {}
        )
        write_sealed(folder / "status.json", {**status, "id": run.id, "seed": seed, **end}, durable=False)
        for name in ("metrics.jsonl", "log.jsonl", "model.safetensors"):
            os.link(store.folder(first.id).path / name, folder / name)
    assert len(store.ids()) == count
