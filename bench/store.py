"""How long it takes to list 10,000 finished runs, and to answer `whence --help`.

    python bench/store.py [runs]

One run is trained and then copied under other seeds and ids. Timed as a user would see it: the whole command,
with the index there and without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import record
from whence.arena.run import Run
from whence.runs.execute import Conditions, execute
from whence.runs.files import read_sealed, write_sealed
from whence.runs.store import Store


def timed(*arguments: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "whence", *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Store(directory)
        document = {
            "model": {"d_model": 16, "heads": 2, "layers": 1},
            "lengths": {"train_length": 8, "test_lengths": [16]},
            "training": {"steps": 5},
        }
        first = Run.read(document)
        execute(first, store, Conditions(threads=1))
        status = read_sealed(store.folder(first.id).path / "status.json")
        for seed in range(1, count):
            run = Run.read({**document, "seed": seed})
            folder = store.runs / run.id
            folder.mkdir()
            body = {"format": 1, "spec": run.document(), "streams": {}}
            write_sealed(folder / "spec.json", body, durable=False)
            write_sealed(folder / "status.json", {**status, "id": run.id, "seed": seed}, durable=False)
            for name in ("metrics.jsonl", "log.jsonl", "model.safetensors"):
                os.link(store.folder(first.id).path / name, folder / name)
        assert len(store.ids()) == count
        result = {"runs": count}
        result["list_without_index_s"] = timed("runs", "list", "--store", directory)
        result["list_s"] = min(timed("runs", "list", "--store", directory) for _ in range(3))
        result["list_json_s"] = min(timed("runs", "list", "--json", "--store", directory) for _ in range(3))
        assert (Path(directory) / "index.json").exists()
    result["help_s"] = min(timed("--help") for _ in range(5))
    for name, value in result.items():
        print(f"{name:22} {value:.2f}" if isinstance(value, float) else f"{name:22} {value}")
    record("store", result, ())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
