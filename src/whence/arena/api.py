"""The arena from Python: a trained model."""

from __future__ import annotations

from pathlib import Path

from whence.arena.attention import load_model
from whence.arena.run import ArenaRun
from whence.errors import UserError
from whence.models.sequence import SequenceModel
from whence.store.runs import Store, open_finished_run


def load(run: str, *, store: str | Path | None = None) -> SequenceModel:
    """Load the trained model of a run of the arena.

    Args:
        run: id of a finished run, or its first digits.
        store: directory of runs; None: $WHENCE_STORE, else `whence-runs` in the working directory.

    Returns:
        The model in evaluation mode. It takes token ids (batch, length) and positions (1 or batch, length).

    Raises:
        whence.errors.UserError: if the run does not exist, has not finished, is damaged or is of another instrument.

    Example:
        >>> small = {"model": {"d_model": 16, "heads": 2}, "training": {"steps": 5}, "lengths": {"train_length": 8}}
        >>> result = whence.compare("arena", tasks=["parity"], encodings=["rope"], seeds=1, **small)
        >>> model = whence.arena.load(result.run_ids[0])
        >>> tokens, positions = torch.tensor([[1, 0, 1, 1]]), torch.arange(4)[None]
        >>> with whence.capture(model) as cache:
        ...     answers = model(tokens, positions)
        >>> answers.shape, cache.attention["blocks.0.mixer"].shape
        (torch.Size([1, 2]), torch.Size([1, 2, 4, 4]))
    """
    with open_finished_run(Store(store), run) as (folder, config):
        if not isinstance(config, ArenaRun):
            raise UserError(f"run: expected a run of the arena, got {folder.id}, a run of {config.kind}.")
        return load_model(config, folder)
