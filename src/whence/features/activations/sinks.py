"""States that attention rests on: a few tokens, the first as a rule, with states a hundred times longer than others.

Few as they are, they hold most of all squares. An autoencoder that sees them learns little else, and one that did not
cannot stand in for them.
"""

from __future__ import annotations

from torch import Tensor

LONGER = 10
"""How many times as long as the median state."""


def sinks(lengths: Tensor, of: Tensor | None = None) -> Tensor:
    """bool, like lengths. of: the lengths whose median counts; by default these."""
    return lengths > LONGER * (lengths if of is None else of).median()
