"""A CPU without AVX-512, for which this one stands in by hiding it. `make test-cpus` does so with many more tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.cpus import without_avx512
from tests.kernels.test_launch import SIGNATURE, count, tally
from whence.kernels.launch import Kernel

pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="this CPU has no AVX2"
)
PROJECT = Path(__file__).parents[2]
VECTORS = """
import sys
import numpy, pytest, torch
from tests.cpus import beyond_avx2
ended = pytest.main(["-n", "0", "-p", "no:cacheprovider", "tests/kernels/test_simd.py"])
code = "".join(sys.modules["tests.kernels.test_simd"]._powers.inspect_asm().values())
assert "ymm" in code and "zmm" not in code
assert torch.backends.cpu.get_cpu_capability() == "AVX2"
found = numpy.show_config(mode="dicts")["SIMD Extensions"]["found"]
assert not any(map(beyond_avx2, found)), found
sys.exit(ended)
"""
TALLY = "from tests.kernels.test_launch import Kernel, SIGNATURE, count, tally; count(Kernel(tally, SIGNATURE))"


def python(code: str, environment: dict[str, str], cache: Path) -> str:
    """What it says on stderr."""
    paths = os.pathsep.join([str(PROJECT), str(PROJECT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "error::ImportWarning", "-c", code],
        env={**os.environ, "PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(cache), **environment},
        cwd=PROJECT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def test_vector_operations_without_avx512(tmp_path: Path) -> None:
    python(VECTORS, without_avx512(), tmp_path)


def test_kernels_compiled_for_one_cpu_are_not_used_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A home directory may be shared by machines of several kinds."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    count(Kernel(tally, SIGNATURE))
    assert "compiling" in capsys.readouterr().err
    assert "compiling" in python(TALLY, {"NUMBA_CPU_FEATURES": "-avx,-avx2"}, tmp_path)
    count(Kernel(tally, SIGNATURE))
    assert "compiling" not in capsys.readouterr().err
