"""Stored audits, and the models that a configuration names.

The address of an audit is a hash of its configuration and of checksums of the models and files that it names.
"""

from __future__ import annotations

import os.path
from dataclasses import replace

import torch
from torch import Tensor, nn

from whence.config import Config
from whence.errors import UserError
from whence.experiments.instrument import Action, OnProgress
from whence.experiments.options import command
from whence.inputs import file_digest, read_text
from whence.leak.audit.auditing import measure_audit
from whence.leak.audit.own_model import load_file
from whence.leak.audit.pretrained import MEAN_TOKEN, load, load_ids, with_mean_token
from whence.leak.audit.target import AuditTarget
from whence.leak.config import AuditConfig
from whence.leak.metrics import Audit
from whence.leak.run import LeakRun
from whence.models.capture import blocks
from whence.models.init import initialise
from whence.models.pretrained import content_of, default_text
from whence.models.sequence import SequenceRun
from whence.random import Streams
from whence.store.artifacts import Artifact, ArtifactKind
from whence.store.files import digest
from whence.store.runs import RunFolder, Store, open_finished_run
from whence.training.checkpoint import weights_of

ROWS = 64


class AuditRequest(Config):
    """Identity of an audit."""

    config: AuditConfig
    checksums: dict[str, str]
    """By field: the version of a package, or the checksum of a file"""


AuditArtifact = Artifact[AuditRequest, Audit]
AUDITS = ArtifactKind("audit", AuditRequest, Audit)


def run_audit(config: AuditConfig, store: Store, on_progress: OnProgress) -> AuditArtifact:
    """Return the stored audit if there is one, unless `force` is set or the model is code; otherwise measure it."""
    request = audit_request(config, store)
    if not (config.force or is_code(config)) and (artifact := AUDITS.find(request, store)):
        return artifact
    target = load_target(request.config, store)
    audit = measure_audit(target, config.ratios, seed=config.seed, on_progress=on_progress)
    return AUDITS.save(request, audit, store)


def audit_request(config: AuditConfig, store: Store) -> AuditRequest:
    config.check()
    config = config.model_copy(update={"force": False})
    if config.run is not None:
        with open_finished_run(store, config.run) as (folder, _):
            config = config.model_copy(update={"run": folder.id})
    return AuditRequest(config=config, checksums=input_checksums(config))


def audit_title(config: AuditConfig) -> str:
    return f"Audit of {config.model or config.run}"


def audit_command(request: AuditRequest) -> str:
    """The command line that gives the same audit."""
    document = request.config.model_dump(mode="json", exclude_defaults=True)
    return command(("leak", "audit"), AuditConfig, document)


AUDIT = Action("audit", AuditConfig, run_audit, audit_title)


def is_code(config: AuditConfig) -> bool:
    """Whether the model is `FILE.py:FUNCTION`, whose imports may change without its own checksum."""
    return config.model is not None and ".py:" in config.model


def input_checksums(config: AuditConfig) -> dict[str, str]:
    """By field: the current version of a package, or the checksum of a file. A run is identified by its id."""
    if config.model is None:
        return {}
    checksums: dict[str, str] = {}
    if is_code(config):
        path = config.model.rpartition(":")[0]
        return {"model": file_digest(path, "model")[:16] if os.path.isfile(path) else ""}
    if content := content_of(config.model):
        checksums["model"] = content
    if config.token_ids is not None:
        checksums["token_ids"] = file_digest(config.token_ids, "token_ids")[:16]
    else:
        checksums["text"] = digest(_text(config))[:16]
    return checksums


def load_target(config: AuditConfig, store: Store) -> AuditTarget:
    """Raise `UserError` for models that cannot be loaded."""
    if config.run is not None:
        with open_finished_run(store, config.run) as (folder, run):
            if isinstance(run, LeakRun):
                return _leak_run_target(run, folder)
            if isinstance(run, SequenceRun):
                return _sequence_run_target(run, folder)
            raise UserError(f"run: expected a run of leak or arena, got one of {run.kind}. See 'whence runs list'.")
    assert config.model is not None
    if is_code(config):
        return load_file(config.model)
    if config.token_ids is not None:
        return load_ids(config.model, config.token_ids, config.mask_token_id)
    return load(config.model, _text(config), config.rows, config.length)


def _text(config: AuditConfig) -> str:
    return default_text() if config.text is None else read_text(config.text)


def _leak_run_target(run: LeakRun, folder: RunFolder, seed: int | None = None) -> AuditTarget:
    """The model with the weights of the stored run or, with a seed, untrained."""
    job = run.job()
    job.setup(Streams.of(run.seed if seed is None else seed), torch.device("cpu"))
    if seed is None:
        job.model.load_state_dict(weights_of(folder))
    return replace(job.audit_target(), untrained=lambda seed: _leak_run_target(run, folder, seed))


def _sequence_run_target(run: SequenceRun, folder: RunFolder, seed: int | None = None) -> AuditTarget:
    """The same for runs of the arena. Targets are the outputs of the same model with nothing masked."""
    if run.model.attention == "prefix":
        raise UserError("run: expected a model with causal or bidirectional attention, got prefix attention.")
    batch = run.task.build().sample(torch.Generator().manual_seed(0), ROWS, run.train_length)
    model = run.build_model("cpu")
    if seed is None:
        model.load_state_dict(weights_of(folder))
    else:
        initialise(model, Streams.of(seed).init)
    if not isinstance(model.embedding, nn.Embedding):
        raise UserError("run: expected a model of token ids, got one of continuous inputs.")

    def call(ids: Tensor) -> Tensor:
        return model(ids, batch.positions)

    return AuditTarget(
        " · ".join(run.labels().values()),
        model,
        batch.inputs,
        with_mean_token(model.embedding, call),
        call,
        fitted=True,
        layers=tuple(blocks(model))[-len(model.blocks) :],
        untrained=lambda seed: _sequence_run_target(run, folder, seed),
        mask_description=MEAN_TOKEN,
    )
