"""Calls as a user makes them: `whence …` in this process, `python …` in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from whence.cli.main import run


def output(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    found = run(arguments)
    captured = capsys.readouterr()
    assert found == code, captured.err
    return captured.out


def document(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    """Standard output, which must be exactly one JSON document."""
    return json.loads(output([*arguments, "--json"], capsys, code))


def python(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(project / "src")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
