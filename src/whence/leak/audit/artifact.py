"""Audits as the store keeps them: addressed by the configuration and by what its names stand for."""

from __future__ import annotations

from whence.config import Config
from whence.experiments.instrument import Action, OnProgress
from whence.experiments.options import command
from whence.leak.audit.auditing import measure_audit
from whence.leak.audit.targets import input_checksums, is_code, load_target
from whence.leak.config import AuditConfig
from whence.leak.metrics import Audit
from whence.store.artifacts import Artifact, ArtifactKind
from whence.store.runs import Store, open_finished_run


class AuditRequest(Config):
    """What identifies an audit."""

    config: AuditConfig
    checksums: dict[str, str]
    """By field, of what it named: the version of a package, checksums of files"""


AuditArtifact = Artifact[AuditRequest, Audit]
AUDITS = ArtifactKind("audit", AuditRequest, Audit)


def run_audit(config: AuditConfig, store: Store, on_progress: OnProgress) -> AuditArtifact:
    """The stored audit where there is one, unless `force` is set or the model is code."""
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
