"""Untrained twins, and when a model is no different from them."""

from __future__ import annotations

import threading

import pytest
import torch
import transformers
from torch import Tensor, nn

from tests.leak.known_models import _untrained_bert, content
from whence.leak.audit.auditing import measure_audit
from whence.leak.audit.own_model import audit_target
from whence.leak.audit.pretrained import _target
from whence.leak.audit.untrained import compare_errors, reinitialized


def test_the_rate_at_which_untrained_models_are_called_different(slow: bool) -> None:
    count = 20 if slow else 3
    outcomes = [measure_audit(_untrained_bert(seed), (0.5, 0.9)).verdict.outcome for seed in range(10, 10 + count)]
    assert outcomes.count("no different from untrained") >= 0.9 * count


def test_the_prediction_interval_holds_one_more_of_the_same() -> None:
    """99 % of draws from the same distribution lie inside; three standard deviations further, hardly any does."""
    place = torch.Generator().manual_seed(0)
    same = other = 0
    for _ in range(500):
        draws = (0.5 + 0.02 * torch.randn(6, generator=place, dtype=torch.float64)).tolist()
        twins = [{0.5: value} for value in draws[1:]]
        same += compare_errors({0.5: draws[0]}, twins).different
        other += compare_errors({0.5: draws[0] - 0.3}, twins).different
    assert same <= 12
    assert other >= 490


@pytest.mark.parametrize(("error", "different"), [(1.3, False), (1.0, False), (0.995, False), (0.98, True)])
def test_errors_above_one_are_all_alike(error: float, different: bool) -> None:
    twins = [{0.5: 1.0 + 0.1 * index} for index in range(5)]
    assert compare_errors({0.5: error}, twins).different == different


def test_one_ratio_suffices() -> None:
    twins = [{0.5: 0.5, 1.0: 0.5}] * 5
    assert compare_errors({0.5: 0.5, 1.0: 0.4}, twins).different
    assert not compare_errors({0.5: 0.5, 1.0: 0.5}, twins).different


def test_models_of_transformers_start_from_their_configuration() -> None:
    """Not from torch's defaults, under which embeddings would be fifty times as large."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = transformers.BertModel(transformers.BertConfig(**sizes, vocab_size=99))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    twin = reinitialized(model, 0)
    assert twin is not None
    assert 0.01 < float(twin.get_parameter("embeddings.word_embeddings.weight").detach().std()) < 0.04


class Locked(nn.Module):
    """Nothing can copy it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.lock = nn.Linear(3, 3), threading.Lock()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_a_model_that_cannot_be_copied_has_no_twin() -> None:
    found = measure_audit(audit_target(Locked(), content(0)), (0.5,))
    assert found.untrained == {}
    assert any(sentence.startswith("Untrained twin not available") for sentence in found.verdict.sentences)


def test_an_untrained_mamba_reconstructs_nothing() -> None:
    config = transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=99, state_size=8)
    model = transformers.AutoModel.from_config(config).eval()
    ids = torch.randint(5, 99, (16, 24), generator=torch.Generator().manual_seed(0))
    verdict = measure_audit(_target("mamba", model, ids, (0, 0), None), (0.5, 1.0)).verdict
    assert verdict.outcome == "reconstructs nothing"
    assert verdict.leak == "leaky"
    assert "1.0" in verdict.sentences[3], "the errors are named"
