"""What the store holds of planned runs."""

from __future__ import annotations

from tests.arena.made import fail, finish, planned, spec
from whence.experiments.results import read_results
from whence.store.files import write_sealed
from whence.store.runs import Store


def test_only_divergence_is_a_failure_of_the_method(store: Store) -> None:
    runs = planned(spec("rope", seeds=8))
    finished, diverged, out_of_memory, damaged, crashed, interrupted, torn, missing = runs
    finish(store, finished, 0.9)
    fail(store, diverged, "the loss is NaN")
    fail(store, out_of_memory, "MemoryError")
    status = store.folder(out_of_memory.id).status().model_dump(mode="json")
    error = {"kind": "exception", "message": "MemoryError: 8 GiB"}
    write_sealed(store.folder(out_of_memory.id).path / "status.json", {**status, "error": error})
    finish(store, damaged, 0.9)
    path = store.folder(damaged.id).path / "status.json"
    path.write_bytes(path.read_bytes().replace(b'"seed":3', b'"seed":4'))
    finish(store, interrupted, 0.9)
    status = {**store.folder(interrupted.id).status().model_dump(mode="json"), "state": "interrupted"}
    write_sealed(store.folder(interrupted.id).path / "status.json", status)
    finish(store, torn, 0.9)
    path = store.folder(torn.id).path / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"step":4', b'"step":5'))
    results = {result.run.id: result for result in read_results(runs, store, {crashed.id: "crashed"})}
    assert list(results) == [run.id for run in runs]
    assert {run.id: results[run.id].state for run in runs} == {
        finished.id: "finished",
        diverged.id: "failed",
        out_of_memory.id: "failed",
        damaged.id: "damaged",
        crashed.id: "failed",
        interrupted.id: "unfinished",
        torn.id: "damaged",
        missing.id: "not run",
    }
    assert [result.run.seed for result in results.values() if result.metrics] == [finished.seed]
    assert [result.run.seed for result in results.values() if result.losses or result.evaluations] == [finished.seed]
    assert [result.run.seed for result in results.values() if result.diverged] == [diverged.seed]
    assert {result.run.id for result in results.values() if result.ended} == {finished.id, diverged.id}
    reasons = {result.run.id: result.reason for result in results.values() if result.reason}
    assert set(reasons) == {diverged.id, out_of_memory.id, damaged.id, crashed.id, torn.id}
    assert reasons[out_of_memory.id] == "MemoryError: 8 GiB"
