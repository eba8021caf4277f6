"""Audits as artifacts: found again by what identifies their target."""

from __future__ import annotations

import pytest

from whence.errors import UserError
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.leak.audit.artifact import AUDIT, AUDITS, audit_command, audit_request
from whence.leak.config import AuditConfig
from whence.leak.run import LeakRun
from whence.store.runs import Store

RUN = LeakRun.read(
    {
        "data": "synthetic:steps=48,channels=2",
        "model": {"d_model": 8},
        "masking": {"test_rows": 16},
        "training": {"steps": 2, "batch_size": 8, "evaluations": 1},
    }
)


def test_a_stored_audit_is_not_measured_again(store: Store) -> None:
    execute(RUN, store, ExecutionOptions(threads=1, device="cpu"))
    steps: list[str] = []
    config = AuditConfig(run=RUN.id[:6], ratios=(0.5, 1.0))
    first = AUDIT.run(config, store, steps.append)
    assert first.request.config.run == RUN.id, "by its whole id"
    assert steps
    steps.clear()
    again = AUDIT.run(config, store, steps.append)
    assert (again.result, again.created, steps) == (first.result, first.created, [])
    forced = AUDIT.run(config.model_copy(update={"force": True}), store, steps.append)
    assert forced.id == first.id
    assert forced.result == first.result
    assert forced.created > first.created
    assert [artifact.id for artifact in AUDITS.all(store)] == [first.id]
    assert audit_command(first.request) == f"whence leak audit --run {RUN.id} --ratios 0.5 1.0"


def test_fields_that_do_not_go_together(store: Store) -> None:
    for config in (AuditConfig(), AuditConfig(model="minilm", run="ab"), AuditConfig(model="minilm", mask_token_id=3)):
        with pytest.raises(UserError, match=r"expected either --model or --run|requires --token-ids"):
            audit_request(config, store)
