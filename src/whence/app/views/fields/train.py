"""The view Train: train a field, watch its output for a held-out image, read its results."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import streamlit as st
from torch import Tensor

from whence.app.address import choice, part, turn_to
from whence.app.comparisons import EVERY_SECONDS, LatestResult
from whence.app.components import draw, empty, findings, guarded, live, markup, plain
from whence.app.forms import form, offered_data, without_files
from whence.app.jobs import ALIVE, ActionRequest, Document, Job, TrainRequest, find_job, jobs, submit
from whence.app.progress import controls, is_alive, progress_of, show_progress
from whence.app.views.fields.runs import ListedRun, field_runs, model_of, show_progression
from whence.errors import UserError
from whence.fields import page
from whence.fields.analysis import ANALYSES, SHOWN, as_images, example_signals, side_by_side
from whence.fields.config import AnalyzeConfig
from whence.fields.data import DATA
from whence.fields.instrument import ANALYZE
from whence.fields.run import FieldsRun
from whence.store.disk import CorruptFileError
from whence.store.runs import Store

NEW, RESULTS = "New", "Results"
COMMAND = ["fields", "train"]
CHECKPOINT_SECONDS = 5.0
"""Short, because the view shows the output at every checkpoint"""


def show(store: Store) -> None:
    if part("fields", "part", [NEW, RESULTS]) == RESULTS:
        _results(store)
    else:
        _new(store)


def _new(store: Store) -> None:
    run = form(
        FieldsRun,
        "fields-train",
        COMMAND,
        first=("data", "steps", "lps", "mixer", "hyponet", "seed"),
        check=lambda run: run.check(),
        offered=offered_data(DATA),
        resolve=_resolved,
    )
    if run is not None:
        cached = " This run is cached: its results are in the store." if _is_cached(run, store) else ""
        st.caption(plain(f"{run.parameters():,} parameters.{cached}"))
    if st.button("Start", type="primary", disabled=run is None, icon=":material/play_arrow:") and run is not None:
        title = f"{' · '.join(run.labels().values())}, {run.training.steps:,} steps"
        submit(_request(run), store, title=title, link=_link(run))
        st.query_params.update(_link(run))
        st.rerun()


def _is_cached(run: FieldsRun, store: Store) -> bool:
    return store.summary(run.id).state == "finished"


def _request(run: FieldsRun) -> TrainRequest:
    config = run.model_dump(mode="json")
    return TrainRequest(instrument="fields", config=config, checkpoint_interval=CHECKPOINT_SECONDS)


def _resolved(document: Document) -> Document:
    return without_files(document, DATA, "whence fields train --data DIR")


def _results(store: Store) -> None:
    runs = {**_requested_runs(store), **field_runs(store)}
    if not runs:
        empty("No field has been trained in this store yet.", "Fill in the form under “New” and press Start.")
        return
    chosen = choice("fields", "training", "Run", {run_id: one.label for run_id, one in runs.items()})
    run, job = runs[chosen].run, find_job(_request(runs[chosen].run), store)
    alive = is_alive(progress_of([run], store), job)
    live(EVERY_SECONDS if alive else None)(_watch)(run, store, job, alive)
    if progress_of([run], store)[0].state == "finished":
        guarded(_quality)(runs[chosen], store)
    with st.expander("Configuration"):
        st.json(run.document(), expanded=1)


def latest(store: Store, count: int) -> list[LatestResult]:
    """The fields that the app has trained last."""
    results: list[LatestResult] = []
    for run_id, listed in list(_requested_runs(store).items())[:count]:
        summary = store.summary(run_id)
        if summary.state == "finished":
            verdict: list[str] = []
            title = f"Field: {', '.join(listed.run.labels().values())}"
            with suppress(UserError, CorruptFileError, OSError):  # of a damaged run only its title is shown
                verdict = page.findings(page.metrics_of(listed.run, store).test.scales)[:1]
            results.append(LatestResult("fields", title, summary.created, verdict, [], _link(listed.run)))
    return results


def _link(run: FieldsRun) -> dict[str, str]:
    return {"view": "Train", "part": RESULTS, "training": run.id}


def _requested_runs(store: Store) -> dict[str, ListedRun]:
    """Runs of jobs, which may wait or may have failed to start."""
    runs = {}
    for job in jobs(store, kind="train", instrument="fields"):
        request = job.submission.request
        try:
            run = FieldsRun.read(_resolved(request.config if isinstance(request, TrainRequest) else {}))
        except UserError:
            continue
        runs[run.id] = ListedRun(run, job.state)
    return runs


def _watch(run: FieldsRun, store: Store, job: Job | None, alive: bool) -> None:
    """Progress, redrawn while the run is active. Reruns the page when it starts or ends."""
    progress = progress_of([run], store)
    finished = progress[0].state == "finished"
    if not finished:
        show_progress(progress, job)
    controls(job, run.id)
    guarded(show_progression)(run, store, finished=finished)
    if is_alive(progress, job) != alive:
        st.rerun()


def _quality(listed: ListedRun, store: Store) -> None:
    """The results of a finished run, as in its report: verdict, images, figures, table."""
    run = listed.run
    scales = page.metrics_of(run, store).test.scales
    if listed.of_images:
        turn_to("Render an image with this run", view="Render", run=run.id)
    findings(page.findings(scales))
    columns, x = _side_by_side(run, store.root, tuple(store.folder(run.id).stamp()))
    if x.ndim == 3:
        st.subheader("A held-out signal")
        draw(page.signal_curves(columns, x), "A held-out signal and the outputs of the model", f"curves:{run.id}")
    else:
        st.subheader("Held-out images")
        markup(page.image_table(as_images(columns)))
    st.subheader("Quality by scale")
    st.caption("On held-out signals; ×1 is the resolution of the input.")
    draw(page.quality_over_scales(scales), "PSNR by scale, with interpolation and a fitted kernel", f"scales:{run.id}")
    markup(page.quality_table(scales))
    st.subheader("How we know")
    findings(page.evaluation_notes(run, store))
    draw(page.learning_curve(run, store), "PSNR of the field over training steps", f"learning:{run.id}")
    st.subheader("Analysis")
    _analysis(run, store)


def _analysis(run: FieldsRun, store: Store) -> None:
    """The stored analysis of the field, or a button that starts it."""
    config = AnalyzeConfig(run=run.id)
    artifact = ANALYSES.find(config, store)
    if artifact is not None:
        findings(page.analysis_findings(artifact.result))
        draw(page.robustness(artifact.result), "PSNR with location noise and with query offset", f"robustness:{run.id}")
        return
    request = ActionRequest(instrument="fields", verb=ANALYZE.verb, config=config.model_dump(mode="json"))
    job = find_job(request, store)
    if job is not None and job.state in ALIVE:
        live(EVERY_SECONDS)(_await_analysis)(job)
    elif st.button(
        "Analyze", help="Measures token swap, location noise, query offset and pruning; takes about a minute."
    ):
        submit(request, store, title=ANALYZE.title(config), link=_link(run))
        st.rerun()
    elif job is not None:
        controls(job, f"analysis:{run.id}")


def _await_analysis(job: Job) -> None:
    controls(job, "analysis")
    if job.state not in ALIVE:
        st.rerun()


@st.cache_resource(show_spinner="Decoding images", max_entries=16)
def _side_by_side(run: FieldsRun, root: Path, stamp: Any) -> tuple[dict[str, Tensor], Tensor]:
    signals, x = example_signals(run, SHOWN)
    return side_by_side(model_of(Store(root), run), signals, x), x
