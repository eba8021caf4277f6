"""Compiling at first use, keeping the result on disk, running on threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import pytest
import torch
from torch import Tensor

from whence.kernels import launch
from whence.kernels.launch import Kernel, cache_folder, on_threads
from whence.kernels.simd import take_number

SIGNATURE = numba.void(numba.int64[::1], numba.int64[::1])
SCAN = """
import sys, time
import torch
from whence.kernels import selective_scan
from whence.kernels.selective_scan import naive

torch.manual_seed(0)
u, delta, B, C = (torch.rand(2, 9, n) for n in (17, 17, 3, 3))
A = -torch.rand(17, 3)
u.requires_grad_("backward" in sys.argv)
expected, start = naive.selective_scan(u, delta, A, B, C), time.process_time()
found = selective_scan(u, delta, A, B, C)
gradient, = torch.autograd.grad(found.sum(), u) if u.requires_grad else [None]
seconds = time.process_time() - start
torch.testing.assert_close(found, expected)
if gradient is not None:
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), u)[0])
print(seconds)
"""


def scan(source: Path, home: Path, *words: str) -> tuple[float, str]:
    """Seconds of CPU time for the first scan in a new process, and what it said on stderr."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(source), "XDG_CACHE_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCAN, *words],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return float(done.stdout), done.stderr


def spoil(folder: Path, how: Callable[[bytes], bytes], ending: str = "") -> None:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name.endswith(ending)]
    assert files
    for path in files:
        path.write_bytes(how(path.read_bytes()))


def test_first_use_is_announced_and_the_second_process_has_it(source: Path, tmp_path: Path) -> None:
    seconds, stderr = scan(source, tmp_path, "backward")
    lines = stderr.splitlines()
    assert [line.split(":")[1] for line in lines] == [
        " compiling selective_scan (forward)",
        " compiling selective_scan (backward)",
    ]
    assert all(f"once, then kept in {tmp_path}" in line for line in lines)
    print(f"first compilation: {seconds:.1f} s")
    assert seconds < 30
    _, stderr = scan(source, tmp_path, "backward")
    assert stderr == ""


def test_the_scan_with_a_damaged_and_with_an_unwritable_cache(source: Path, tmp_path: Path, slow: bool) -> None:
    if not slow:
        pytest.skip("compiles the scan three times; below, a small kernel stands for it")
    scan(source, tmp_path)
    spoil(tmp_path, lambda content: b"garbage" * 100)
    assert "compiling selective_scan (forward)" in scan(source, tmp_path)[1]
    (tmp_path / "file").write_text("")
    _, stderr = scan(source, tmp_path / "file")
    assert stderr.startswith("whence: compiling selective_scan (forward): it cannot be kept (")
    assert str(tmp_path / "file") in stderr


# The rest with a kernel that compiles in no time.


def tally(counter: Any, done: Any) -> None:
    while True:
        job = take_number(counter)
        if job >= len(done):
            break
        done[job] += job + 1


def count(kernel: Kernel, jobs: int = 5) -> None:
    done = torch.zeros(jobs, dtype=torch.int64)
    kernel(jobs, done)
    assert done.tolist() == list(range(1, jobs + 1))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_compiled_once_and_kept_below_the_cache_folder(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = Kernel(tally, SIGNATURE)
    assert not list(home.iterdir())
    count(kernel)
    assert capsys.readouterr().err == f"whence: compiling kernels (tally): once, then kept in {cache_folder()}\n"
    assert list(cache_folder().rglob("*.nbc"))
    count(kernel)
    count(Kernel(tally, SIGNATURE))
    assert capsys.readouterr().err == ""


def test_the_place_of_the_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder().parent == home / "whence"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(home / "numba"))
    assert cache_folder().parent == home / "numba" / "whence"
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(home))
    assert cache_folder().parent == home / ".cache" / "whence"


def test_numba_has_its_own_setting_back(home: Path) -> None:
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    count(Kernel(tally, SIGNATURE))
    assert before == numba.config.CACHE_DIR  # type: ignore[attr-defined]


@pytest.mark.parametrize("ending", ["", ".nbi", ".nbc"])
@pytest.mark.parametrize("how", [lambda _: b"", lambda content: content[: len(content) // 2], lambda _: b"x" * 999])
def test_a_damaged_cache_is_passed_over(
    home: Path, how: Callable[[bytes], bytes], ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    count(Kernel(tally, SIGNATURE))
    spoil(home, how, ending)
    capsys.readouterr()
    count(Kernel(tally, SIGNATURE))
    assert "whence: compiling kernels (tally)" in capsys.readouterr().err


def test_a_damaged_cache_is_repaired(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else every process to come would compile again."""
    count(Kernel(tally, SIGNATURE))
    spoil(home, lambda _: b"garbage")
    count(Kernel(tally, SIGNATURE))
    assert "once, then kept in" in capsys.readouterr().err
    count(Kernel(tally, SIGNATURE))
    assert capsys.readouterr().err == ""


def test_a_cache_that_cannot_be_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file in the place of a folder, because root may write into any folder."""
    (home / "whence").write_text("")
    count(Kernel(tally, SIGNATURE))
    stderr = capsys.readouterr().err
    assert stderr.startswith("whence: compiling kernels (tally): it cannot be kept (")
    assert str(home / "whence") in stderr
    assert stderr.count("\n") == 1


def test_nowhere_to_keep_anything(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """A user without a home."""

    def lost() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lost)
    count(Kernel(tally, SIGNATURE))
    assert "it cannot be kept (RuntimeError: Could not determine home" in capsys.readouterr().err


@pytest.mark.usefixtures("threads")
def test_first_use_by_many_threads_compiles_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = Kernel(tally, SIGNATURE)
    workers = [threading.Thread(target=count, args=(kernel,)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert capsys.readouterr().err.count("compiling") == 1


@pytest.fixture(params=["OpenMP", "threads of our own"])
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "threads of our own":
        monkeypatch.setattr(launch, "_openmp", lambda: None)
    elif launch._openmp() is None:
        pytest.skip("torch here is not built on OpenMP")


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("number", [1, 2, 3, 8])
def test_work_runs_once_on_each_thread(number: int) -> None:
    idents: list[int] = []
    barrier = threading.Barrier(number, timeout=20)

    def work() -> None:
        barrier.wait()  # passes only if all run at the same time
        idents.append(threading.get_ident())

    on_threads(number, work)
    assert len(idents) == len(set(idents)) == number
    assert threading.get_ident() in idents


@pytest.mark.usefixtures("runtime", "threads", "home")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_every_job_is_done_once(number: int) -> None:
    torch.set_num_threads(number)
    for jobs in (1, 2, 1000):
        count(Kernel(tally, SIGNATURE), jobs)


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("where", ["caller", "worker"])
@pytest.mark.parametrize("number", [2, 3])
def test_an_exception_comes_through_after_all_are_done(where: str, number: int) -> None:
    caller, finished = threading.get_ident(), []

    def work() -> None:
        if (threading.get_ident() == caller) == (where == "caller"):
            raise ZeroDivisionError(where)
        time.sleep(0.05)
        finished.append(1)

    with pytest.raises(ZeroDivisionError, match=where):
        on_threads(number, work)
    assert len(finished) == (number - 1 if where == "caller" else 1)


@pytest.mark.usefixtures("threads")
def test_the_scan_has_the_same_bits_without_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    from whence.kernels import selective_scan

    torch.manual_seed(0)
    tensors = [torch.rand(3, 70, 40), torch.rand(3, 70, 40), -torch.rand(40, 5), torch.rand(3, 70, 5)]

    def results() -> list[Tensor]:
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        y = selective_scan(*leaves, leaves[-1])
        return [y.detach(), *torch.autograd.grad(y.square().sum(), leaves)]

    torch.set_num_threads(2)
    usual = results()
    monkeypatch.setattr(launch, "_openmp", lambda: None)
    for number in (1, 2, 3, 8):
        torch.set_num_threads(number)
        for actual, expected in zip(results(), usual, strict=True):
            assert torch.equal(actual, expected)
