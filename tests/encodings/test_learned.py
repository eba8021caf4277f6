"""Past the end of a learned table: always the stated policy, never a silent one."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from whence.encodings import Learned


def rows(learned: Learned, *positions: float) -> torch.Tensor:
    return learned.embed(torch.zeros(1, len(positions), 4), torch.tensor([positions]))[0]


def test_reads_its_table_and_interpolates() -> None:
    learned = Learned(4, 8, init_std=1)
    assert_close(rows(learned, 0, 7, 3), learned.table[[0, 7, 3]])
    assert_close(
        rows(learned, 2.25, 7.0), torch.stack([0.75 * learned.table[2] + 0.25 * learned.table[3], learned.table[7]])
    )


@pytest.mark.parametrize("position", [8, 7.5, 1000, -1, -0.5, float("nan"), float("inf")])
def test_error_names_position_and_rows(position: float) -> None:
    with pytest.raises(ValueError, match=rf"position {position:g} .*table of 8 rows"):
        rows(Learned(4, 8, 100, out_of_range="error"), 3, position)


def test_untrained_rows_reach_max_length_and_no_further() -> None:
    learned = Learned(4, 8, 12)
    assert len(learned.table) == 12
    assert rows(learned, 11).any()
    with pytest.raises(ValueError, match=r"position 12 .*table of 12 rows"):
        rows(learned, 12)
    rows(learned, 0, 7).sum().backward()
    assert (learned.table.grad[8:] == 0).all(), "positions within the training length must not train the rest"


def test_clamp_uses_the_last_row() -> None:
    learned = Learned(4, 8, 100, out_of_range="clamp")
    assert len(learned.table) == 8
    assert_close(rows(learned, 7, 8, 10**6), learned.table[[7, 7, 7]])
    assert_close(rows(learned, 7.5, -3.0), learned.table[[7, 0]])


def test_compiled_code_skips_the_check_but_not_the_refusal() -> None:
    learned = Learned(4, 8, out_of_range="error")
    compiled = torch.compile(learned.embed, backend="aot_eager", fullgraph=True)
    with pytest.raises((IndexError, RuntimeError)):
        compiled(torch.zeros(1, 1, 4), torch.tensor([[8]]))
