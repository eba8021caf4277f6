"""A process that executes runs: JSON lines in (`{"config": …, "store": …, "options": …}`), JSON lines out (events).

It stops cleanly, with a checkpoint, on SIGTERM and when its parent disappears (end of input); Ctrl-C in the
terminal is the parent's to handle.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from typing import Any

GRACE_SECONDS = 30
"""How long a worker may take to finish its step and write a checkpoint once it has been told to stop."""


def main() -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # events own the real stdout; whatever a library prints goes to stderr
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # only now: torch takes seconds to import, and a stop may come meanwhile
    from whence.execution.execute import execute
    from whence.execution.options import ExecutionOptions
    from whence.store.runs import RunLockedError, Store
    from whence.training.config import load_run_config

    threading.Thread(target=_exit_in_the_end, args=(stop,), daemon=True).start()
    tasks: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_listen, args=(tasks, stop), daemon=True).start()

    def emit(event: dict[str, Any]) -> None:
        try:
            events.write(json.dumps(event) + "\n")
        except BrokenPipeError:
            stop.set()

    while (task := tasks.get()) is not None and not stop.is_set():
        store, options = Store(task["store"]), ExecutionOptions(**task["options"])
        config = load_run_config(task["config"])
        try:
            execute(config, store, options, emit, stop.is_set)
        except RunLockedError:
            emit({"event": "busy", "run": config.id})
        except Exception as error:  # the store itself failed: the run could not even be marked
            emit({"event": "failed", "run": config.id, "status": None, "message": f"{type(error).__name__}: {error}"})
        if stop.is_set():
            break
        emit({"event": "idle"})


def _exit_in_the_end(stop: threading.Event) -> None:
    """A step or an evaluation may take minutes; nobody waits for it, and a checkpoint is on the disk."""
    stop.wait()
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def _listen(tasks: queue.Queue[dict[str, Any] | None], stop: threading.Event) -> None:
    for line in sys.stdin:
        tasks.put(json.loads(line))
    stop.set()
    tasks.put(None)


if __name__ == "__main__":
    main()
