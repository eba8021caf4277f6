"""The page Runs: search, sort, compare, export, resume, verify and delete the runs of the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import streamlit as st

from whence.app.address import query
from whence.app.components import (
    PAGES,
    counted,
    downloads,
    draw,
    empty,
    guarded,
    header,
    live,
    markup,
    plain,
    ready_to_draw,
    terminal,
)
from whence.app.jobs import ALIVE, Job, ResumeRequest, jobs, submit
from whence.app.progress import controls
from whence.formatting import as_csv, duration, labelled, scores
from whence.report.export import picture_of
from whence.report.html import badge
from whence.report.runs import MOST, ComparedRun, beside, curves, runs_page, scored_by, side_by_side
from whence.store.files import digest
from whence.store.lock import LockedError
from whence.store.records import RunSummary
from whence.store.runs import Store, evaluation_rows
from whence.store.verify import problems_of

EVERY_SECONDS = 5.0
MESSAGE = "runs:message"
"""Message of the last action, shown after the rerun"""


def show() -> None:
    store = header("runs")
    rows = store.summaries()[::-1]
    if not rows:
        empty(
            "There are no runs in this store yet.",
            "Open Arena and press Start for a first comparison with default settings.",
        )
        return
    if message := st.session_state.pop(MESSAGE, ""):
        st.success(plain(message), icon=":material/check_circle:")
    matches = _filtered(rows)
    if not matches:
        empty("No runs match these filters.", "Remove a filter or change the search text.")
        return
    ids = _chosen(matches)
    chosen = [row for row in matches if row.id in ids]
    _actions(chosen, store)
    _export(chosen or matches, store, everything=not chosen)
    if chosen:
        _side_by_side([row.id for row in chosen], store)
    else:
        ready_to_draw()
    running = [row.id for row in rows if row.state == "running"]
    resuming = [job.id for job in _resuming(store)]
    live(EVERY_SECONDS if running or resuming else None)(_watch)(running, resuming, store)


def _watch(running: list[str], resuming: list[str], store: Store) -> None:
    """Jobs that resume runs. Reruns the page when a run or a job has ended."""
    now = _resuming(store)
    for job in now:
        with st.container(horizontal=True, vertical_alignment="center"):
            markup(badge(job.state) + f" {job.submission.title}")
            controls(job, f"runs:{job.id}")
    if [job.id for job in now] != resuming or any(not store.folder(run_id).is_locked() for run_id in running):
        st.rerun()


def _resuming(store: Store) -> list[Job]:
    """Running jobs, and the latest one if it was refused or failed."""
    known = [(job, job.state) for job in jobs(store, kind="resume")]
    return [
        job
        for place, (job, state) in enumerate(known)
        if state in ALIVE or (place == 0 and state in ("failed", "refused"))
    ]


# --- selection


def _filtered(rows: list[RunSummary]) -> list[RunSummary]:
    kinds, states = Counter(row.kind for row in rows), Counter(row.state for row in rows)
    words, *places = st.columns([2, 3, 3], vertical_alignment="bottom")
    text = words.text_input(
        "Contains", key="runs:text", help="Words in the title, or the first digits of the id.", persist_state="session"
    )
    filters = {
        "Instrument": {kind: f"{PAGES[kind][0]} {kinds[kind]:,}" for kind in PAGES if kinds[kind]},
        "State": {state: f"{state} {states[state]:,}" for state in sorted(states)},
    }
    wanted_kinds, wanted_states = (
        place.pills(
            name,
            list(labels),
            selection_mode="multi",
            format_func=labels.__getitem__,
            key=f"runs:{name}",
            persist_state="session",
        )
        for place, (name, labels) in zip(places, filters.items(), strict=True)
    )
    return [
        row
        for row in rows
        if (not wanted_kinds or row.kind in wanted_kinds)
        and (not wanted_states or row.state in wanted_states)
        and all(word in row.title.lower() or row.id.startswith(word) for word in text.lower().split())
    ]


def _chosen(rows: list[RunSummary]) -> set[str]:
    """Ids of the selected rows. The table is keyed by its runs, so that a selection never moves to another run."""
    ids = [row.id for row in rows]
    linked = query("run")
    start = [ids.index(linked)] if linked in ids else []
    if linked and not start:
        st.error(
            plain(f"Run {linked[:80]!r} is not in this store, or the filters exclude it."), icon=":material/error:"
        )
    event: Any = st.dataframe(
        _columns(rows),
        key=f"runs:{digest(' '.join(ids))[:16]}",
        on_select="rerun",
        selection_mode="multi-row",
        selection_default={"selection": {"rows": start, "columns": [], "cells": []}},
        hide_index=True,
        height=min(38 + 35 * len(rows), 420),
        alt=f"Table of {len(rows)} runs; select rows to compare, export or delete them.",
        column_config={
            "title": st.column_config.TextColumn(width=300),
            "progress": st.column_config.ProgressColumn(format="percent", min_value=0.0, max_value=1.0, width="small"),
            "started": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm"),
            "time": st.column_config.NumberColumn("time (s)", format="%.0f"),
        },
    )
    return {ids[place] for place in event.selection.rows if place < len(ids)}


def _columns(rows: list[RunSummary]) -> dict[str, list[Any]]:
    return {
        "title": [row.title or row.reason for row in rows],
        "seed": [row.seed for row in rows],
        "state": [row.state for row in rows],
        "progress": [row.step / row.steps if row.steps else 0.0 for row in rows],
        "scores (% unless stated)": [scores(row.headline) for row in rows],
        "time": [row.seconds for row in rows],
        "started": [datetime.fromtimestamp(row.created) if row.created else None for row in rows],
        "instrument": [row.kind for row in rows],
        "id": [row.id for row in rows],
    }


# --- actions


def _actions(chosen: list[RunSummary], store: Store) -> None:
    if not chosen:
        st.caption("Select runs to compare, resume, verify or delete them. Click a column heading to sort.")
        return
    ids = [row.id for row in chosen]
    # a diverged run would diverge again
    resumable = [row.id for row in chosen if row.state in ("interrupted", "failed") and not row.diverged]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{counted(len(ids), 'run')}**", width="content")
        if resumable and st.button(f"Resume {len(resumable)}", icon=":material/play_arrow:", key="runs:resume"):
            request = ResumeRequest(runs=tuple(resumable))
            submit(request, store, title=f"resume {counted(len(resumable), 'run')}")
            st.session_state[MESSAGE] = f"Resuming {counted(len(resumable), 'run')} in the background."
            st.rerun()
        verify = st.button(
            "Verify", icon=":material/verified:", key="runs:verify", help="Compares every file with its checksum."
        )
        if st.button("Delete …", icon=":material/delete:", key="runs:delete"):
            _delete(ids, store)
    if verify:
        _verify(ids, store)


def _verify(ids: list[str], store: Store) -> None:
    quiet = [run_id for run_id in ids if not store.folder(run_id).is_locked()]
    if len(quiet) < len(ids):
        st.info(
            f"{counted(len(ids) - len(quiet), 'run')} not verified, because still running.", icon=":material/pending:"
        )
    with st.spinner("Verifying checksums"):
        problems = [f"{run_id}: {problem}" for run_id in quiet for problem in problems_of(store.folder(run_id))]
    if problems:
        st.error("\n\n".join(map(plain, problems)), icon=":material/error:")
    elif quiet:
        st.success(f"{counted(len(quiet), 'run')} verified: all checksums match.")


@st.dialog("Delete permanently?")
@guarded
def _delete(ids: list[str], store: Store) -> None:
    st.write(f"{counted(len(ids), 'run')}, including weights, metrics and logs. This cannot be undone.")
    st.code("\n".join(ids[:MOST]) + (f"\n… and {len(ids) - MOST} more" if len(ids) > MOST else ""), language=None)
    cancel, confirm = st.columns(2)
    if cancel.button("Cancel", width="stretch"):
        st.rerun()
    if confirm.button(f"Delete {counted(len(ids), 'run')}", type="primary", width="stretch"):
        bar, busy = st.progress(0.0, text="Deleting"), []
        for done, run_id in enumerate(ids):
            try:
                store.remove(store.folder(run_id))
            except LockedError:
                busy.append(run_id)
            except FileNotFoundError:
                pass  # another process has deleted it
            bar.progress((done + 1) / len(ids), text="Deleting")
        left = f" Not deleted, because still running: {', '.join(busy)}." if busy else ""
        st.session_state[MESSAGE] = f"Deleted {counted(len(ids) - len(busy), 'run')}.{left}"
        st.query_params.clear()
        st.rerun()


def _export(rows: list[RunSummary], store: Store, *, everything: bool) -> None:
    """Download buttons: data of any selection, pages and images of up to `MOST` runs."""
    ids = [row.id for row in rows]

    def page() -> bytes:
        runs, _ = beside(store, ids)
        return runs_page(runs, "\n".join(terminal("runs", "show", run_id) for run_id in ids))

    def lines() -> list[dict[str, Any]]:
        """Evaluations, and the error of runs that cannot be read."""
        records, left_out = evaluation_rows(store, rows)
        return records + [{"id": name, "state": "corrupt", "error": str(why)} for name, why in left_out.items()]

    downloads(
        f"runs-{digest(' '.join(ids))[:8]}",
        {
            ".csv": lambda: as_csv(lines()).encode(),
            ".json": lambda: json.dumps(lines(), indent=1).encode(),
            ".html": page,
            ".png": lambda: picture_of(page()),
        },
        f"Export {'all' if everything else 'the'} {counted(len(rows), 'run')}",
        dict.fromkeys((".html", ".png"), f"Select 1 to {MOST} runs first.") if everything or len(rows) > MOST else {},
    )


# --- side by side


def _side_by_side(ids: Sequence[str], store: Store) -> None:
    if len(ids) > MOST:
        st.info(f"{len(ids)} runs are selected; the first {MOST} are shown side by side.", icon=":material/info:")
    runs, unreadable = beside(store, ids[:MOST])
    for run_id, why in unreadable.items():
        st.error(plain(f"{run_id} cannot be read: {why}"), icon=":material/error:")
    if not runs:
        return
    for run in runs:
        if run.status.error:
            st.error(plain(f"{run.id} failed: {run.status.reason}"), icon=":material/error:")
    st.subheader("Side by side" if len(runs) > 1 else plain(runs[0].status.title))
    markup(side_by_side(runs))
    _curves(runs)
    with st.expander("Configuration"):
        for run in runs:
            st.caption(f"{run.id} · {duration(run.status.seconds)} · {run.status.tokens:,} tokens")
            st.json(dict(run.config), expanded=1)


@st.fragment
@guarded
def _curves(runs: list[ComparedRun]) -> None:
    names = scored_by(runs)
    if not names:
        empty("The selected runs have not been evaluated yet.")
        return
    name = st.selectbox("Score over steps", names, format_func=labelled)
    if name:
        draw(curves(runs, name), f"{labelled(name)} over training steps, {len(runs)} runs", f"runs:curve:{name}")
