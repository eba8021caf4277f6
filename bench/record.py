"""Results of all benchmarks, with the versions they were measured with, in bench/results.json."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")


def record(name: str, result: dict[str, Any], packages: tuple[str, ...] = ("torch",)) -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[name] = {
        "measured": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "python": platform.python_version(),
        "versions": {package: importlib.metadata.version(package) for package in packages},
        **result,
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
