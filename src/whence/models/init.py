"""Paired initialisation: a weight's starting value depends on the seed and on its module's name, nothing else.

Two models that differ in one part therefore start equal everywhere else, whatever that part draws and wherever
it stands in construction order. Differences between encodings are then differences between encodings.

How large weights start is each module's own matter (`reset_parameters`):
- `whence.models.layers.Linear`: N(0, 1/fan_in), so queries and keys have unit variance, logits too, and attention
  starts neither uniform nor saturated.
- Projections that write to the residual stream: scaled by 1/√(2·layers). There are 2·layers of them, so together
  they add about as much variance as one unscaled projection, at any depth.
- Token embeddings: deviation 1/√2, the root mean square of a sinusoid of amplitude 1. Additive encodings and
  content then enter the first norm with equal energy: 0.02, as in GPT-2, would drown the tokens under sinusoidal
  positions 35 to 1; √d, as in the original Transformer, would drown the positions.
"""

from __future__ import annotations

import torch
from torch import nn

from whence.random import derive


def initialise(model: nn.Module, seed: int) -> None:
    """Reset every submodule that can be, each from its own random stream. The global RNG is not changed.

    Children come before their parents, so a module that sets its children's weights has the last word.
    """
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    cuda = [device.index for device in devices if device.type == "cuda"]
    # Not torch.manual_seed: it would also reseed devices that this model does not use and that are not forked here.
    generators = [torch.default_generator, *(torch.cuda.default_generators[index] for index in cuda)]
    with torch.random.fork_rng(devices=cuda), torch.no_grad():
        for name, module in reversed(list(model.named_modules())):
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                for generator in generators:
                    generator.manual_seed(derive(seed, name))
                reset()
