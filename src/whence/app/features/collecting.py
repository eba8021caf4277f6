"""States of a model: collect some, see which there are."""

from __future__ import annotations

import html
from pathlib import Path

import streamlit as st

from whence.app.components import empty, live, markup, plain, table
from whence.app.forms import form
from whence.app.interim import CollectConfig
from whence.app.jobs import ALIVE, ActionRequest, Document, jobs, submit
from whence.app.progress import controls
from whence.errors import UserError, not_allowed
from whence.features.activations.sources import RUN, Collection
from whence.features.activations.store import Activations, collections, folder
from whence.features.sae.parts import DATA
from whence.models.pretrained import PACKAGED
from whence.report.html import badge
from whence.store.runs import Store

COMMAND = ("features", "collect")
EVERY_SECONDS = 2.0


def collect(store: Store) -> None:
    st.write(
        "Hidden states of a model, each with its token and its position: what autoencoders learn features of. "
        "Models of your own, and other texts, can be named on the command line."
    )
    name = st.text_input(
        "name", key="collect:name", help="What to call them; none: model and layer.", placeholder="model and layer"
    )
    problem = _problem(store, name)
    if problem:
        st.error(plain(problem), icon=":material/error:")
    models = _models(store)
    words = [*COMMAND, *(["--name", name] if name and not problem else [])]
    filled = form(
        Collection,
        "collect",
        words,
        first=("model", "layer", "tokens", "context"),
        left_out=("text",),  # any file of this machine could be named there
        start={"tokens": 60_000},
        offered={"model": models},
        resolve=lambda document: _settled(document, models),
    )
    ready = filled.config is not None and not problem
    if st.button("Collect", type="primary", disabled=not ready, icon=":material/download:") and filled.config:
        title = f"states of {filled.config.model} after block {filled.config.layer}"
        config = CollectConfig(**filled.config.model_dump(), name=name).model_dump(mode="json")
        request = ActionRequest(instrument="features", verb="collect", config=config)
        submit(request, store, title=title, link={"collection": name})
        st.rerun()
    alive = sum(job.state in ALIVE for job in jobs(store, instrument="features", verb="collect"))
    live(EVERY_SECONDS if alive else None)(_there)(store, alive)


def _problem(store: Store, name: str) -> str:
    try:
        folder(store, name or "none")
    except UserError as error:
        return str(error)
    if name in DATA.names():
        return f"name: {name!r} is the name of data already. Allowed: another."
    return ""


def _models(store: Store) -> dict[str, str]:
    """Those that come in packages, and runs of the arena: no path of this machine."""
    runs = [run for run in store.summaries() if run.kind == "arena" and run.state == "finished"]
    named = {f"{RUN}{run.id}": f"run {run.id[:4]}: {run.title}, seed {run.seed}" for run in runs[::-1]}
    return {**dict(zip(PACKAGED, PACKAGED, strict=True)), **named}


def _settled(document: Document, models: dict[str, str]) -> Document:
    if document.get("model", Collection().model) not in models:
        raise not_allowed("model", document["model"], list(models))
    return document


def _there(store: Store, alive: int) -> None:
    """What is being collected, and what there is. Made anew while something is."""
    found = [(job, job.state) for job in jobs(store, instrument="features", verb="collect")]
    for place, (job, state) in enumerate(found):
        if state in ALIVE or (place == 0 and state != "finished"):
            markup(f"{badge(state)} {html.escape(job.submission.title)}")
            controls(job, job.id)
    st.subheader("In this store")
    paths = collections(store)
    if not paths:
        empty("No states have been collected yet.", "Planted states, whose features are known, need no collecting.")
    else:
        table(
            ["name", "model", "layer", "width", "context", "states", "held out", ""],
            [_line(path) for path in paths],
            label="collected states",
        )
    if alive != sum(state in ALIVE for _, state in found):
        st.rerun()


def _line(path: Path) -> list[str]:
    try:
        found = Activations.begun(path)
        missing = len(found.missing())
        facts = _facts(path, (path / "tokens.safetensors").stat().st_mtime_ns)
    except (UserError, OSError) as problem:
        return [html.escape(path.name), *[""] * 6, f"{badge('corrupt')} {html.escape(str(problem))}"]
    asked = [html.escape(str(found.spec.get(key, "–"))) for key in ("model", "layer")]
    counts = [f"{facts[key]:,}" for key in ("width", "context", "states", "held_out")]
    state = f"{found.shards - missing} of {found.shards} parts" if missing else badge("finished")
    return [html.escape(path.name), *asked, *counts, state]


@st.cache_resource(show_spinner=False, max_entries=64)
def _facts(path: Path, stamp: int) -> dict[str, int]:
    return Activations.begun(path).facts()
