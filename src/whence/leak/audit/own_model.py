"""Audit targets from any nn.Module that returns one prediction per token, and from `FILE.py:FUNCTION`."""

from __future__ import annotations

import importlib.util
import inspect
import os.path
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from whence.errors import UserError
from whence.leak.audit.target import AuditTarget, training_mode_restored
from whence.leak.audit.untrained import untrained_twins
from whence.models.capture import capture, first_tensor


def audit_target(
    model: nn.Module,
    content: Tensor,
    *,
    mask: Callable[[Tensor, Tensor], Any] | int | None = None,
    prediction: Callable[[Any], Tensor] | None = None,
    target: Callable[[Tensor], Tensor] | None = None,
    layers: tuple[str, ...] | None = None,
    ends: tuple[int, int] = (0, 0),
    name: str = "",
) -> AuditTarget:
    """Describe how a model is masked, where its layers are, and what it predicts.

    Args:
        model: a module that returns one prediction per token.
        content: examples, (rows, tokens, features) of floats or (rows, tokens) of token ids.
        mask: `mask(content, masked)` returns the argument of the model, or a tuple of arguments; an int is the id of
            the mask token. By default, masked features are set to 0. A model whose forward takes a second argument also
            receives the mask, bool (rows, tokens).
        prediction: `prediction(output)` returns (rows, tokens, outputs); by default, the first tensor of the output.
        target: `target(content)` returns the targets. By default these are the content or, for token ids, the outputs
            of the model with nothing masked.
        layers: names of modules; by default, those that look like layers and return one vector per token.
        ends: numbers of tokens at the beginning and at the end that are never masked.
        name: name in the report; by default, that of the class.

    Returns:
        What `whence.audit` takes in place of a model.

    Raises:
        whence.errors.UserError: if the content has another shape, or token ids come without `mask`.

    Example:
        >>> class Wrapped(torch.nn.Module):
        ...     def forward(self, inputs):
        ...         return {"loss": None, "reconstruction": inputs["x"] * 0.5}
        >>> target = whence.leak.audit_target(
        ...     Wrapped(),
        ...     torch.randn(32, 16, 3),
        ...     mask=lambda content, masked: {"x": content.masked_fill(masked[..., None], 0)},
        ...     prediction=lambda output: output["reconstruction"],
        ... )
        >>> target.name, target.tokens
        ('Wrapped', 16)
    """
    if not isinstance(content, Tensor) or content.ndim < 2:
        given = f"shape {tuple(content.shape)}" if isinstance(content, Tensor) else type(content).__name__
        raise UserError(f"content: expected a tensor (rows, tokens) or (rows, tokens, features), got {given}.")
    ids = not content.is_floating_point()
    if ids and mask is None:
        raise UserError(
            "mask: audit() requires the id of the mask token for token inputs, e.g. "
            "audit(model, ids, mask=tokenizer.mask_token_id)."
        )
    takes_mask = _takes_two(model)

    def arguments(some: Tensor, masked: Tensor) -> tuple[Any, ...]:
        if callable(mask):
            made = mask(some, masked)
            return made if isinstance(made, tuple) else (made,)
        device = next(model.parameters(), some).device
        some, masked = some.to(device), masked.to(device)
        replaced = masked.view(*masked.shape, *[1] * (some.ndim - 2))
        inputs = some.masked_fill(replaced, mask if ids and mask is not None else 0)
        return (inputs, masked) if takes_mask else (inputs,)

    def build(module: nn.Module) -> AuditTarget:
        def predict(some: Tensor, masked: Tensor) -> Tensor:
            return (prediction or _of)(module(*arguments(some, masked)))

        def itself(some: Tensor) -> Tensor:
            return predict(some, torch.zeros(some.shape[:2], dtype=torch.bool)) if ids else some

        return AuditTarget(
            name or type(model).__name__,
            module,
            content,
            predict,
            target or itself,
            layers=layers if layers is not None else _aligned(module, predict, content),
            fitted=ids and target is None,
            ends=ends,
            untrained=untrained_twins(model, build),
            mask_description=_described(mask),
        )

    return build(model)


def _described(mask: Callable[[Tensor, Tensor], Any] | int | None) -> str:
    if callable(mask):
        return "Masked tokens are replaced by the function that was passed as mask."
    return "Masked tokens are set to 0." if mask is None else f"Masked tokens are replaced by the token id {mask}."


def _takes_two(model: nn.Module) -> bool:
    """Whether forward has a second argument that is required, or named like a mask."""
    parameters = inspect.signature(model.forward).parameters.values()
    second = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][1:2]
    return any(p.default is p.empty or p.name in ("hidden", "mask", "masked") for p in second)


def _of(output: Any) -> Tensor:
    """The first tensor of an output."""
    tensor = first_tensor(output)
    if tensor is None:
        raise UserError(
            f"prediction: expected a model that returns a tensor, got {type(output).__name__}. Pass a function that "
            "selects the prediction: prediction=lambda output: …"
        )
    return tensor


def _aligned(model: nn.Module, predict: Callable[[Tensor, Tensor], Tensor], content: Tensor) -> tuple[str, ...]:
    """Names of the modules that look like layers, run once, and return one vector per token."""
    some = content[:1]
    with training_mode_restored(model), torch.no_grad(), capture(model, attention=False) as cache:
        model.eval()
        predict(some, torch.zeros(some.shape[:2], dtype=torch.bool))
    shapes = {name: output.shape for name, output in cache.hidden.items() if isinstance(output, Tensor)}
    return tuple(name for name, shape in shapes.items() if len(shape) == 3 and shape[:2] == some.shape[:2])


def load_file(text: str) -> AuditTarget:
    """Run a file that the user names. Its function returns an `AuditTarget`, or a model and its content."""
    path, _, function = text.rpartition(":")
    file = Path(path)
    if file.suffix != ".py" or not os.path.isfile(file):
        raise UserError(f"model: expected FILE.py:FUNCTION with a Python file that exists, got {text!r}.")
    spec = importlib.util.spec_from_file_location(f"whence_user_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    with _explained(f"{path} raised an error when it was imported"):
        spec.loader.exec_module(module)
    build = getattr(module, function, None)
    if not callable(build):
        known = sorted(name for name, item in vars(module).items() if callable(item) and not name.startswith("_"))
        raise UserError(f"model: {path} has no function {function!r}. Allowed: {', '.join(known)}.")
    with _explained(f"{function}() raised an error"):
        made = build()
    with _explained("a forward pass raised an error", clear=UserError):
        match made:
            case AuditTarget():
                target = made
            case (nn.Module() as model, content):
                target = audit_target(model, content, name=text)
            case _:
                raise UserError(
                    f"model: expected {function}() to return (model, content) or whence.leak.audit_target(…), got "
                    f"{type(made).__name__}."
                )
        target.predictions(target.content[:1], target.draw_mask(0.5)[:1])
    return target


@contextmanager
def _explained(what: str, *, clear: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Turn any error into a `UserError` of one line, except for those in `clear`."""
    try:
        yield
    except clear:
        raise
    except Exception as problem:
        reason = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise UserError(f"model: {what}: {reason}") from problem
