"""Field runs that the store has, and their models."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from whence.errors import UserError
from whence.fields.model import FieldModel
from whence.fields.run import FieldsRun, load_model
from whence.store.files import CorruptFileError
from whence.store.runs import Store
from whence.training.config import load_run_config


@dataclass(frozen=True)
class Trained:
    """A run as lists show it."""

    run: FieldsRun
    summary: dict[str, Any]

    @property
    def label(self) -> str:
        data, *parts = self.run.labels().values()
        steps = f"{self.run.training.steps:,} steps"
        return " · ".join([data, steps, *parts, f"seed {self.run.seed}", self.run.id])

    @property
    def of_pictures(self) -> bool:
        """In colour, as pictures that somebody brings are."""
        data = self.run.data.build()
        return data.axes == 2 and data.channels == 3

    @property
    def renders(self) -> bool:
        return self.run.model.render_width > 0


def field_runs(store: Store) -> dict[str, Trained]:
    """By id, the latest first. What cannot be read is left to the page of all runs."""
    found = {}
    for summary in reversed(store.summaries()):
        if summary.get("kind") == FieldsRun.kind:
            with suppress(OSError, CorruptFileError, UserError):
                found[summary["id"]] = Trained(_spec(store.root, summary["id"]), summary)
    return found


@st.cache_resource(show_spinner=False, max_entries=2048)
def _spec(root: Path, run_id: str) -> FieldsRun:
    """An id names what it says, so that this never changes."""
    run = load_run_config(Store(root).folder(run_id).spec_document())
    if not isinstance(run, FieldsRun):
        raise UserError(f"run: {run_id} is none of fields.", field="run")
    return run


def model_of(store: Store, run: FieldsRun) -> FieldModel:
    return _model(store.root, run.id, tuple(store.folder(run.id).stamp()))


@st.cache_resource(show_spinner="Loading the model", max_entries=16)
def _model(root: Path, run_id: str, stamp: Any) -> FieldModel:
    """stamp: a run that was deleted and trained again is read again."""
    return load_model(Store(root), run_id)[0]
