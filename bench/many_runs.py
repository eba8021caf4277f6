"""A store of thousands of runs: one is trained, others are copies under other seeds and ids; each tenth has failed."""

from __future__ import annotations

from whence.arena.run import ArenaRun
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.store import disk
from whence.store.files import ChainWriter, read_chained, read_sealed, stored_digest, write_sealed
from whence.store.runs import Store
from whence.store.tensors import tensor_bytes
from whence.training.checkpoint import weights_of

DOCUMENT = {
    "model": {"d_model": 16, "heads": 2, "layers": 1},
    "lengths": {"train_length": 8, "test_lengths": [16]},
    "training": {"steps": 5},
}
CHAINS = ("metrics.jsonl", "log.jsonl")


def fill(store: Store, count: int) -> None:
    """Every copy is a whole run: `whence runs verify` finds no fault in it."""
    disk.sync = lambda handle: None  # nobody needs this store after a power cut
    first = ArenaRun.read(DOCUMENT)
    execute(first, store, ExecutionOptions(threads=1))
    source = store.folder(first.id)
    status = read_sealed(source.path / "status.json")
    records = {name: read_chained(source.path / name)[0] for name in CHAINS}
    weights = weights_of(source)
    for seed in range(1, count):
        run = ArenaRun.read({**DOCUMENT, "seed": seed})
        folder = store.folder(run.id)
        folder.path.mkdir()
        body = {"config": run.document(), "versions": run.versions(), "streams": {}}
        write_sealed(folder.path / "config.json", body, durable=False)
        for name in CHAINS:
            chain = ChainWriter(folder.path / name)
            for record in records[name]:
                chain.append(record)
            chain.sync()
            chain.close()
        disk.write_atomically(folder.weights, tensor_bytes(weights, run.id), durable=False)
        end = (
            {"state": "failed", "error": {"kind": "exception", "message": "made for a benchmark"}}
            if seed % 10 == 0
            else {}
        )
        files = {name: stored_digest(folder.path / name) for name in status["files"]}
        body = {**status, "id": run.id, "seed": seed, "files": files, **end}
        write_sealed(folder.path / "status.json", body, durable=False)
    assert len(store.ids()) == count
