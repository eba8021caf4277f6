"""The short form of `make fuzz`: few cases of the targets that begin quickly, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

QUICK = ("spellings", "readers", "checkpoints", "pictures", "arrays", "saelens", "mamba")
CASES = 60


def test_few_cases_of_the_quick_targets() -> None:
    only = [word for name in QUICK for word in ("--only", name)]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--here", "--cases", str(CASES), *only],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout[-6000:]}{ended.stderr[-3000:]}"
    assert all(f"{name}: " in ended.stdout for name in QUICK)
