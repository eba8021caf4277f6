"""The engine for this machine: worker processes that share its cores.

The failure of a run, even a crash of its process, does not affect other runs. The engine receives events from the
workers; results are in the store.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from whence.execution.events import Event, OnEvent, RunEnd, RunRequest
from whence.execution.options import ExecutionOptions
from whence.execution.worker import GRACE_SECONDS
from whence.store.runs import Store
from whence.system import cores
from whence.training.config import AnyRun

Inbox = SimpleQueue[tuple[int, Event | None]]
CTRL_C = -1


class _Worker:
    """A child process, in its own session so that Ctrl-C reaches the engine only."""

    def __init__(self, number: int, threads: int | None, inbox: Inbox) -> None:
        self.number, self.run = number, ""
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "whence.execution.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(inbox,), daemon=True).start()

    def _read(self, inbox: Inbox) -> None:
        assert self.process.stdout is not None
        try:
            with self.process.stdout as events:
                for line in events:
                    with suppress(ValueError):  # not an event: printed at start-up, or cut off by a kill
                        inbox.put((self.number, Event.model_validate_json(line)))
            self.process.wait()
        finally:
            inbox.put((self.number, None))

    def submit(self, config: AnyRun, store: Store, options: ExecutionOptions) -> None:
        assert self.process.stdin is not None
        self.run = config.id
        request = RunRequest(config=config.document(), store=str(store.root.absolute()), options=options)
        with suppress(BrokenPipeError):  # it has died; its end is on the way to the inbox
            self.process.stdin.write(request.model_dump_json() + "\n")

    def close(self) -> None:
        """End the worker once it is idle."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()


def share(runs: int, workers: int | None = None, threads: int | None = None) -> tuple[int, int]:
    """Numbers of processes and of threads per process, which share the cores of the machine."""
    count = max(1, min(workers or cores(), runs))
    return count, threads or max(1, cores() // count)


def run_all(
    configs: Sequence[AnyRun],
    store: Store,
    options: ExecutionOptions = ExecutionOptions(),
    on_event: OnEvent = lambda event: None,
) -> dict[str, RunEnd]:
    """Run every configuration; return how each ended, by id.

    Returns when all have ended or, after Ctrl-C, when the running ones have written a checkpoint.
    """
    count, threads = share(len(configs), options.workers, options.threads)
    engine = _Engine(configs, store, options.model_copy(update={"threads": threads}), on_event)
    with _ctrl_c_goes_to(engine.inbox):
        return engine.run(count)


class _Engine:
    def __init__(self, configs: Sequence[AnyRun], store: Store, options: ExecutionOptions, on_event: OnEvent) -> None:
        self.waiting = deque(configs)
        self.store, self.options, self.on_event = store, options, on_event
        self.inbox: Inbox = SimpleQueue()
        self.workers: dict[int, _Worker] = {}
        self.spawned = 0
        self.stopping = False
        self.ends: dict[str, RunEnd] = {}

    def run(self, count: int) -> dict[str, RunEnd]:
        try:
            for _ in range(count if self.waiting else 0):
                self._spawn()
            while self.workers:
                try:
                    number, event = self.inbox.get(timeout=2 * GRACE_SECONDS if self.stopping else None)
                except Empty:
                    self._kill_all()
                    continue
                if number == CTRL_C:
                    self._stop()
                else:
                    self._handle(self.workers[number], event)
        finally:
            self._kill_all()
        for config in self.waiting:
            self.ends[config.id] = "interrupted"
        return self.ends

    def _spawn(self) -> None:
        worker = self.workers[self.spawned] = _Worker(self.spawned, self.options.threads, self.inbox)
        self.spawned += 1
        self._assign(worker)

    def _assign(self, worker: _Worker) -> None:
        worker.run = ""
        if self.waiting and not self.stopping:
            worker.submit(self.waiting.popleft(), self.store, self.options)
        else:
            worker.close()

    def _handle(self, worker: _Worker, event: Event | None) -> None:
        if event is None:
            del self.workers[worker.number]
            worker.close()
            if worker.run:  # it died during a run
                end = self.ends[worker.run] = "interrupted" if self.stopping else "crashed"
                message = f"its process exited with code {worker.process.returncode}"
                self.on_event(Event(kind=end, run=worker.run, message=message))
            if self.waiting and not self.stopping:
                self._spawn()
        elif event.kind == "idle":
            self._assign(worker)
        else:
            if event.end:
                self.ends[event.run] = event.end
                worker.run = ""
            self.on_event(event)

    def _stop(self) -> None:
        """The first call asks the workers to write a checkpoint and exit; the second one kills them."""
        if self.stopping:
            self._kill_all()
            return
        self.stopping = True
        self.on_event(Event(kind="stopping"))
        for worker in self.workers.values():
            worker.process.terminate()

    def _kill_all(self) -> None:
        for worker in self.workers.values():
            worker.process.kill()


@contextmanager
def _ctrl_c_goes_to(inbox: Inbox) -> Generator[None]:
    """Turn Ctrl-C into a message, so that it does not interrupt the engine between two operations."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda _number, _frame: inbox.put((CTRL_C, None)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
