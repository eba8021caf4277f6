"""The first page: latest results with their verdicts, a packaged example, recent jobs, and links to all pages."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from datetime import datetime

import streamlit as st

from whence.app.components import PAGES, QUESTIONS, empty, findings, link, live, markup, plain, the_store
from whence.app.jobs import Job, jobs
from whence.report.html import badge, badges
from whence.store.runs import Store

JOBS, RESULTS = 6, 5
"""Jobs and results in the lists"""
EXAMPLE = "k_back_recall"
"""The task of the packaged example"""
PUBLISHED = {"one learning rate": "source_encodings", "tuned learning rates": "source_encodings_tuned"}
"""By their settings, the published tables of the example"""


def show() -> None:
    st.title("Whence does a model know where?")
    st.caption("Measure how sequence models use position: compare encodings, audit leakage, find position features.")
    store = the_store()
    live(None if _loaded() else 1.0)(_results)(store, _loaded())
    live(3)(_activity)(store, [(job.id, job.state) for job in _recent(store)])
    st.subheader("Instruments")
    questions = list(QUESTIONS.items())
    for first in range(0, len(questions), 2):
        for column, (name, question) in zip(st.columns(2), questions[first : first + 2], strict=False):
            with column.container(border=True, height="stretch"):
                link(name, f"**{PAGES[name][0]}**")
                st.caption(question)


def _loaded() -> bool:
    """Whether torch has been imported, which takes seconds and happens in the background (`whence.app.main`)."""
    return hasattr(sys.modules.get("whence.arena.instrument"), "ARENA")


def _recent(store: Store) -> list[Job]:
    return jobs(store)[:JOBS]


# --- results


def _results(store: Store, loaded: bool) -> None:
    if not _loaded():
        st.caption("Loading the latest results …")
        return
    if not loaded:
        st.rerun()
    from whence.app import audits  # these import torch
    from whence.app.views import arena, features, fields, leak
    from whence.app.views.fields import train

    compared = [view.COMPARISONS.latest(store, RESULTS) for view in (arena, leak, features, fields)]
    results = itertools.chain(*compared, audits.latest(store, RESULTS), train.latest(store, RESULTS))
    latest = sorted(results, key=lambda result: -result.time)[:RESULTS]
    if latest:
        st.subheader("Latest results")
    for result in latest:
        with st.container(border=True):
            with st.container(horizontal=True, vertical_alignment="center"):
                link(result.page, f"**{plain(result.title)}**", **result.link)
                when = datetime.fromtimestamp(result.time).strftime("%d %b %H:%M")
                markup(f"{badges(result.badges)} <span class=note>{when}</span>")
            for sentence in result.verdict:
                st.markdown(plain(sentence))
    if latest:
        with st.expander("Packaged example: four encodings, ten seeds"):
            _example()
    else:
        empty(
            "There are no results in this store yet.",
            "Open Arena and press Start for a first comparison. With the default settings it takes a few minutes.",
            f"Store: {store.root}",
        )
        st.subheader("Example: four encodings, ten seeds")
        _example()


def _example() -> None:
    """A published table, as `whence report` has exported it."""
    from whence.demo.published import published, side_by_side, table_of

    results = {settings: published(name) for settings, name in PUBLISHED.items()}
    tables = {settings: table_of(result, EXAMPLE) for settings, result in results.items()}
    fixed, tuned = results.values()
    lengths, tasks = fixed["config"]["lengths"], fixed["config"]["tasks"]
    back = next(task["k"] for task in tasks if task["name"] == EXAMPLE)
    st.caption(
        plain(
            f"Task {EXAMPLE}: predict the symbol {back} positions back. Models are trained at length "
            f"{lengths['train_length']} and tested out of distribution (OOD) at length "
            f"{', '.join(map(str, lengths['test_lengths']))}."
        )
    )
    findings([line for line in list(tables.values())[-1]["findings"] if line.startswith(("ID:", "OOD:"))])
    markup(side_by_side(tables, f"Published results on {EXAMPLE}"))
    st.caption("Reproduce it with:")
    st.code("\n".join(result["command"] for result in (fixed, tuned)), language="bash", wrap_lines=True)


# --- activity


def _activity(store: Store, before: list[tuple[str, str]]) -> None:
    """Recent jobs and counts of runs. Reruns the page when a job has started or ended."""
    runs, recent = store.summaries(), _recent(store)
    if [(job.id, job.state) for job in recent] != before:
        st.rerun()
    if recent:
        st.subheader("Recent jobs")
    for job in recent:
        submission = job.submission
        with st.container(horizontal=True, vertical_alignment="center"):
            markup(badge(job.state))
            page = getattr(submission.request, "instrument", "runs")
            link(page, plain(submission.title), **submission.link)
    if runs:
        states = Counter(run.state for run in runs)
        counts = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
        st.caption(plain(f"{len(runs):,} runs in {store.root}: {counts}."))
