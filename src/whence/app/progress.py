"""Runs in progress, read from the store, whoever started them; and what can be done with the job of some."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import streamlit as st

from whence.app.components import plain, table
from whence.app.jobs import ALIVE, Job
from whence.formatting import duration, scored
from whence.report.html import badge
from whence.store.files import CorruptFileError
from whence.store.runs import Store
from whence.training.config import AnyRun

SHOWN_AT_ONCE = 12


@dataclass(frozen=True)
class RunProgress:
    """How far a planned run has come."""

    run: AnyRun
    state: str = "not begun"
    step: int = 0
    seconds: float = 0.0
    """Of training, over all its processes"""
    loss: float | None = None
    headline: dict[str, float] = field(default_factory=dict)
    error: str = ""

    @property
    def steps(self) -> int:
        return self.run.training.steps

    @property
    def steps_per_second(self) -> float:
        return self.step / self.seconds if self.seconds else 0.0


def progress_of(runs: Sequence[AnyRun], store: Store) -> list[RunProgress]:
    return [_progress(run, store) for run in runs]


def _progress(run: AnyRun, store: Store) -> RunProgress:
    try:
        status = store.folder(run.id).status()
    except FileNotFoundError:
        return RunProgress(run)
    except (OSError, CorruptFileError) as damage:
        return RunProgress(run, "corrupt", error=str(damage))
    numbers = (status.state, status.step, status.seconds, status.loss, status.headline)
    return RunProgress(run, *numbers, error=status.reason)


def is_alive(progress: Sequence[RunProgress], job: Job | None) -> bool:
    """Whoever started it: the app, or a terminal."""
    return (job is not None and job.state in ALIVE) or any(run.state == "running" for run in progress)


def show_progress(progress: Sequence[RunProgress], job: Job | None) -> None:
    """A bar for all, and a line for each that is running or has gone wrong."""
    total, done = sum(run.steps for run in progress), sum(run.step for run in progress)
    states = [run.state for run in progress]
    counts = " · ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    st.progress(done / total if total else 0.0, text=plain(f"{counts}{_times(progress, total - done, job)}"))
    shown = [run for run in progress if run.state in ("running", "failed", "corrupt")]
    if shown:
        columns = ["run", "", "step", "loss", "so far", "left"]
        table(columns, [_line(run) for run in shown[:SHOWN_AT_ONCE]], label="runs in progress")


def controls(job: Job | None, key: str) -> None:
    """Stop what the app has started, or resume it; what does not train begins again."""
    if job is None:
        return
    state, resumes = job.state, job.submission.exclusive
    if state in ALIVE:
        if state == "waiting":
            st.caption("Waiting for its turn: another job of the app is training.")
        help = "Writes checkpoints first; nothing is lost." if resumes else "It can be started again."
        start = job.started
        if st.session_state.get(f"{key}:stopping") == start:
            st.button("Stopping …", key=f"{key}:wait", disabled=True, help=help)
        elif st.button("Stop", key=f"{key}:stop", icon=":material/stop:", help=help):
            st.session_state[f"{key}:stopping"] = start
            job.stop()
            st.rerun()
    elif state in ("stopped", "interrupted"):
        text = "Stopped. Nothing is lost." if resumes else "Stopped before its end."
        st.warning(text, icon=":material/pause_circle:")
        _restart("Resume" if resumes else "Start again", job, key, ":material/play_arrow:")
    elif state in ("failed", "refused"):
        outcome = "was refused" if state == "refused" else "failed"
        why = job.failure.message if job.failure else ""
        st.error(plain(f"The job {outcome}. {why}"), icon=":material/error:")
        _restart("Try again", job, key, ":material/refresh:")


def _restart(label: str, job: Job, key: str, icon: str) -> None:
    if st.button(label, key=f"{key}:restart", icon=icon, type="primary"):
        job.start()
        st.rerun()


def _times(progress: Sequence[RunProgress], left: int, job: Job | None) -> str:
    """How long the job has been at it, and an estimate of the rest."""
    start = job.started if job and job.alive else None
    if start is None or start.begun is None:
        return ""
    elapsed = duration(time.time() - start.begun)
    running = [run for run in progress if run.state == "running"]
    if not running:
        return f" · starting, {elapsed}"
    speed = sum(run.steps_per_second for run in running)
    return f" · {elapsed}" + (f" · about {duration(left / speed)} left" if speed and left else "")


def _line(run: RunProgress) -> list[str]:
    name = html.escape(" · ".join([*run.run.labels().values(), f"seed {run.run.seed}"]))
    step = f"{run.step}/{run.steps}"
    if run.state != "running":
        return [name, badge(run.state), step, "", html.escape(run.error), ""]
    bar = f'<progress value="{run.step}" max="{run.steps}" aria-label="steps of {name}"></progress>'
    loss = "" if run.loss is None else f"{run.loss:.3f}"
    numbers = html.escape(" · ".join(f"{name} {scored(name, value)}" for name, value in run.headline.items()))
    left = duration((run.steps - run.step) / run.steps_per_second) if run.steps_per_second else ""
    return [name, bar, step, loss, numbers, left]
