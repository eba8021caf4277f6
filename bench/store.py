"""How long it takes to list and to verify 10,000 finished runs, and to answer `whence --help`.

    python bench/store.py [runs]

Timed as a user would see it: the whole command, with the index there and without it. Verifying is timed with a quarter
of the runs, too: the time per run should not grow with their number.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from many_runs import fill
from record import record
from whence.store.runs import Store


def timed(*arguments: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "whence", *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Store(directory)
        fill(store, count)
        result: dict[str, float] = {"runs": count}
        result["verify_s"] = timed("runs", "verify", "--store", directory)
        result["list_without_index_s"] = timed("runs", "list", "--store", directory)
        result["list_s"] = min(timed("runs", "list", "--store", directory) for _ in range(3))
        result["list_json_s"] = min(timed("runs", "list", "--json", "--store", directory) for _ in range(3))
        assert (Path(directory) / "index.json").exists()
    with tempfile.TemporaryDirectory() as directory:
        fill(Store(directory), count // 4)
        result["verify_a_quarter_s"] = timed("runs", "verify", "--store", directory)
    result["help_s"] = min(timed("--help") for _ in range(5))
    for name, value in result.items():
        print(f"{name:22} {value:.2f}" if isinstance(value, float) else f"{name:22} {value}")
    record("store", result, ())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
