"""Models as audits see them: how to make an `AuditTarget` from what a user names."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from whence.errors import UserError
from whence.leak.audit.target import AuditTarget
from whence.leak.config import AuditConfig
from whence.models.pretrained import PACKAGED, default_text
from whence.store.files import canonical, digest, file_digest
from whence.store.runs import Store, open_finished_run


def is_code(config: AuditConfig) -> bool:
    """`FILE.py:FUNCTION`: what it imports may have changed, whatever its own checksum."""
    return config.model is not None and ".py:" in config.model


def input_checksums(config: AuditConfig) -> dict[str, str]:
    """By field, what its value stands for today: the version of a package, checksums of files. A run is its id."""
    if config.model is None:
        return {}
    checksums: dict[str, str] = {}
    if is_code(config):
        return {"model": _checksum("model", config.model.rpartition(":")[0])}
    if config.model in PACKAGED:
        checksums["model"] = version(PACKAGED[config.model][0])
    elif Path(config.model).is_dir():
        files = sorted(path for path in Path(config.model).iterdir() if path.is_file())
        checksums["model"] = digest(canonical([[path.name, file_digest(path)] for path in files]))[:16]
    if config.token_ids is not None:
        checksums["token_ids"] = _checksum("token_ids", config.token_ids)
    else:
        checksums["text"] = digest(_text(config))[:16]
    return checksums


def load_target(config: AuditConfig, store: Store) -> AuditTarget:
    """Raises `UserError` for what cannot be loaded. The libraries of a model are imported when it is."""
    if config.run is not None:
        from whence.leak.audit.targets.runs import run_target

        with open_finished_run(store, config.run) as (folder, run):
            return run_target(run, folder)
    assert config.model is not None
    if is_code(config):
        from whence.leak.audit.targets.module import load_file

        return load_file(config.model)
    from whence.leak.audit.targets.pretrained import load, load_ids

    if config.token_ids is not None:
        return load_ids(config.model, config.token_ids, config.mask_token_id)
    return load(config.model, _text(config), config.rows, config.length)


def _text(config: AuditConfig) -> str:
    if config.text is None:
        return default_text()
    try:
        return Path(config.text).read_text()
    except (OSError, UnicodeDecodeError):
        raise UserError(f"text: {config.text!r} cannot be read as text.") from None


def _checksum(field: str, file: str) -> str:
    """Empty where it cannot be read: whoever loads it says why."""
    path = Path(file)
    return file_digest(path)[:16] if path.is_file() else ""
