"""What Python calls directly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whence.execution.options import ExecutionOptions
from whence.experiments.comparison import ComparisonResult, run_comparison
from whence.instruments import instrument
from whence.store.runs import Store
from whence.system import Device


def compare(
    name: str,
    /,
    *,
    store: str | Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    device: Device = "auto",
    minutes: float | None = None,
    **fields: Any,
) -> ComparisonResult[Any]:
    """Run a comparison of one instrument, as `whence arena compare` and the others do.

    Every variant is trained with the same seeds and data, and differences are tested. Finished runs are read from the
    store.

    Args:
        name: `arena`, `leak`, `features` or `fields`.
        store: directory of runs; None: $WHENCE_STORE, else `whence-runs` in the working directory.
        workers: number of processes; None: one per core.
        threads: CPU threads per process; None: the cores, divided between the processes.
        device: device to train on; "auto" uses a GPU if there is one.
        minutes: with `until_decided`, add no more seeds after this many minutes.
        fields: fields of the configuration, grouped as `whence arena compare --print-config` shows them:
            `training={"steps": 600}`. `whence arena compare --help` describes each of them.

    Returns:
        Tables with verdicts (`result.tables`), ids of the runs (`result.run_ids`), and the path of an HTML page with
        figures (`result.report`). A notebook shows the tables.

    Raises:
        whence.errors.UserError: if a field is not valid, or the comparison is impossible on this machine.

    Example:
        >>> small = {"model": {"d_model": 16, "heads": 2}, "training": {"steps": 5}, "lengths": {"train_length": 8}}
        >>> result = whence.compare("arena", tasks=["parity"], encodings=["rope", "none"], seeds=2, **small)
        >>> table = result.tables[0]
        >>> [row.name for row in table.rows]
        ['rope', 'none']
        >>> table.exploratory  # two seeds are too few for a verdict
        True
        >>> result.report.is_file()
        True
    """
    chosen = instrument(name)
    options = ExecutionOptions.read({"workers": workers, "threads": threads, "device": device})
    return run_comparison(chosen, chosen.config.read(fields), Store(store), options, minutes=minutes)
