"""One fault of each kind; `make faults` is the long form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.faults.kinds import KINDS


def test_one_fault_of_each_kind() -> None:
    command = [sys.executable, "-m", "tests.faults", "--quick"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(kind.quick for kind in KINDS if 'arena' in kind.subjects)} trials, 0 with problems" in done.stdout
