"""Memory is used again only when nobody can see it any more."""

from __future__ import annotations

import gc

import pytest
import torch

from whence.kernels import memory, selective_scan
from whence.kernels.memory import LARGE, room

COUNT = LARGE // 4 + 100


@pytest.fixture(autouse=True)
def _empty() -> None:
    memory._free.clear()


def test_a_dead_tensor_gives_its_memory_to_the_next() -> None:
    first = room(COUNT, dtype=torch.float32)
    address = first.data_ptr()
    del first
    gc.collect()
    second = room(2, COUNT // 2, dtype=torch.float32)
    assert second.data_ptr() == address
    assert second.shape == (2, COUNT // 2)


def test_a_view_of_it_keeps_it() -> None:
    first = room(COUNT, dtype=torch.float32)
    first.fill_(7.0)
    view = first[::1000]
    del first
    gc.collect()
    room(COUNT, dtype=torch.float32).fill_(0.0)
    assert (view == 7.0).all()


def test_blocks_of_another_size_are_not_wasted_on_it() -> None:
    del_me = room(4 * COUNT, dtype=torch.float32)
    address = del_me.data_ptr()
    del del_me
    gc.collect()
    assert room(COUNT, dtype=torch.float32).data_ptr() != address


def test_no_more_is_kept_than_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "POOL_SIZE", 3 * LARGE)
    tensors = [room(COUNT, dtype=torch.float32) for _ in range(5)]
    del tensors
    gc.collect()
    assert 0 < sum(block.nbytes for block in memory._free.values()) <= 3 * LARGE


def test_results_of_a_long_scan_stay_when_others_follow() -> None:
    """Outputs and gradients of one call must not be the buffers of the next."""
    torch.manual_seed(0)
    shape = (1, 70_000, 16)

    def inputs() -> list[torch.Tensor]:
        u, delta, A = torch.randn(shape), torch.rand(shape), -torch.rand(16, 1)
        return [t.requires_grad_() for t in (u, delta, A, torch.randn(1, 70_000, 1), torch.randn(1, 70_000, 1))]

    given = inputs()
    y = selective_scan(*given)
    gradients = torch.autograd.grad(y.sum(), given)
    copies = [tensor.clone() for tensor in (y.detach(), *gradients)]
    for _ in range(2):
        others = inputs()
        torch.autograd.grad(selective_scan(*others).sum(), others)
    assert all(torch.equal(a, b) for a, b in zip(copies, (y, *gradients), strict=True))
