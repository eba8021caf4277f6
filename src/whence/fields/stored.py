"""Models that were trained, back from the store."""

from __future__ import annotations

from whence.errors import UserError
from whence.fields.model import FieldModel
from whence.fields.run import FieldsRun
from whence.store.runs import Store
from whence.store.stored import stored
from whence.training.checkpoint import weights_of


def load(store: Store, word: str) -> tuple[FieldModel, FieldsRun]:
    """A finished run by the first digits of its id."""
    with stored(store, word) as (folder, run):
        if not isinstance(run, FieldsRun):
            raise UserError(f"run: {folder.id} is no field. Allowed: runs of 'whence fields train'.", field="run")
        model = run.build_model("cpu")
        model.load_state_dict(weights_of(folder))
    return model.eval(), run
