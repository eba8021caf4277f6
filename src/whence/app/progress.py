"""Progress of runs, read from the store, and controls of the job that runs them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st
from markupsafe import Markup

from whence.app.components import plain, table
from whence.app.jobs import ALIVE, Job
from whence.formatting import duration, scores
from whence.report.html import badge
from whence.store.records import RunSummary
from whence.store.runs import Store
from whence.training.config import AnyRun

SHOWN_AT_ONCE = 12


@dataclass(frozen=True)
class WatchedRun:
    """A planned run and its progress."""

    run: AnyRun
    stored: RunSummary

    @property
    def state(self) -> str:
        return "not started" if self.stored.state == "interrupted" and not self.stored.created else self.stored.state

    @property
    def left(self) -> int:
        """Steps."""
        return max(0, self.run.training.steps - self.stored.step)

    @property
    def steps_per_second(self) -> float:
        return self.stored.step / self.stored.seconds if self.stored.seconds else 0.0


def progress_of(runs: Sequence[AnyRun], store: Store) -> list[WatchedRun]:
    return [WatchedRun(run, store.summary(run.id)) for run in runs]


def is_alive(progress: Sequence[WatchedRun], job: Job | None) -> bool:
    """Whether anything runs, started by the app or in a terminal."""
    return (job is not None and job.alive) or any(run.state == "running" for run in progress)


def show_progress(progress: Sequence[WatchedRun], job: Job | None) -> None:
    """A progress bar for all runs, and a line for each running or failed run."""
    left, done = sum(run.left for run in progress), sum(run.stored.step for run in progress)
    states = Counter(run.state for run in progress)
    counts = " · ".join(f"{count} {state}" for state, count in states.items())
    share = done / (done + left) if progress else 0.0
    st.progress(share, text=plain(f"{counts}{_times(progress, left, job)}"))
    shown = [run for run in progress if run.state in ("running", "failed", "corrupt")]
    if shown:
        columns = ["run", "progress", "step", "loss", "scores", "time left"]
        table(columns, [_line(run) for run in shown[:SHOWN_AT_ONCE]], label="runs in progress")


def controls(job: Job | None, key: str) -> None:
    """Buttons to stop and resume a job of the app; jobs that do not train start over."""
    if job is None:
        return
    state, resumes = job.state, job.submission.exclusive
    if state in ALIVE:
        if state == "waiting":
            st.caption("Waiting: another job of the app is training.")
        help = "Writes checkpoints first, so that no progress is lost." if resumes else "It can be started again."
        start = job.started
        if st.session_state.get(f"{key}:stopping") == start:
            st.button("Stopping …", key=f"{key}:wait", disabled=True, help=help)
        elif st.button("Stop", key=f"{key}:stop", icon=":material/stop:", help=help):
            st.session_state[f"{key}:stopping"] = start
            job.stop()
            st.rerun()
    elif state in ("stopped", "interrupted"):
        text = "Stopped. All progress is saved." if resumes else "Stopped before it finished."
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


def _times(progress: Sequence[WatchedRun], left: int, job: Job | None) -> str:
    """Elapsed time of the job and estimated time left."""
    start = job.started if job and job.alive else None
    if start is None or start.begun is None:
        return ""
    elapsed = duration(time.time() - start.begun)
    running = [run for run in progress if run.state == "running"]
    if not running:
        return f" · starting, {elapsed}"
    speed = sum(run.steps_per_second for run in running)
    return f" · {elapsed}" + (f" · about {duration(left / speed)} left" if speed and left else "")


def _line(run: WatchedRun) -> list[str]:
    name = " · ".join([*run.run.labels().values(), f"seed {run.run.seed}"])
    stored, steps = run.stored, run.run.training.steps
    step = f"{stored.step}/{steps}"
    if run.state != "running":
        return [name, badge(run.state), step, "", stored.reason, ""]
    bar = Markup('<progress value="{}" max="{}" aria-label="steps of {}"></progress>').format(stored.step, steps, name)
    loss = "" if stored.loss is None else f"{stored.loss:.3f}"
    left = duration(run.left / run.steps_per_second) if run.steps_per_second else ""
    return [name, bar, step, loss, scores(stored.headline, " · "), left]
