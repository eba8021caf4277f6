"""Predictors that a shortcut may consist of: a lookup table, a linear model, a small multilayer perceptron.

All are trained on one sample of answers and applied to another, and equal samples give equal predictions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

HIDDEN_UNITS = 64
STEPS = 160
BATCH = 2048
WEIGHT_DECAY = 1e-5


def look_up(keys: Tensor, targets: Tensor, new_keys: Tensor) -> Tensor:
    """For each of `new_keys`, the target that was most frequent with this key; for unseen keys the most frequent one.

    keys, targets: (answers,) integers. Floating-point targets are taken as labels.
    """
    values, value = torch.cat([keys, new_keys]).unique(return_inverse=True)
    labels, label = targets.unique(return_inverse=True)
    pairs, times = (value[: len(keys)] * len(labels) + label).unique(return_counts=True)
    pairs = pairs[times.argsort(stable=True)]
    pairs = pairs[(pairs // len(labels)).argsort(stable=True)]  # by key, and for each key the most frequent label last
    of, commonest = pairs // len(labels), pairs % len(labels)
    last = of != torch.cat([of[1:], of.new_tensor([-1])])
    guess = label.bincount().argmax().repeat(len(values))
    guess[of[last]] = commonest[last]
    return labels[guess[value[len(keys) :]]]


def pick_place(keys: Tensor, targets: Tensor, new_keys: Tensor, *, latest: bool) -> Tensor:
    """The position whose key most often marked the answer in training; of equal ones the first, or the latest.

    keys: (sequences, positions) integers from 0 on. targets: (sequences, outputs) positions. Returns one position per
    output.
    """
    kinds = 1 + max(int(keys.max()), int(new_keys.max()))
    frequency = keys.flatten().bincount(minlength=kinds).clamp(min=1)
    picks = []
    for target in targets.unbind(1):
        hits = keys.gather(1, target[:, None]).flatten().bincount(minlength=kinds)
        rate = (hits / frequency)[new_keys]
        picks.append(rate.shape[1] - 1 - rate.flip(1).argmax(1) if latest else rate.argmax(1))
    return torch.stack(picks, 1)


def train(columns: Tensor, targets: Tensor, outputs: int, *, hidden_units: int = 0) -> Callable[[Tensor], Tensor]:
    """Fit a linear model, or with `hidden_units` a perceptron with one hidden layer, on standardised columns.

    columns: (answers, features) of any type. targets: integers (multinomial logistic loss), or floating-point numbers
    of shape (answers, outputs) (squared error). Both with L2 regularisation. Returns a function from columns to
    (answers, outputs).
    """
    some = columns[:8192].float()
    centre, deviation = some.mean(0), some.std(0, correction=0)
    scale = torch.where(deviation > 1e-6, deviation, 1.0)
    width = columns.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [nn.Linear(width, hidden_units), nn.ReLU(), nn.Linear(hidden_units, outputs)] if hidden_units else []
        model = nn.Sequential(*layers) if hidden_units else nn.Linear(width, outputs)
    if isinstance(model, nn.Linear):
        nn.init.zeros_(model.weight)
    regression = targets.is_floating_point()
    middle, spread = (targets.mean(0), targets.std(0).clamp(min=1e-6)) if regression else (0.0, 1.0)
    wanted = (targets - middle) / spread if regression else targets
    optimiser = torch.optim.Adam(model.parameters(), weight_decay=WEIGHT_DECAY, fused=True)
    parts = list(zip(columns.split(BATCH), wanted.split(BATCH), strict=True))  # answers come in random order
    rate = 0.02 if hidden_units else 0.1
    for step in range(STEPS):
        optimiser.param_groups[0]["lr"] = rate * (1 - step / STEPS)
        some, answers = parts[step % len(parts)]
        guess = model((some.float() - centre) / scale)
        loss = mse_loss(guess, answers) if regression else cross_entropy(guess, answers)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    @torch.no_grad()
    def predict(new: Tensor) -> Tensor:
        return torch.cat([model((part.float() - centre) / scale) for part in new.split(4096)]) * spread + middle

    return predict
