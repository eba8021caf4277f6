"""Where one arrives: what is running, what was found lately, where to go."""

from __future__ import annotations

from collections import Counter

import streamlit as st

from whence.app.components import PAGES, QUESTIONS, empty, link, live, markup, plain, the_store
from whence.app.jobs import jobs
from whence.report.html import badge

LATELY = 6
"""Jobs of the app that are shown."""


def show() -> None:
    st.title("Whence does a model know where?")
    st.caption("A laboratory for positional information in sequence models.")
    live(3)(_now)()
    st.subheader("Instruments")
    questions = list(QUESTIONS.items())
    for first in range(0, len(questions), 2):
        for column, (name, question) in zip(st.columns(2), questions[first : first + 2], strict=False):
            with column.container(border=True, height="stretch"):
                link(name, f"**{PAGES[name][0]}**")
                st.caption(question)


def _now() -> None:
    store = the_store()
    runs, latest = store.summaries(), jobs(store)[:LATELY]
    if not runs and not latest:
        empty(
            "Nothing has been run here yet.",
            "A first comparison takes a few minutes: open Arena, keep what the form says, press Start.",
            f"Store: {store.root}",
        )
        return
    by_state = Counter(run.state for run in runs)
    shown = [state for state in ("running", "finished", "failed", "interrupted", "corrupt") if by_state[state]]
    for column, state in zip(st.columns(max(4, len(shown))), shown, strict=False):
        column.metric(f"runs {state}", f"{by_state[state]:,}")
    if latest:
        st.caption("Recent jobs of this app")
    for job in latest:
        submission = job.submission
        with st.container(horizontal=True, vertical_alignment="center"):
            markup(badge(job.state))
            page = getattr(submission.request, "instrument", "runs")
            link(page, plain(submission.title), **submission.link)
    st.caption(plain(f"Store: {store.root}"))
