"""Collect activations of a model, and list the collections of the store."""

from __future__ import annotations

import html
from pathlib import Path

import streamlit as st

from whence.app.components import empty, live, markup, table
from whence.app.forms import form
from whence.app.jobs import ALIVE, ActionRequest, Document, jobs, submit
from whence.app.progress import controls
from whence.errors import UserError, not_allowed
from whence.features.activations.sources import RUN
from whence.features.activations.store import Collection, CollectionRecord, collections, folder
from whence.features.config import CollectConfig
from whence.features.data import DATA
from whence.models.pretrained import PACKAGED
from whence.report.html import badge
from whence.store.data import CONFIG
from whence.store.runs import Store

COMMAND = ("features", "collect")
EVERY_SECONDS = 2.0


def collect(store: Store) -> None:
    st.write(
        "Collect activations of a language model, with the token and the position of each, to train sparse "
        "autoencoders on. For your own models and texts, use the command line: whence features collect."
    )
    models = _models(store)
    config = form(
        CollectConfig,
        "collect",
        list(COMMAND),
        first=("name", "model", "layer", "tokens", "context_size"),
        left_out=("text",),  # it could name any file of this machine
        start={"tokens": 60_000},
        offered={"model": models},
        resolve=lambda document: _resolved(document, models, store),
    )
    if st.button("Collect", type="primary", disabled=config is None, icon=":material/download:") and config:
        title = f"activations of {config.model} after block {config.layer}"
        document = config.model_dump(mode="json")
        request = ActionRequest(instrument="features", verb="collect", config=document)
        submit(request, store, title=title, link={"collection": config.name})
        st.rerun()
    alive = sum(job.state in ALIVE for job in jobs(store, instrument="features", verb="collect"))
    live(EVERY_SECONDS if alive else None)(_there)(store, alive)


def _models(store: Store) -> dict[str, str]:
    """Packaged models and finished runs of the arena, but no paths."""
    runs = [run for run in store.summaries() if run.kind == "arena" and run.state == "finished"]
    named = {f"{RUN}{run.id}": f"run {run.id[:4]}: {run.title}, seed {run.seed}" for run in runs[::-1]}
    return {**dict(zip(PACKAGED, PACKAGED, strict=True)), **named}


def _resolved(document: Document, models: dict[str, str], store: Store) -> Document:
    name = str(document.get("name", ""))
    if name:
        folder(store, name)  # raises UserError for invalid names
    if name in DATA.names():
        raise UserError(f"name: {name!r} is the name of packaged data. Choose another name.")
    model = str(document.get("model", CollectConfig().model))
    if model not in models:
        raise not_allowed("model", model, list(models))
    return document


def _there(store: Store, alive: int) -> None:
    """Running jobs and stored collections, redrawn while a job runs."""
    submitted = [(job, job.state) for job in jobs(store, instrument="features", verb="collect")]
    for place, (job, state) in enumerate(submitted):
        if state in ALIVE or (place == 0 and state != "finished"):
            markup(f"{badge(state)} {html.escape(job.submission.title)}")
            controls(job, job.id)
    st.subheader("Collections in this store")
    paths = collections(store)
    if not paths:
        empty(
            "No activations have been collected yet.",
            "Synthetic data, whose features are known, is available under Compare.",
        )
    else:
        table(
            ["name", "model", "layer", "d_in", "context size", "activations", "held out", "state"],
            [_line(path) for path in paths],
            label="collected activations",
        )
    if alive != sum(state in ALIVE for _, state in submitted):
        st.rerun()


def _line(path: Path) -> list[str]:
    try:
        collection = Collection.begun(path)
        parts, missing = len(collection.config.parts), len(collection.data.missing())
        size = _record(path, (path / CONFIG).stat().st_mtime_ns)
    except (UserError, OSError) as problem:
        return [path.name, *[""] * 6, badge("corrupt") + f" {problem}"]
    site = collection.config.site
    source = [site.model, str(site.layer)] if site else ["–", "–"]
    counts = [f"{count:,}" for count in (size.d_in, size.context_size, size.activations, size.held_out)]
    state = f"{parts - missing} of {parts} parts" if missing else badge("finished")
    return [path.name, *source, *counts, state]


@st.cache_resource(show_spinner=False, max_entries=64)
def _record(path: Path, stamp: int) -> CollectionRecord:
    return Collection.begun(path).record()
