"""`path.py:build`: a function of the user's own that returns what is to be audited."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, cast

from torch import nn

from whence.errors import UserError
from whence.leak.audit.target import AuditTarget
from whence.leak.audit.targets.module import audit_target


def load(text: str) -> AuditTarget:
    """Runs the file that the user names. `build()` returns a AuditTarget, or a model and its content."""
    path, _, function = text.rpartition(":")
    file = Path(path)
    if file.suffix != ".py" or not file.is_file():
        raise UserError(f"model: {path!r} is no Python file. Allowed: FILE.py:FUNCTION", field="model")
    spec = importlib.util.spec_from_file_location(f"whence_user_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise UserError(f"model: {path} fails when it is read: {_describe(problem)}", field="model") from problem
    build = getattr(module, function, None)
    if not callable(build):
        known = sorted(name for name, item in vars(module).items() if callable(item) and not name.startswith("_"))
        raise UserError(f"model: {path} has no function {function!r}. Allowed: {', '.join(known)}.", field="model")
    try:
        made = build()
    except Exception as problem:
        raise UserError(f"model: {function}() fails: {_describe(problem)}", field="model") from problem
    pair = isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)
    if not (pair or isinstance(made, AuditTarget)):
        raise UserError(
            f"model: {function}() returned {type(made).__name__}. Allowed: (model, content), or "
            "whence.leak.audit_target(…).",
            field="model",
        )
    try:
        target = made if isinstance(made, AuditTarget) else audit_target(*cast(Any, made), name=text)
        target.predictions(target.content[:1], target.draw_mask(0.5)[:1])
    except UserError:
        raise
    except Exception as problem:
        raise UserError(f"model: it fails when it is called: {_describe(problem)}", field="model") from problem
    return target


def _describe(problem: Exception) -> str:
    return " ".join(f"{type(problem).__name__}: {problem}".split())
