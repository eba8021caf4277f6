"""The tests as other CPUs would run them: with and without AVX-512, on 1, 2 and 8 threads.

    make test-cpus
    python -m tests.cpus tests/encodings     all six combinations, of these tests only

NumPy, Numba, torch and their libraries choose their code by what the CPU offers, and their bits differ. AVX-512 can be
hidden from all of them; a CPU that lacks it cannot be given it, and runs the same tests twice.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

THREADS = (1, 2, 8)
KERNELS = ["tests/kernels"]
NUMERIC = [
    *("tests/encodings", "tests/mixers", "tests/models", "tests/test_stats.py", "tests/training/test_trainer.py"),
    *("tests/features/test_autoencoder.py", "tests/fields/test_model.py"),
]
LONG = ["tests/leak", "tests/features", "tests/fields", "tests/arena/test_run.py", "tests/training/test_optim.py"]


def beyond_avx2(name: str) -> bool:
    """Whether this is one of NumPy's names for a part of AVX-512."""
    return "AVX512" in name or name == "X86_V4"


def without_avx512() -> dict[str, str]:
    """Variables that keep every library to AVX2. NumPy warns of names that it was not built with."""
    known: dict[str, list[str]] = np.show_config(mode="dicts")["SIMD Extensions"]  # type: ignore[index, assignment]
    newer = [name for name in known.get("found", []) + known.get("not found", []) if beyond_avx2(name)]
    return {
        "NPY_DISABLE_CPU_FEATURES": " ".join(newer),
        "OPENBLAS_CORETYPE": "Haswell",
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx2,+fma",  # the name alone leaves on what else this CPU has
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    }


def with_threads(count: int) -> dict[str, str]:
    return {f"{library}_NUM_THREADS": str(count) for library in ("OMP", "MKL", "OPENBLAS", "NUMBA")}


def run(tests: list[str], avx512: bool, threads: int) -> bool:
    """One line: which CPU, which tests, how they ended. What failed is told before it."""
    environment = {**os.environ, **({} if avx512 else without_avx512()), **with_threads(threads)}
    command = [sys.executable, "-m", "pytest", "-n", "0", *tests]
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        print(done.stdout)
    lines = done.stdout.splitlines() or [f"ended with {done.returncode}"]
    cpu = "this CPU" if avx512 else "AVX2"
    print(f"{cpu:8}  threads: {threads}  {lines[-1]}  ({', '.join(tests)})", flush=True)
    return done.returncode == 0


def main(tests: list[str]) -> int:
    every = [(avx512, threads) for avx512 in (False, True) for threads in THREADS]
    good = [run(tests or KERNELS, avx512, threads) for avx512, threads in every]
    if not tests:
        good += [run(NUMERIC, True, 8), run(NUMERIC, False, 1), run(LONG, False, 1)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
