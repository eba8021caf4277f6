"""Autoencoders that were trained, back from the store."""

from __future__ import annotations

from whence.errors import UserError
from whence.features.run import FeaturesRun
from whence.features.sae.autoencoder import Autoencoder
from whence.store.runs import Store, open_finished_run
from whence.training.checkpoint import weights_of


def load(store: Store, word: str) -> tuple[Autoencoder, FeaturesRun]:
    """A finished run by the first digits of its id."""
    with open_finished_run(store, word) as (folder, run):
        if not isinstance(run, FeaturesRun):
            raise UserError(
                f"run: {folder.id} is no autoencoder. Allowed: runs of 'whence features train'.", field="run"
            )
        model = run.build_model("cpu")
        model.load_state_dict(weights_of(folder))
    return model.eval(), run
