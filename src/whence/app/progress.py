"""Runs as they run, read from the store: whoever started them, and whether or not anybody looked before."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from whence.app.jobs import ALIVE, Job
from whence.app.parts import plain, table
from whence.formatting import duration, scored
from whence.report.html import badge
from whence.store.files import CorruptFileError
from whence.store.runs import Store
from whence.training.config import RunConfig

SHOWN_AT_ONCE = 12


@dataclass(frozen=True)
class Standing:
    """Where a planned run stands."""

    run: RunConfig
    status: dict[str, Any]

    @property
    def state(self) -> str:
        return str(self.status.get("state", "not begun"))

    @property
    def done(self) -> int:
        return self.run.training.steps if self.state == "finished" else int(self.status.get("step", 0))

    @property
    def pace(self) -> float:
        """Steps per second, over all its time."""
        seconds = self.status.get("seconds", 0)
        return self.done / seconds if seconds else 0.0


def standings(runs: Sequence[RunConfig], store: Store) -> list[Standing]:
    found = []
    for run in runs:
        try:
            status = store.folder(run.id).status()
        except FileNotFoundError:
            status = {}
        except (OSError, CorruptFileError) as damage:
            status = {"state": "corrupt", "error": {"message": str(damage)}}
        found.append(Standing(run, status))
    return found


def is_running(found: Sequence[Standing]) -> bool:
    return any(one.state == "running" for one in found)


def is_alive(found: Sequence[Standing], job: Job | None) -> bool:
    """Whoever started it: the app, or a terminal."""
    return (job is not None and job.state in ALIVE) or is_running(found)


def show_progress(found: Sequence[Standing], job: Job | None) -> None:
    """A bar for all, and a line for each that is running or has gone wrong."""
    total = sum(one.run.training.steps for one in found)
    done = sum(one.done for one in found)
    counts = [one.state for one in found]
    told = " · ".join(f"{counts.count(state)} {state}" for state in dict.fromkeys(counts))
    st.progress(done / total if total else 0.0, text=plain(f"{told}{_left(found, done, total, job)}"))
    shown = [one for one in found if one.state in ("running", "failed", "corrupt")]
    if shown:
        table(
            ["run", "", "step", "loss", "so far", "left"],
            [_line(one) for one in shown[:SHOWN_AT_ONCE]],
            label="runs in progress",
        )


def controls(job: Job | None, key: str) -> None:
    """Stop what the app has started, or go on with it; what does not train begins again."""
    if job is None:
        return
    state, resumes = job.state, job.submission.exclusive
    if state in ALIVE:
        if state == "waiting":
            st.caption("Waiting for its turn: another job of the app is training.")
        about = "Writes checkpoints first; nothing is lost." if resumes else "It can be started again."
        start = job.started
        if st.session_state.get(f"{key}:stopping") == start:
            st.button("Stopping …", key=f"{key}:wait", disabled=True, help=about)
        elif st.button("Stop", key=f"{key}:stop", icon=":material/stop:", help=about):
            st.session_state[f"{key}:stopping"] = start
            job.stop()
            st.rerun()
    elif state in ("stopped", "interrupted"):
        st.warning(
            "Stopped. Nothing is lost." if resumes else "Stopped before its end.", icon=":material/pause_circle:"
        )
        word = "Resume" if resumes else "Start again"
        if st.button(word, key=f"{key}:resume", icon=":material/play_arrow:", type="primary"):
            job.start()
            st.rerun()
    elif state in ("failed", "refused"):
        outcome = "was refused" if state == "refused" else "failed"
        why = job.failure.message if job.failure else ""
        st.error(plain(f"The job {outcome}. {why}"), icon=":material/error:")
        if st.button("Try again", key=f"{key}:again", icon=":material/refresh:"):
            job.start()
            st.rerun()


def _left(found: Sequence[Standing], done: int, total: int, job: Job | None) -> str:
    start = job.started if job and job.alive else None
    if start is None or start.begun is None:
        return ""
    begun = start.begun
    if not is_running(found):
        return f" · starting, {duration(time.time() - begun)}"
    pace = sum(one.pace for one in found if one.state == "running")
    left = f" · about {duration((total - done) / pace)} left" if pace > 0 and done < total else ""
    return f" · {duration(time.time() - begun)}{left}"


def _line(one: Standing) -> list[str]:
    status, steps = one.status, one.run.training.steps
    what = html.escape(" · ".join([*one.run.labels().values(), f"seed {one.run.seed}"]))
    if one.state != "running":
        why = html.escape((status.get("error") or {}).get("message", ""))
        return [what, badge(one.state), f"{status.get('step', 0)}/{steps}", "", why, ""]
    bar = f'<progress value="{one.done}" max="{steps}" aria-label="steps of {what}"></progress>'
    loss = status.get("loss")
    numbers = html.escape(" · ".join(f"{name} {scored(name, value)}" for name, value in status["headline"].items()))
    left = duration((steps - one.done) / one.pace) if one.pace else ""
    return [what, bar, f"{one.done}/{steps}", "" if loss is None else f"{loss:.3f}", numbers, left]
