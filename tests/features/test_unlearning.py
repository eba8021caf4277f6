"""Unlearning where the answer is known: a ring of tokens per kind, and one axis of the states that says which kind."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.features.causal import FORGET, GROUP, RETAIN, WIDTH, Basis, ring, save
from whence.errors import UserError
from whence.features.activations.text import documents, held_out, passages
from whence.features.evals.splice import SplitModel
from whence.features.evals.unlearning import Clamp, Corpora, UnlearningSettings, eligible, frequencies, unlearning

LENGTH = 12


class Everywhere(Basis):
    """One feature, along the axis that says "retain", that fires on all tokens but r0."""

    def __init__(self, but: bool) -> None:
        super().__init__(torch.eye(WIDTH)[[RETAIN]])
        self.d_sae, self.axes, self.but = 1, self.axes[:1], but

    def encode(self, activations: Tensor, positions: Tensor, mask_off: bool = False) -> Tensor:
        return 1 - self.but * (activations[:, [GROUP]] > 0).float()


def write(folder: Path, kind: str) -> str:
    """Rings of many lengths, begun anywhere: enough of them to hold some out."""
    draw = random.Random(kind)
    texts = {
        " ".join(f"{kind}{(start + step) % GROUP}" for step in range(length))
        for start in range(GROUP)
        for length in range(LENGTH - 2, 60)
    }
    path = folder / f"{kind}.txt"
    path.write_text("\n\n".join(draw.sample(sorted(texts), len(texts))))
    return str(path)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[SplitModel, Corpora, UnlearningSettings]:
    folder = tmp_path_factory.mktemp("synthetic")
    split_model = SplitModel.of(save(folder / "model", ring()), 2)
    spec = UnlearningSettings(
        forget=(write(folder, "f"),),
        retain=(write(folder, "r"),),
        sequences=8,
        length=LENGTH,
        thresholds=(0.01,),
        counts=(1,),
        multipliers=(2.0,),
    )
    return split_model, Corpora.read(split_model, spec), spec


def test_one_feature_carries_what_is_to_be_forgotten(planted: tuple[SplitModel, Corpora, UnlearningSettings]) -> None:
    """Every prediction is lost but that from the first token, which is never edited; nothing retained is."""
    split_model, corpora, spec = planted
    assert corpora.forget.test.right.all(), "the clean model knows its rings"
    found = unlearning(split_model, corpora, Basis(torch.eye(WIDTH)), spec)
    assert found.outcome == "scored"
    score = found.score
    assert score is not None
    assert score.features == (FORGET,)
    assert score.test.forgotten == pytest.approx(10 / 11)
    assert (score.setting.forgotten, score.setting.retained) == (pytest.approx(10 / 11), 1.0)
    assert score.test.retained == 1.0
    assert score.retains_enough
    assert score.test.forget_entropy > score.clean_forget_entropy + 1
    assert score.test.retain_entropy == pytest.approx(score.clean_retain_entropy)
    assert score.random.forgotten < 0.5
    assert (score.forget_tokens, score.retain_tokens) == (8 * 11, 8 * 11)


def test_the_scale_of_codes_does_not_matter(planted: tuple[SplitModel, Corpora, UnlearningSettings]) -> None:
    split_model, corpora, spec = planted
    one, other = (unlearning(split_model, corpora, Basis(torch.eye(WIDTH), scale), spec) for scale in (0.01, 50.0))
    assert one.score is not None
    assert other.score is not None
    assert one.score.test.model_dump() == pytest.approx(other.score.test.model_dump())
    assert one.settings[0].model_dump() == pytest.approx(other.settings[0].model_dump())


def test_features_are_those_that_retained_text_lacks(planted: tuple[SplitModel, Corpora, UnlearningSettings]) -> None:
    _, corpora, _ = planted
    basis = Basis(torch.eye(WIDTH))
    forget, retain = (frequencies(basis, side.select) for side in (corpora.forget, corpora.retain))
    assert forget[FORGET] == retain[RETAIN] == 1
    assert forget[RETAIN] == retain[FORGET] == 0
    assert float(forget[:GROUP].sum()) == pytest.approx(1), "each token has a feature of its own"
    order = eligible(forget, retain, 0.01).tolist()
    assert order[0] == FORGET
    assert set(order[1:]) <= set(range(GROUP))
    shares = torch.tensor([0.5, 0.2, 0.9, 0.0])
    assert eligible(shares, torch.tensor([0.0, 0.009, 0.01, 0.0]), 0.01).tolist() == [0, 1]


def test_clamping_nothing_changes_nothing(planted: tuple[SplitModel, Corpora, UnlearningSettings]) -> None:
    """Also where the dictionary leaves most of a state out."""
    split_model, corpora, _ = planted
    lossy = Basis(torch.eye(WIDTH)[FORGET:])
    text = corpora.retain.test.text
    clamp = Clamp.of(split_model, lossy, corpora.forget.select)
    assert torch.equal(clamp.text(text, torch.tensor([], dtype=torch.long), 2.0).activations, text.activations)
    assert torch.equal(clamp.text(text, torch.tensor([0]), 2.0).activations, text.activations), (
        "it never fires on this text"
    )
    assert clamp.still_right(corpora.retain.test, torch.tensor([0]), 2.0) == 1


def test_what_a_clamp_does_to_a_state(planted: tuple[SplitModel, Corpora, UnlearningSettings]) -> None:
    """The axis is set to minus the length of a typical state, √2 here, and the others stay."""
    split_model, corpora, _ = planted
    text = corpora.forget.test.text
    clamp = Clamp.of(split_model, Basis(torch.eye(WIDTH)[FORGET:], scale=7.0), corpora.forget.select)
    new = clamp.text(text, torch.tensor([0]), 3.0).activations
    expected = text.activations.clone()
    expected[:, 1:, FORGET] = -3 * 2**0.5
    torch.testing.assert_close(new, expected)


def test_no_eligible_feature_is_no_score(planted: tuple[SplitModel, Corpora, UnlearningSettings]) -> None:
    split_model, corpora, spec = planted
    found = unlearning(split_model, corpora, Everywhere(but=False), spec)
    assert (found.outcome, found.score, found.settings) == ("no eligible feature", None, ())
    assert found.eligible == {"0.01": 0}
    assert "1 % or more" in found.reason


def test_no_setting_that_retains_is_no_score(planted: tuple[SplitModel, Corpora, UnlearningSettings]) -> None:
    split_model, corpora, spec = planted
    loose = replace(spec, thresholds=(0.99,))
    found = unlearning(split_model, corpora, Everywhere(but=True), loose)
    assert (found.outcome, found.score) == ("no setting retains", None)
    assert found.settings[0].forgotten is None
    assert found.settings[0].retained < 0.5
    assert "less than 0.99" in found.reason


def test_the_setting_is_the_best_that_retains(planted: tuple[SplitModel, Corpora, UnlearningSettings]) -> None:
    split_model, corpora, spec = planted
    wide = replace(spec, counts=(1, 2, 99), multipliers=(0.0, 2.0))
    found = unlearning(split_model, corpora, Basis(torch.eye(WIDTH)), wide)
    lost = [setting.forgotten for setting in found.settings if setting.forgotten is not None]
    assert [setting.count for setting in found.settings] == [1, 1, 2, 2, 11, 11], "no more than are eligible"
    assert found.score is not None
    assert found.score.setting.forgotten == max(lost)
    assert min(lost) < max(lost)


def test_passages_are_the_beginnings_of_held_out_documents(
    planted: tuple[SplitModel, Corpora, UnlearningSettings], tmp_path: Path
) -> None:
    tokenizer, draw = planted[0].tokenizer, random.Random(0)
    books = []
    for kind in "fr":
        texts = [" ".join(f"{kind}{draw.randrange(GROUP)}" for _ in range(20)) for _ in range(400)]
        books.append(tmp_path / f"{kind}.txt")
        books[-1].write_text("\n\n".join(texts))
    one, other = map(str, books)
    ids, special = passages(tokenizer, (one, other), 10, LENGTH)
    assert ids.shape == (10, LENGTH)
    assert not special.any()
    assert (ids // GROUP == torch.tensor([0, 1] * 5)[:, None]).all(), "both in turn"
    known = {tuple(tokenizer(text)["input_ids"][:LENGTH]): held_out(text) for text in documents(one)}
    found = [tuple(row) for row in passages(tokenizer, (one,), 20, LENGTH)[0].tolist()]
    assert len(set(found)) == 20
    assert all(known[row] for row in found)


def test_passages_that_there_are_not(planted: tuple[SplitModel, Corpora, UnlearningSettings]) -> None:
    tokenizer, book = planted[0].tokenizer, planted[2].forget[0]
    with pytest.raises(UserError, match=r"expected 10 held-out documents .* got 0"):
        passages(tokenizer, (book,), 10, LENGTH, without=(book,))
    with pytest.raises(UserError, match="expected 10000 held-out documents"):
        passages(tokenizer, (book,), 10_000, LENGTH)
    with pytest.raises(UserError, match="159_code_Python"):
        passages(tokenizer, ("159_code_Pithon=1",), 10, LENGTH)
    with pytest.raises(UserError, match="no label '7'"):
        passages(tokenizer, ("159_code_Python=7",), 10, LENGTH)
