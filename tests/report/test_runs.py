"""Runs side by side: what their files say is shown as it is written, whoever wrote it."""

from __future__ import annotations

from typing import Any

from whence.report.runs import ComparedRun, differences, runs_page, side_by_side
from whence.store.records import EvaluationRecord, RunStatus

EVIL = "</script><script>document.title='taken'</script>"


def made(spec: dict[str, Any], said: Any = "fine") -> ComparedRun:
    status = RunStatus.model_construct(  # not validated: a seed may be anything
        title=said, seed=said, state="finished", step=2, steps=2, seconds=1.0, headline={"id": 0.5}, labels={}
    )
    evaluations = [EvaluationRecord(step=step, metrics={"headline": {"id": 0.5}}) for step in (1, 2)]
    return ComparedRun("beefbeefbeef", status, spec, evaluations, {"color": "#000000", "dash": "solid"})


def test_what_tells_them_apart_and_nothing_else() -> None:
    runs = [made({"model": {"d": 1, "e": "x"}}), made({"model": {"d": 2, "e": "x"}, "more": None})]
    assert differences(runs) == {"model.d": ["1", "2"], "more": ["–", "null"]}


def test_no_script_of_a_stored_file_gets_into_a_page() -> None:
    runs = [made({EVIL: EVIL}, EVIL), made({EVIL: "other"}, EVIL)]
    assert EVIL not in side_by_side(runs)
    assert EVIL not in runs_page(runs, EVIL).decode()
