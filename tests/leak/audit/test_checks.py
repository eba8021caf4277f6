"""What an audit refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whence
from tests.leak.known_models import Interpolation, content
from whence.errors import UserError
from whence.leak.audit.checks import check_finite, check_token_ids


@pytest.mark.parametrize(
    "measures",
    [
        {"0.5": {"error": math.nan}},
        {"0.5": {"shift": {"of_prediction": math.inf}}},
        {"0.5": [{"alone": -math.inf}]},
    ],
)
def test_measures_that_are_not_finite(measures: Any) -> None:
    with pytest.raises(UserError, match=r"expected finite measures, got (nan|inf|-inf) for 0.5"):
        check_finite("mine", measures)


def test_undefined_measures_are_fine() -> None:
    check_finite("mine", {"0.5": {"error": 0.5, "eta2": None, "identical": True, "places": [1, 2]}})


class NanFarAway(Interpolation):
    """Finite except where everything but a short block is masked: the shift test alone sees it."""

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        lonely = masked[:, :2].all(1) & ~masked.all(1)
        return super().forward(x, masked) + torch.where(lonely, math.nan, 0.0)[:, None, None]


def test_predictions_that_are_not_finite_in_the_shift_test_alone() -> None:
    with pytest.raises(UserError, match=r"expected finite"):
        whence.audit(NanFarAway(), content(0), ratios=(0.15,))


class Flat(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ones(*x.shape, 4)


def test_targets_that_do_not_vary() -> None:
    ids = torch.randint(9, (12, 24), generator=torch.Generator().manual_seed(0))
    with pytest.raises(UserError, match="expected targets that vary, got constant ones"):
        whence.audit(Flat(), ids, mask=0)


@pytest.mark.parametrize(("share", "refused"), [(0.95, True), (0.5, False)])
def test_one_token_id(share: float, refused: bool) -> None:
    place = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 99, (12, 40), generator=place)
    ids[torch.rand(ids.shape, generator=place) < share] = 1
    if not refused:
        check_token_ids(ids)
        return
    with pytest.raises(UserError, match=r"expected tokens that vary, got id 1 for 9. %"):
        check_token_ids(ids)
