"""A signal that is never trained on, as the model shows it now and as it did before: training to watch."""

from __future__ import annotations

import html
from dataclasses import dataclass

import streamlit as st
import torch
from torch import Tensor

from whence.app.components import RecentCache, draw, markup, plain
from whence.fields.analysis import SHOWN, as_images, example_signals, side_by_side
from whence.fields.images import data_uri
from whence.fields.metrics import psnr
from whence.fields.model import FieldModel
from whence.fields.page import signal_curves
from whence.fields.run import FieldsRun, load_model
from whence.store.files import CorruptFileError
from whence.store.runs import Store
from whence.training.checkpoint import NAME, found, read, weights_in

RUNS, STEPS, STRIP = 16, 64, 8
"""In memory: runs, and steps of each. Shown: steps."""


@dataclass(frozen=True)
class Seen:
    """What the model made of the example after so many steps."""

    step: int
    columns: dict[str, Tensor]
    quality: dict[str, float]
    """By output, PSNR in dB"""


def show(run: FieldsRun, store: Store, *, finished: bool) -> None:
    """The latest, and a strip of what came before."""
    known = _history(run, store, finished=finished)
    if not known:
        st.caption("The first picture comes with the first checkpoint, after a few seconds of training.")
        return
    now = known[-1]
    told = ", ".join(f"{output} {value:.1f} dB PSNR" for output, value in now.quality.items())
    st.markdown(plain(f"Step {now.step:,} of {run.training.steps:,}: {told}, on a signal never trained on."))
    _, x = _example(run)
    if x.ndim == 3:
        draw(signal_curves(now.columns, x), f"The true signal and the model's at step {now.step}", f"signal:{run.id}")
        return
    _gallery(
        [
            (values, name if finished or name not in now.quality else f"{name} now")
            for name, values in now.columns.items()
        ],
        11,
    )
    if len(known) > 1:
        st.caption("The field, as it was trained")
        _gallery([(seen.columns["field"], _caption(seen)) for seen in _spread(known)], 7)


def _caption(seen: Seen) -> str:
    return f"step {seen.step:,}: {seen.quality['field']:.1f} dB"


def _spread(known: list[Seen]) -> list[Seen]:
    """A few of them, from first to last."""
    if len(known) <= STRIP:
        return known
    return [known[round(place * (len(known) - 1) / (STRIP - 1))] for place in range(STRIP)]


def _gallery(shown: list[tuple[Tensor, str]], width: int) -> None:
    """width: of one picture, in rem."""
    pictures = as_images({"original": shown[0][0], **{str(place): one for place, (one, _) in enumerate(shown)}})
    figures = "".join(
        f'<figure style="margin:0"><img alt="{html.escape(said)}" src="{data_uri(pictures[str(place)][0])}"'
        f' style="width:{width}rem;max-width:42vw;image-rendering:pixelated;border-radius:.3rem">'
        f"<figcaption class=note>{html.escape(said)}</figcaption></figure>"
        for place, (_, said) in enumerate(shown)
    )
    markup(f'<div style="display:flex;flex-wrap:wrap;gap:.8rem">{figures}</div>')


def _history(run: FieldsRun, store: Store, *, finished: bool) -> list[Seen]:
    known = _memory().get_or_make((run.id, _begun(run, store)), dict)
    if finished and run.training.steps not in known:
        known[run.training.steps] = _seen(load_model(store, run.id)[0], run, run.training.steps)
    elif not finished:
        _look(run, store, known)
    if len(known) > STEPS:
        for step in sorted(known)[1:-1:2]:
            known.pop(step, None)
    return [seen for _, seen in sorted(known.copy().items())]


def _begun(run: FieldsRun, store: Store) -> float:
    """A run that was deleted and trained again is another one, though it has the same name."""
    try:
        return float(store.folder(run.id).status().get("created", 0))
    except (OSError, CorruptFileError):
        return 0


def _look(run: FieldsRun, store: Store, known: dict[int, Seen]) -> None:
    """At the newest checkpoint that is still there when it is read."""
    folder = store.folder(run.id).path
    for path in found(folder) if folder.is_dir() else ():
        step = int(path.name.split("-")[1]) if NAME.fullmatch(path.name) else -1
        if step in known:
            return
        model = run.build_model("cpu").eval()
        try:
            tensors, _ = read(path, model)
        except (OSError, CorruptFileError):  # training goes on, and takes the old ones away
            continue
        model.load_state_dict(weights_in(tensors))
        known[step] = _seen(model, run, step)
        return


def _seen(model: FieldModel, run: FieldsRun, step: int) -> Seen:
    signals, x = _example(run)
    columns = side_by_side(model, signals, x)
    outputs = [name for name in columns if name in ("field", "render")]
    return Seen(step, columns, {name: float(psnr(columns[name].clamp(0, 1), signals)) for name in outputs})


@st.cache_resource(show_spinner="Looking for an example", max_entries=64)
def _example(run: FieldsRun) -> tuple[Tensor, Tensor]:
    """Always the same: the one of a few with the strongest contrast, as (1, channels, *size)."""
    signals, x = example_signals(run, SHOWN)
    place = int(torch.argmax(signals.flatten(1).std(1)))
    return signals[place : place + 1], x[place : place + 1]


@st.cache_resource(show_spinner=False)
def _memory() -> RecentCache[tuple[str, float], dict[int, Seen]]:
    return RecentCache(RUNS)
