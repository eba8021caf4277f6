"""Cross-entropy recovered: 1 for the states themselves, 0 for what it is measured against."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.features.causal import GROUP, WIDTH, Basis, llama, ring, save
from whence.errors import UserError
from whence.features.activations.collect import collect
from whence.features.config import CollectConfig
from whence.features.evals.splice import SplitModel, SplitText, held_out_text, recovered
from whence.store.runs import Store


class Constant(Basis):
    """The same state for everything."""

    def __init__(self, state: Tensor) -> None:
        super().__init__(torch.eye(WIDTH))
        self.state = state

    def decode(self, codes: Tensor, positions: Tensor) -> Tensor:
        return self.state.expand(len(codes), -1)


@pytest.fixture(scope="module")
def split_model(tmp_path_factory: pytest.TempPathFactory) -> SplitModel:
    return SplitModel.of(save(tmp_path_factory.mktemp("ring"), ring()), 2)


def rings(sequences: int = 20, length: int = 12) -> Tensor:
    """Both kinds in turn, as the model expects them."""
    start = torch.arange(sequences)
    return start[:, None] % 2 * GROUP + (start[:, None] + torch.arange(length)) % GROUP


def test_the_ends_of_the_scale(split_model: SplitModel) -> None:
    text = split_model.read(rings())
    mean = text.activations[:, 1:].flatten(0, 1).mean(0)
    some = {
        "perfect": Basis(torch.eye(WIDTH), scale=3.0),
        "zero": Constant(torch.zeros(WIDTH)),
        "mean": Constant(mean),
        "kind": Basis(torch.eye(WIDTH)[2 * GROUP :]),
    }
    found = recovered(split_model, text, some)
    assert found["perfect"].recovered == pytest.approx(1, abs=1e-5)
    assert found["perfect"].spliced == pytest.approx(found["perfect"].clean, abs=1e-5)
    assert found["zero"].recovered == pytest.approx(0, abs=1e-6)
    assert found["mean"].recovered_from_mean == pytest.approx(0, abs=1e-6)
    assert 0.1 < found["kind"].recovered < 0.9, "the kind of a token says something of the next"
    assert found["kind"].tokens == 20 * 11


def test_zeros_leave_a_head_without_an_opinion(split_model: SplitModel) -> None:
    """All logits are then equal; only the first place, which is not edited, is still predicted."""
    text = split_model.read(rings())
    found = recovered(split_model, text, {"zero": Constant(torch.zeros(WIDTH))})["zero"]
    even = float(torch.tensor(2 * GROUP + 1).log())
    assert found.zero == pytest.approx((found.clean + 10 * even) / 11, abs=1e-5)


def test_masks_are_lifted_where_asked(split_model: SplitModel) -> None:
    class Masked(Basis):
        def encode(self, activations: Tensor, positions: Tensor, mask_off: bool = False) -> Tensor:
            return super().encode(activations, positions) * (1 if mask_off else (positions < 4)[:, None])

    text, masked = split_model.read(rings()), {"masked": Masked(torch.eye(WIDTH))}
    position_specific, mask_off = (
        recovered(split_model, text, masked, mask_off=some)["masked"].recovered for some in (False, True)
    )
    assert position_specific == pytest.approx(3 / 10, abs=1e-4), "three of the ten places that are edited"
    assert mask_off == pytest.approx(1, abs=1e-5)


def test_a_reference_that_does_no_harm_gives_no_share(tmp_path: Path) -> None:
    """On text that a random model gets wrong, zeros are better than the model."""
    split_model = SplitModel.of(save(tmp_path, llama()), 2)
    ids = torch.randint(21, (8, 12), generator=torch.Generator().manual_seed(0))
    text = split_model.read(ids)
    worst = split_model.logits(split_model.upper(text.activations))[:, :-1].argmin(-1)
    wrong = SplitText(torch.cat([ids[:, :1], worst], 1), text.activations, text.special, text.sinks)
    found = recovered(split_model, wrong, {"perfect": Basis(torch.eye(WIDTH))})["perfect"]
    assert found.zero < found.clean
    assert found.recovered is None


def test_text_that_a_collection_held_out(tmp_path: Path, store: Store) -> None:
    folder, book = save(tmp_path / "model", llama()), tmp_path / "book.txt"
    draw = torch.randint(20, (400, 9), generator=torch.Generator().manual_seed(0))
    words = [f"f{i}" for i in range(GROUP)] + [f"r{i}" for i in range(GROUP)]
    book.write_text("\n\n".join(" ".join(words[i] for i in row) for row in draw.tolist()))
    config = CollectConfig(model=folder, layer=2, tokens=1200, context_size=16, text=str(book), name="some")
    split_model, activations = SplitModel.of(folder, 2), collect(config, store)
    text = held_out_text(split_model, activations, sequences=3)
    rows = activations.sequences("held out")[:3]
    assert torch.equal(text.ids, activations.tokens[rows].long())
    kept = activations.activations(torch.cartesian_prod(rows, torch.arange(16))).view(3, 16, -1)
    torch.testing.assert_close(kept, text.activations, atol=0.02, rtol=0.01)  # bfloat16
    assert recovered(split_model, text, {"perfect": Basis(torch.eye(WIDTH))})["perfect"].tokens == 45
    with pytest.raises(UserError, match="d_in 8"):
        recovered(split_model, text, {"other": Basis(torch.eye(8))})
