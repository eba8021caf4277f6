"""What the runs of one variant came to: only divergence counts against it."""

from __future__ import annotations

from tests.arena.made import fail, finish, spec
from whence.runs.files import write_sealed
from whence.runs.outcomes import outcome_of, results_of
from whence.runs.store import Store


def test_only_divergence_is_a_failure_of_the_method(store: Store) -> None:
    runs = spec("rope", seeds=6).plan()
    finished, diverged, out_of_memory, damaged, crashed, missing = runs
    finish(store, finished, 0.9)
    fail(store, diverged, "the loss is NaN")
    fail(store, out_of_memory, "MemoryError")
    status = store.folder(out_of_memory.id).status()
    error = {"kind": "exception", "message": "MemoryError: 8 GiB"}
    write_sealed(store.folder(out_of_memory.id).path / "status.json", {**status, "error": error})
    finish(store, damaged, 0.9)
    path = store.folder(damaged.id).path / "status.json"
    path.write_bytes(path.read_bytes().replace(b'"seed":3', b'"seed":4'))
    results = results_of(store, runs, {crashed.id: "crashed"})
    assert list(results.metrics) == [finished.seed]
    assert results.diverged == {diverged.seed}
    assert results.ended == {finished.id, diverged.id}
    assert set(results.failed) == {diverged.id, out_of_memory.id, damaged.id, crashed.id}
    assert outcome_of(store, missing.id).state == "not run"
