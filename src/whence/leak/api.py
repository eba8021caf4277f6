"""Position leakage from Python: models that `whence.audit` can be given by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whence.leak.audit.artifact import load_target
from whence.leak.audit.target import AuditTarget
from whence.leak.config import AuditConfig
from whence.store.runs import Store


def load(
    run: str | None = None, *, model: str | None = None, store: str | Path | None = None, **options: Any
) -> AuditTarget:
    """Load a stored run or a pretrained model, for `whence.audit`.

    Pass either `run` or `model`.

    Args:
        run: id of a finished run of leak or arena, or its first digits.
        model: `minilm`, `smollm2`, a directory with a transformers model, or FILE.py:FUNCTION.
        store: directory of runs; None: $WHENCE_STORE, else `whence-runs` in the working directory.
        options: options of `whence leak audit` for pretrained models: text, token_ids, mask_token_id, rows, length.

    Returns:
        The model with the examples to audit it on.

    Raises:
        whence.errors.UserError: if the run or the model cannot be loaded.

    Example:
        >>> small = {"model": {"d_model": 16, "heads": 2}, "training": {"steps": 5}}
        >>> result = whence.compare("arena", tasks=["copy"], encodings=["learned"], seeds=1, **small)
        >>> target = whence.leak.load(result.run_ids[0])
        >>> whence.audit(target, ratios=[0.5]).tokens == target.tokens
        True
    """
    config = AuditConfig.read({"run": run, "model": model, **options})
    config.check()
    return load_target(config, Store(store))
