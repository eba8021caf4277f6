"""Field runs of the store, their models, and their output for one held-out signal during training."""

from __future__ import annotations

import html
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st
import torch
from torch import Tensor

from whence.app.components import draw, markup, plain
from whence.errors import UserError
from whence.fields.analysis import SHOWN, as_images, example_signals, side_by_side
from whence.fields.images import data_uri
from whence.fields.metrics import OUTPUTS, psnr
from whence.fields.model import FieldModel
from whence.fields.page import signal_curves
from whence.fields.run import FieldsRun, load_model
from whence.store.disk import CorruptFileError
from whence.store.runs import Store
from whence.training.checkpoint import NAME, read, saved_checkpoints, weights_in


@dataclass(frozen=True)
class ListedRun:
    """A run in lists."""

    run: FieldsRun
    state: str

    @property
    def label(self) -> str:
        data, *parts = self.run.labels().values()
        steps = f"{self.run.training.steps:,} steps"
        return " · ".join([data, steps, *parts, f"seed {self.run.seed}", self.run.id])

    @property
    def of_images(self) -> bool:
        """Colour images, as uploads are."""
        data = self.run.data.build()
        return data.axes == 2 and data.channels == 3

    @property
    def renders(self) -> bool:
        return self.run.model.render_width > 0


def field_runs(store: Store) -> dict[str, ListedRun]:
    """By id, the latest first. Unreadable runs are listed on the page Runs only."""
    runs = {}
    for summary in reversed(store.summaries()):
        if summary.kind == FieldsRun.kind:
            with suppress(OSError, CorruptFileError, UserError):
                runs[summary.id] = ListedRun(_run_config(store.root, summary.id), summary.state)
    return runs


@st.cache_resource(show_spinner=False, max_entries=2048)
def _run_config(root: Path, run_id: str) -> FieldsRun:
    """Cached: the id is the hash of the configuration, so that it never changes."""
    run = Store(root).folder(run_id).config()
    if not isinstance(run, FieldsRun):
        raise UserError(f"run: expected a run of fields, got {run_id}, a run of {run.kind}.")
    return run


def model_of(store: Store, run: FieldsRun) -> FieldModel:
    return _model(store.root, run.id, tuple(store.folder(run.id).stamp()))


@st.cache_resource(show_spinner="Loading the model", max_entries=16)
def _model(root: Path, run_id: str, stamp: Any) -> FieldModel:
    """Cached. stamp: changes when a run is trained again."""
    return load_model(Store(root), run_id)[0]


# --- one held-out signal during training

RUNS, STEPS, STRIP = 16, 64, 8
"""Limits: runs in memory, steps of each, steps shown"""


@dataclass(frozen=True)
class Snapshot:
    """The outputs of the model for the example after a number of steps."""

    step: int
    columns: dict[str, Tensor]
    quality: dict[str, float]
    """By output, PSNR in dB"""


def show_progression(run: FieldsRun, store: Store, *, finished: bool) -> None:
    """The latest output, and a strip of earlier ones."""
    known = _history(run, store, finished=finished)
    if not known:
        st.caption("The first image appears with the first checkpoint, after a few seconds of training.")
        return
    now = known[-1]
    text = ", ".join(f"{output} {value:.1f} dB PSNR" for output, value in now.quality.items())
    st.markdown(plain(f"Step {now.step:,} of {run.training.steps:,}: {text}, on a held-out signal."))
    _, x = _example(run)
    if x.ndim == 3:
        draw(
            signal_curves(now.columns, x),
            f"A held-out signal and the output of the model at step {now.step}",
            f"signal:{run.id}",
        )
        return
    outputs = {name: name if finished or name not in now.quality else f"{name} now" for name in now.columns}
    _gallery({caption: now.columns[name] for name, caption in outputs.items()}, 11)
    if len(known) > 1:
        st.caption("Output of the field during training")
        count = min(len(known), STRIP)
        strip = [known[round(place * (len(known) - 1) / (count - 1))] for place in range(count)]
        _gallery({f"step {one.step:,}: {one.quality['field']:.1f} dB": one.columns["field"] for one in strip}, 7)


def _gallery(shown: dict[str, Tensor], width: int) -> None:
    """By caption. width: of one image, in rem."""
    images = as_images({"original": next(iter(shown.values())), **shown})
    figures = "".join(
        f'<figure style="margin:0"><img alt="{html.escape(caption)}" src="{data_uri(images[caption][0])}"'
        f' style="width:{width}rem;max-width:42vw;image-rendering:pixelated;border-radius:.3rem">'
        f"<figcaption class=note>{html.escape(caption)}</figcaption></figure>"
        for caption in shown
    )
    markup(f'<div style="display:flex;flex-wrap:wrap;gap:.8rem">{figures}</div>')


def _history(run: FieldsRun, store: Store, *, finished: bool) -> list[Snapshot]:
    known = _memory(store.root, run.id, _begun(run, store))
    if finished and run.training.steps not in known:
        known[run.training.steps] = _snapshot(load_model(store, run.id)[0], run, run.training.steps)
    elif not finished:
        _read_checkpoint(run, store, known)
    if len(known) > STEPS:
        for step in sorted(known)[1:-1:2]:
            known.pop(step, None)
    return [one for _, one in sorted(known.copy().items())]


def _begun(run: FieldsRun, store: Store) -> float:
    """Creation time: a run that was deleted and trained again has the same id."""
    try:
        return store.folder(run.id).status().created
    except (OSError, CorruptFileError):
        return 0


def _read_checkpoint(run: FieldsRun, store: Store, known: dict[int, Snapshot]) -> None:
    """Add a snapshot from the newest checkpoint that exists when it is read."""
    folder = store.folder(run.id).path
    for path in saved_checkpoints(folder) if folder.is_dir() else ():
        step = int(path.name.split("-")[1]) if NAME.fullmatch(path.name) else -1
        if step in known:
            return
        model = run.build_model("cpu").eval()
        try:
            tensors, _ = read(path, model)
        except (OSError, CorruptFileError):  # training continues and deletes old checkpoints
            continue
        model.load_state_dict(weights_in(tensors))
        known[step] = _snapshot(model, run, step)
        return


def _snapshot(model: FieldModel, run: FieldsRun, step: int) -> Snapshot:
    signals, x = _example(run)
    columns = side_by_side(model, signals, x)
    made = {name: float(psnr(values.clamp(0, 1), signals)) for name, values in columns.items() if name in OUTPUTS}
    return Snapshot(step, columns, made)


@st.cache_resource(show_spinner="Loading an example", max_entries=64)
def _example(run: FieldsRun) -> tuple[Tensor, Tensor]:
    """The example with the highest contrast of a few, as (1, channels, *size); the same for every call."""
    signals, x = example_signals(run, SHOWN)
    place = int(torch.argmax(signals.flatten(1).std(1)))
    return signals[place : place + 1], x[place : place + 1]


@st.cache_resource(show_spinner=False, max_entries=RUNS)
def _memory(root: Path, run_id: str, begun: float) -> dict[int, Snapshot]:
    """Snapshots by step, shared by all tabs."""
    return {}
