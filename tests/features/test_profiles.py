"""What is shown of an autoencoder is what a direct computation finds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.features.causal import llama
from tests.features.causal import save as save_model
from tests.features.stored import store_collection
from whence.errors import UserError
from whence.features.activations.store import Collection
from whence.features.config import AutoencoderConfig
from whence.features.data import StoredActivations, Synthetic
from whence.features.evals.measures import FEW
from whence.features.evals.profiles import (
    AROUND,
    SHOWN,
    TOP,
    FeatureProfiles,
    chosen,
    contexts,
    feature_profiles,
    top_places,
)
from whence.features.sae.autoencoder import Autoencoder
from whence.models.init import initialise
from whence.models.pretrained import tokenizer_of

CONTEXT, WIDTH = 16, 8


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> StoredActivations:
    """With the tokenizer of a small model."""
    return collect(tmp_path_factory.mktemp("collected"), save_model(tmp_path_factory.mktemp("model"), llama()))


def collect(path: Path, model: str, sinks: tuple[int, ...] = ()) -> StoredActivations:
    """Random states of 96 sequences, every third held out. sinks: positions where states are far longer."""
    drawn = torch.Generator().manual_seed(0)
    ids = torch.randint(20, (96, CONTEXT), generator=drawn)
    activations = torch.randn(96, CONTEXT, WIDTH, generator=drawn).bfloat16()
    activations[:, list(sinks)] *= 100
    return StoredActivations(path=str(store_collection(path, model, ids, torch.arange(96) % 3 == 0, activations)))


def autoencoder(d_in: int, context_size: int, mask: str, data: StoredActivations | Synthetic) -> Autoencoder:
    config = AutoencoderConfig.read({"d_sae": 48, "mask": mask, "sparsity": "topk:k=6"})
    model = Autoencoder(config, d_in, context_size, 10)
    initialise(model, torch.Generator().manual_seed(3))
    model.fit(data.everything())
    return model.eval()


def held_out(found: Collection) -> tuple[Tensor, Tensor]:
    places = torch.tensor([(s, p) for s in range(0, 96, 3) for p in range(1, CONTEXT)])
    return places, found.activations(places)


def test_profiles_are_mean_activations_by_position(collected: StoredActivations) -> None:
    model = autoencoder(WIDTH, CONTEXT, "static_slice", collected)
    found = feature_profiles(model, collected)
    places, activations = held_out(collected.collection)
    assert found.positions == tuple(range(1, CONTEXT)), "the first token is left out"
    assert found.used is not None
    for mask_off, profile in ((True, found.mask_off), (False, found.used)):
        with torch.no_grad():
            codes = model.encode(activations, places[:, 1], mask_off)
        for row, position in enumerate(found.positions):
            mean = codes[places[:, 1] == position].mean(0)
            torch.testing.assert_close(profile[row], mean, rtol=1e-4, atol=1e-6)
    with torch.no_grad():
        active = (model.encode(activations, places[:, 1], mask_off=True) > 0).double()
    torch.testing.assert_close(found.active.double(), active.mean(0))
    assert set(found.position_selectivity) == set((active.sum(0) >= FEW).nonzero().flatten().tolist())
    assert found.mask_values is not None
    assert not found.used[found.mask_values == 0].any(), "under a hard mask, no feature speaks elsewhere"
    assert found.mask_off[found.mask_values == 0].any()


def test_contexts_are_the_highest_activations(collected: StoredActivations) -> None:
    model = autoencoder(WIDTH, CONTEXT, "none", collected)
    places, activations = held_out(collected.collection)
    with torch.no_grad():
        codes = model.encode(activations, places[:, 1], mask_off=True)
    values, there = top_places(model, collected, [5, 2])
    for column, feature in enumerate([5, 2]):
        best = codes[:, feature].sort(descending=True)
        torch.testing.assert_close(values[:, column], best.values[:TOP])
        assert there[0, column].tolist() == places[best.indices[0]].tolist()

    found = feature_profiles(model, collected)
    again = FeatureProfiles.model_validate(found.model_dump(mode="json"))
    assert again.mask_off.equal(found.mask_off)
    assert again.active.equal(found.active)
    assert not found.note
    feature, those = next(iter(found.contexts.items()))
    ids = collected.collection.tokens
    words = [f"f{i}" for i in range(10)] + [f"r{i}" for i in range(10)]
    for context in those:
        assert context.value > 0
        line = ids[context.sequence].tolist()
        assert context.token == words[line[context.position]]
        assert context.before.split() == [words[i] for i in line[max(0, context.position - AROUND) : context.position]]
        assert context.after.split() == [words[i] for i in line[context.position + 1 :][:AROUND]]
    assert [c.value for c in those] == sorted((c.value for c in those), reverse=True)
    assert those[0].value == pytest.approx(float(codes[:, feature].max()))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mask_off", {"shape": [2, 3]}),
        ("mask_off", 3),
        ("mask_off", {"shape": [2, 3], "float32": "AAAA"}),
        ("mask_off", {"shape": [2, 3], "float32": "not base64"}),
        ("active", None),
        ("active", ["many"]),
    ],
)
def test_a_stored_profile_of_another_shape_is_invalid(collected: StoredActivations, field: str, value: object) -> None:
    document = feature_profiles(autoencoder(WIDTH, CONTEXT, "none", collected), collected).model_dump(mode="json")
    FeatureProfiles.model_validate(document)
    with pytest.raises(ValueError, match=field):
        FeatureProfiles.model_validate({**document, field: value})


def test_states_that_are_left_out_do_not_shift_the_text_of_others(tmp_path: Path) -> None:
    data = collect(tmp_path, "run:0123456789ab", sinks=(3, 7))
    model = autoencoder(WIDTH, CONTEXT, "none", data)
    values, there = top_places(model, data, [5, 2])
    for column, feature in enumerate([5, 2]):
        places = there[:, column]
        assert not torch.isin(places[:, 1], torch.tensor([3, 7])).any()
        with torch.no_grad():
            codes = model.encode(data.collection.activations(places), places[:, 1], mask_off=True)
        torch.testing.assert_close(values[:, column], codes[:, feature])


def test_any_feature_can_be_looked_up_and_symbols_of_a_task_are_its_text(tmp_path: Path) -> None:
    data = collect(tmp_path, "run:0123456789ab")
    model = autoencoder(WIDTH, CONTEXT, "none", data)
    found, note = contexts(model, data, [11])
    assert not note
    assert list(found) == [11]
    for context in found[11]:
        line = data.collection.tokens[context.sequence].tolist()
        assert context.token == str(line[context.position])
        assert context.after == " ".join(map(str, line[context.position + 1 :][:AROUND]))


def test_features_are_sorted_in_every_way(collected: StoredActivations) -> None:
    model = autoencoder(WIDTH, CONTEXT, "static_slice", collected)
    profile_findings = feature_profiles(model, collected)
    active = profile_findings.active.clone()
    active[[0, 30]] = 0
    found = profile_findings.model_copy(update={"active": active})
    everything = list(range(48))
    for by in ("peak", "position_selectivity", "frequency", "number", "mask_values"):
        assert sorted(found.order(by)) == everything
    peaks = [int(found.peaks[feature]) for feature in found.order("peak")]
    assert peaks[:-2] == sorted(peaks[:-2])
    assert (
        {*found.order("peak")[-2:]}
        == {*found.order("position_selectivity")[-2:]}
        == {*found.order("frequency")[-2:]}
        == {0, 30}
    )
    degrees = [
        found.position_selectivity[feature]
        for feature in found.order("position_selectivity")
        if feature in found.position_selectivity
    ]
    assert degrees[:-2] == sorted(degrees[:-2], reverse=True)
    assert found.mask_values is not None
    firsts = [int(found.mask_values[:, feature].argmax()) for feature in found.order("mask_values")]
    assert firsts == sorted(firsts)


def test_the_most_bound_features_come_first_and_no_feature_twice() -> None:
    drawn = torch.Generator().manual_seed(1)
    degree = dict(enumerate(torch.rand(200, generator=drawn).tolist()))
    active = torch.rand(200, generator=drawn)
    found = chosen(degree, active)
    assert len(found) == len(set(found)) == SHOWN
    assert found[: SHOWN // 2] == sorted(degree, key=lambda f: degree[f])[: -SHOWN // 2 - 1 : -1]
    others = active[found[SHOWN // 2 :]]
    assert torch.equal(others, others.sort(descending=True).values)
    assert sorted(chosen({4: 0.1, 7: 0.9}, active)) == [4, 7]
    assert chosen({}, active) == []


def test_planted_states_have_no_text() -> None:
    data = Synthetic(features=24, d_in=16, context_size=8)
    found = feature_profiles(autoencoder(16, 8, "none", data), data)
    assert not found.contexts
    assert "no text" in found.note
    assert found.mask_values is None
    assert found.fvu == found.fvu_mask_off
    document = found.summary()
    assert document["frequent"] == len(found.position_selectivity)
    assert all(one["position_selectivity"] >= 0.5 for one in document["position_specific"])


def test_a_tokenizer_comes_without_its_model(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", llama())
    os.remove(Path(folder) / "model.safetensors")
    assert tokenizer_of(folder).decode([0, 11]) == "f0 r1"
    with pytest.raises(UserError, match="not known"):
        tokenizer_of("nothing")
