"""Capture attention weights and hidden states of any model while it runs, without changing it.

    with capture(model) as cache:
        model(batch)
    cache.attention["blocks.0.mixer"]        # (batch, heads, queries, keys), before dropout

Attention is captured where it is computed, not where a library chooses to report it: a torch function mode watches
for scaled_dot_product_attention, for softmaxes over the last of four dimensions, and for nn.MultiheadAttention,
while forward hooks keep track of which module is running. The model's own computation is never replaced, only
repeated on the side, so its outputs stay bit-identical. One exception: nn.TransformerEncoderLayer's fused
inference path hides its attention and is switched off, which moves outputs by rounding.

Not captured: attention inside compiled or scripted modules, flex_attention, and hand-written softmaxes.
"""

from __future__ import annotations

import fnmatch
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Record = dict[str, Tensor | list[Tensor]]

_SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)
_MULTI_HEAD = inspect.signature(F.multi_head_attention_forward)


@dataclass(frozen=True)
class ActivationCache:
    """By module name, in the order of execution. A module that ran several times has a list."""

    attention: Record = field(default_factory=dict)
    hidden: Record = field(default_factory=dict)


@contextmanager
def capture(
    model: nn.Module,
    hidden: str | Sequence[str] | None = None,
    attention: bool = True,
    device: torch.device | str | None = None,
) -> Iterator[ActivationCache]:
    """Record the attention weights and hidden states that `model` computes inside a `with` block.

    The outputs of the model stay bit-identical, and nothing is left behind in the model.

    Args:
        model: any module.
        hidden: fnmatch patterns of module names ("*.mlp", "" for the model itself) whose outputs are recorded. None
            records the blocks, that is the elements of the outermost ModuleLists and Sequentials; () records none.
        attention: whether to record attention weights, (batch, heads, queries, keys), before dropout.
        device: where to store the records; None: where they are computed.

    Returns:
        A context manager that gives an `ActivationCache` with `attention` and `hidden`, both by module name. A module
        that runs several times has a list of tensors.

    Raises:
        ValueError: if a pattern matches no module.

    Example:
        >>> model = torch.nn.TransformerEncoder(
        ...     torch.nn.TransformerEncoderLayer(d_model=16, nhead=2, batch_first=True), 2, enable_nested_tensor=False
        ... )
        >>> with whence.capture(model) as cache:
        ...     output = model(torch.randn(1, 5, 16))
        >>> list(cache.hidden)
        ['layers.0', 'layers.1']
        >>> cache.attention["layers.0.self_attn"].shape
        torch.Size([1, 2, 5, 5])
    """
    cache = ActivationCache()
    names = blocks(model) if hidden is None else _matching(model, [hidden] if isinstance(hidden, str) else hidden)

    def append(record: Record, name: str, tensor: Tensor) -> None:
        # Cloned, because the model may go on to write into its own tensors.
        tensor = tensor.detach().clone() if device is None else tensor.detach().to(device, copy=True)
        earlier = record.get(name)
        if earlier is None:
            record[name] = tensor
        else:
            record[name] = [*earlier, tensor] if isinstance(earlier, list) else [earlier, tensor]

    with ExitStack() as stack:
        for name in names:

            def record_output(_module: nn.Module, _inputs: Any, output: Any, name: str = name) -> None:
                if (tensor := first_tensor(output)) is not None:
                    append(cache.hidden, name, tensor)

            stack.callback(model.get_submodule(name).register_forward_hook(record_output).remove)
        if attention:
            running = [""]  # a model's free functions run in the model itself
            stack.callback(_track(model, running))
            stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
            torch.backends.mha.set_fastpath_enabled(False)
            stack.enter_context(_AttentionWatch(lambda weights: append(cache.attention, running[-1], weights)))
        yield cache


def blocks(model: nn.Module) -> list[str]:
    """Names of the elements of the outermost ModuleLists and Sequentials: what people call layers."""
    stacks: list[str] = []
    for name, module in model.named_modules():
        inside = any(not outer or name.startswith(outer + ".") for outer in stacks)
        if isinstance(module, nn.ModuleList | nn.Sequential) and not inside:
            stacks.append(name)
    children = {stack: model.get_submodule(stack).named_children() for stack in stacks}
    return [".".join(filter(None, (stack, child))) for stack, named in children.items() for child, _ in named]


def _matching(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    names = [name for name, _ in model.named_modules()]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise ValueError(f"hidden: no module is called {pattern!r}; names look like {', '.join(names[1:6])}")
    return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def first_tensor(output: Any) -> Tensor | None:
    """Of what a module returned: itself, or the first in a tuple, a list or a dict."""
    if isinstance(output, Tensor):
        return output
    parts = output.values() if isinstance(output, dict) else output if isinstance(output, tuple | list) else ()
    return next((part for part in parts if isinstance(part, Tensor)), None)


def _track(model: nn.Module, running: list[str]) -> Callable[[], None]:
    """Keep the name of the running module on top of `running`. Returns what undoes it."""
    undo = ExitStack()
    for name, module in model.named_modules():
        if isinstance(module, nn.Softmax):
            continue  # the softmax belongs to the module that uses it

        def enter(module: nn.Module, inputs: Any, name: str = name) -> None:
            running.append(name)

        def exit(module: nn.Module, inputs: Any, output: Any) -> None:
            running.pop()

        undo.callback(module.register_forward_pre_hook(enter).remove)
        undo.callback(module.register_forward_hook(exit, always_call=True).remove)  # also when it raises
    return undo.close


class _AttentionWatch(TorchFunctionMode):
    """Calls every function as it is; of those that attend, hands the probabilities to `on_weights`."""

    def __init__(self, on_weights: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.on_weights = on_weights

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)  # first: what follows must not see or move the model's random state
        if func is F.scaled_dot_product_attention:
            self.on_weights(attention_weights(*args, **kwargs))
        elif func is F.multi_head_attention_forward:
            self.on_weights(_multi_head_weights(*args, **kwargs))
        elif func in _SOFTMAX and output.ndim == 4 and _softmax_dim(*args, **kwargs) in (-1, 3):
            self.on_weights(output)
        return output


def attention_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The probabilities inside scaled_dot_product_attention, before dropout: (batch, heads, queries, keys)."""
    with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
        dtype = torch.promote_types(query.dtype, torch.float32)
        q, k = query.to(dtype), key.to(dtype)
        if enable_gqa:
            k = k.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3)
        logits = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=q.device).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            logits = logits.masked_fill(~attn_mask, -math.inf)
        elif attn_mask is not None:
            logits = logits + attn_mask
        nothing = logits.amax(-1, keepdim=True) == -math.inf  # SDPA gives zeros to a query that sees no key
        weights = logits.softmax(-1).masked_fill(nothing, 0.0)
        return weights[:, None] if weights.ndim == 3 else weights


def _multi_head_weights(*args: Any, **kwargs: Any) -> Tensor:
    """nn.MultiheadAttention again, for its weights: per head, and in evaluation so that nothing is dropped."""
    call = _MULTI_HEAD.bind(*args, **kwargs)
    call.arguments.update(need_weights=True, average_attn_weights=False, training=False)
    with torch.no_grad():
        weights = F.multi_head_attention_forward(*call.args, **call.kwargs)[1]
    assert weights is not None
    return weights[None] if weights.ndim == 3 else weights  # unbatched input


def _softmax_dim(input: Tensor, dim: int | None = None, *rest: Any, **named: Any) -> int | None:
    return dim
