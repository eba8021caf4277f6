"""Models that were trained, back from the store."""

from __future__ import annotations

from whence.errors import UserError
from whence.fields.model import FieldModel
from whence.fields.run import Run
from whence.runs.checkpoint import weights_of
from whence.runs.files import Corrupt
from whence.runs.spec import load_run_spec
from whence.runs.store import Store


def load(store: Store, word: str) -> tuple[FieldModel, Run]:
    """A finished run by the first digits of its id."""
    folder = store.find(word)
    try:
        if folder.status()["state"] != "finished":
            raise UserError(f"run: {folder.id} has not finished. Allowed: finished runs.", field="run")
        run = load_run_spec(folder.spec_document())
        if not isinstance(run, Run):
            raise UserError(f"run: {folder.id} is no field. Allowed: runs of 'whence fields train'.", field="run")
        model = run.build_model("cpu")
        model.load_state_dict(weights_of(folder))
    except (OSError, Corrupt) as damage:
        raise UserError(
            f"run: {folder.id} cannot be read: {damage}. See 'whence runs verify {folder.id}'.", field="run"
        ) from None
    return model.eval(), run
