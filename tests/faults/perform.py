"""A subject in a process of its own, from the start of Python on: `python -m tests.faults.perform NAME INPUTS`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.faults.subjects import LONG, subjects

if __name__ == "__main__":
    sys.exit(subjects(Path(sys.argv[2]), LONG)[sys.argv[1]].perform())
