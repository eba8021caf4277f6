"""What Python calls directly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whence.execution.options import ExecutionOptions
from whence.experiments.comparison import ComparisonResult, run_comparison
from whence.instruments import instrument
from whence.store.runs import Store


def compare(
    name: str,
    /,
    *,
    store: str | Path | None = None,
    options: ExecutionOptions = ExecutionOptions(),
    minutes: float | None = None,
    **fields: Any,
) -> ComparisonResult[Any]:
    """Run a comparison of one instrument, as `whence arena compare` and the others do, and return its tables and page.

    Runs that the store has already are not run again.

    Args:
        name: arena, leak, features or fields.
        store: directory of runs; None: $WHENCE_STORE, else `whence-runs` in the working directory.
        options: workers, threads, device. None of these changes what a run is.
        minutes: with `until_decided`, add no more seeds after this long.
        fields: the fields of the configuration, grouped as `--print-config` shows them: `training={"steps": 600}`.

    Raises:
        whence.errors.UserError: if a field is not valid, or the comparison is impossible on this machine.

    Example:
        >>> result = whence.compare("arena", tasks=["k_back_recall"], encodings=["rope", "alibi"], seeds=7)
        >>> print(*result.tables[0].findings, sep="\\n")
    """
    chosen = instrument(name)
    return run_comparison(chosen, chosen.config.read(fields), Store(store), options, minutes=minutes)
