"""A process that executes runs: one request per line in, one event per line out (`whence.execution.events`).

It stops cleanly, with a checkpoint, on SIGTERM and when its parent disappears (end of input); Ctrl-C in the
terminal is the parent's to handle.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time

GRACE_SECONDS = 30
"""Time for a worker to finish its step and to write a checkpoint, after the request to stop"""


def main() -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # events own the real stdout; whatever a library prints goes to stderr
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # only now: torch takes seconds to import, and a stop may come meanwhile
    from whence.execution.events import Event, RunRequest
    from whence.execution.execute import attempt
    from whence.store.runs import Store
    from whence.training.config import load_run_config

    threading.Thread(target=_exit_in_the_end, args=(stop,), daemon=True).start()
    requests: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(requests, stop), daemon=True).start()

    def emit(event: Event) -> None:
        try:
            events.write(event.model_dump_json() + "\n")
        except BrokenPipeError:
            stop.set()

    while (line := requests.get()) is not None and not stop.is_set():
        request = RunRequest.model_validate_json(line)
        config = load_run_config(request.config)
        attempt(config, Store(request.store), request.options, emit, stop.is_set)
        if stop.is_set():
            break
        emit(Event(kind="idle"))


def _exit_in_the_end(stop: threading.Event) -> None:
    """A step or an evaluation may take minutes. Nothing waits for it, because there is a checkpoint."""
    stop.wait()
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def _listen(requests: queue.Queue[str | None], stop: threading.Event) -> None:
    for line in sys.stdin:
        requests.put(line)
    stop.set()
    requests.put(None)


if __name__ == "__main__":
    main()
