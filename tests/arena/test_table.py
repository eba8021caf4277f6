"""What a table may say of stored runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whence.arena.spec import ArenaSpec
from whence.arena.table import Row, Score, _judge, floors_of, seeds_in, tabulate
from whence.report.page import keep_spec, write_report
from whence.runs.execute import Conditions, execute
from whence.runs.files import check_addressed
from whence.runs.store import Store


def row(within: list[float] | None, beyond: list[float] | None = None, failed: int = 0) -> Row:
    scores = [None if part is None else Score(tuple(part), 500, 0.25, "majority") for part in (within, beyond)]
    ids = tuple(str(i) for i in range(len(within or []) + failed))
    failures = {str(i): "it <b>broke</b>" for i in range(failed)}
    return Row("task", "rope", ids, len(within or []), failures, scores[0], scores[1], 1.0, 10, [])


def test_verdicts_of_rows() -> None:
    rows = _judge(
        [row([1.0, 1.0], [0.26, 0.25]), row([0.26], [0.9]), row([0.6, 0.7], [0.6, 0.7]), row(None), row(None, failed=2)]
    )
    assert [r.verdict for r in rows] == ["solved", "at chance", "learning", "not run", "failed"]
    assert [r.beyond_verdict for r in rows] == ["at chance", "not learned", "not learned", "", ""]
    assert rows[1].to_json()["ood"] == "not learned"
    assert rows[0].to_json()["ood"]["verdict"] == "at chance"
    assert seeds_in(rows[:1]) == 2
    assert seeds_in(rows) == 0
    assert "25.0 %" in floors_of(rows)


def test_cells_that_are_not_shown_do_not_weaken_the_rest() -> None:
    """Beyond training is tested only where it is claimed: Holm must not count the others."""
    just = Score((0.305,), 500, 0.25, "majority")
    assert 0.001 < just.p_value < 0.05 / 2
    alone = _judge([row([0.305])])[0]
    crowded = _judge([row([0.305], [0.9]), row([0.26], [0.26])])[0]
    assert alone.verdict == crowded.verdict == "learning"


@pytest.fixture
def swept(tiny: Callable[..., Any], tmp_path: Path) -> tuple[ArenaSpec, list[Any], Store]:
    base = tiny(training={"steps": 4, "evaluations": 2})
    spec = ArenaSpec.read(
        {
            "tasks": [str(base.task), "marker_distance", "long_range_match"],
            "encodings": ["rope", "shifted:reach=3+t5"],
            "seeds": 2,
            "model": {"d_model": 16, "heads": 2, "layers": 1},
            "lengths": base.lengths.model_dump(),
            "training": base.training.model_dump(),
        }
    )
    store, runs = Store(tmp_path / "store"), spec.plan()
    store.prepare()
    for run in runs[:-1]:
        execute(run, store, Conditions(threads=1))
    return spec, runs, store


def test_a_table_of_real_runs_and_its_page(swept: tuple[ArenaSpec, list[Any], Store]) -> None:
    spec, runs, store = swept
    rows = tabulate(runs, store, {runs[-1].id: "crashed"})
    assert len(rows) == 6
    assert [r.finished for r in rows] == [2, 2, 2, 2, 2, 1]
    assert "process died" in next(iter(rows[-1].failed.values()))
    for r in rows:
        assert r.within is not None
        assert len(r.within.per_seed) == r.finished
        assert r.within.interval[0] <= r.within.accuracy <= r.within.interval[1]
        assert len(r.curves) == r.finished
    assert rows[0].within is not None
    assert rows[0].within.floor == max(runs[0].task.build().floors(8).values())
    page = write_report(spec, rows, store, "whence arena --config <x>")
    check_addressed(page)
    text = page.read_text()
    assert "&lt;x&gt;" in text
    assert all(run.id in text for run in runs)
    assert ArenaSpec.read(json.loads(keep_spec(spec, store).read_text())) == spec


def test_a_corrupt_run_is_a_failed_cell_not_a_crash(swept: tuple[ArenaSpec, list[Any], Store]) -> None:
    _, runs, store = swept
    (store.folder(runs[0].id).path / "status.json").write_text("{}")
    rows = tabulate(runs, store)
    assert rows[0].finished == 1
    assert "checksum" in rows[0].failed[runs[0].id]


def test_failures_are_escaped_in_the_page(swept: tuple[ArenaSpec, list[Any], Store]) -> None:
    spec, _, store = swept
    text = write_report(spec, _judge([row(None, failed=2)]), store, "again").read_text()
    assert "&lt;b&gt;broke" in text
    assert "<b>broke" not in text


def test_plans_are_paired_and_seeds_vary_slowest(swept: tuple[ArenaSpec, list[Any], Store]) -> None:
    spec, runs, _ = swept
    assert [run.seed for run in runs] == [0] * 6 + [1] * 6
    assert len({run.id for run in runs}) == 12
    more = spec.model_copy(update={"seeds": 3}).plan()
    assert [run.id for run in more[:12]] == [run.id for run in runs]
    one = ArenaSpec.read({"encodings": "randomized:span=64+rope:base=1e+5"})
    assert str(one.encodings[0]) == "randomized:span=64+rope:base=100000"
