"""A Mamba saved by transformers, loaded here: the same logits, the same gradients, one token at a time too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from whence.errors import UserError
from whence.models.mamba_lm import MambaLM

VOCABULARY = 50
CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # both are float32: parts of theirs stay so in a model of doubles


def saved(folder: Path, **changes: Any) -> transformers.MambaForCausalLM:
    """A small, randomly initialised Mamba in `folder`."""
    torch.manual_seed(0)
    config = transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2, state_size=8, pad_token_id=0, **changes
    )
    theirs = transformers.MambaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "norm" in name or "bias" in name:  # not left at the ones and zeros that would hide a mistake
                parameter.add_(0.1 * torch.randn_like(parameter))
    theirs.save_pretrained(folder, max_shard_size=changes.pop("shard", "5GB"))
    return theirs


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": False, "use_bias": True, "use_conv_bias": False},
        {"conv_kernel": 3, "expand": 1, "time_step_rank": 5, "layer_norm_epsilon": 1e-3},
    ],
)
def test_logits_and_gradients_are_those_of_transformers(tmp_path: Path, changes: dict[str, Any]) -> None:
    theirs = saved(tmp_path, **changes)
    ours = MambaLM.load(tmp_path)
    tokens = torch.randint(VOCABULARY, (3, 17), generator=torch.Generator().manual_seed(1))
    mine, other = ours(tokens), theirs(tokens).logits
    torch.testing.assert_close(mine, other, **CLOSE)
    mine.square().sum().backward()
    other.square().sum().backward()
    wanted = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name].grad, rtol=1e-3, atol=1e-4, msg=name)


def test_token_by_token(tmp_path: Path) -> None:
    saved(tmp_path)
    ours = MambaLM.load(tmp_path).double()
    tokens = torch.randint(VOCABULARY, (2, 9))
    memory, pieces = None, []
    with torch.no_grad():
        for token in tokens.split(1, 1):
            logits, memory = ours.extend(token, memory)
            pieces.append(logits)
        torch.testing.assert_close(torch.cat(pieces, 1), ours(tokens), rtol=0, atol=1e-12)


def test_in_shards_and_in_half_precision(tmp_path: Path) -> None:
    theirs = saved(tmp_path).bfloat16()
    (tmp_path / "model.safetensors").unlink()
    theirs.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    ours = MambaLM.load(tmp_path)
    assert ours.lm_head.weight.dtype == torch.float32
    tokens = torch.arange(7)[None]
    torch.testing.assert_close(ours(tokens), theirs.float()(tokens).logits, **CLOSE)


def edited(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "config.json.*cannot be read"),
        (lambda folder: (folder / "config.json").write_text("{"), "brackets do not match"),
        (lambda folder: edited(folder, model_type="llama"), "describes a model of type 'llama'. Allowed: mamba"),
        (lambda folder: edited(folder, hidden_act="gelu"), "Allowed: silu"),
        (lambda folder: edited(folder, vocab_size="many"), "vocab_size must be"),
        (lambda folder: edited(folder, state_size="x"), "state_size must be"),
        (lambda folder: (folder / "config.json").write_text("[]"), "expected a JSON object in .*, got a list"),
        (lambda folder: edited(folder, vocab_size=51), r"has shape \(50, 24\), not \(51, 24\)"),
        (lambda folder: edited(folder, num_hidden_layers=10**9), "num_hidden_layers in .*too large"),
        (lambda folder: edited(folder, num_hidden_layers=1), r"expected weights of 1 layers \(config.json\), got 2"),
        (
            lambda folder: edited(folder, tie_word_embeddings=False),
            "1 weights are missing, the first is 'lm_head.weight'",
        ),
        (lambda folder: (folder / "model.safetensors").unlink(), "never loaded"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 100), "cannot be read"),
    ],
)
def test_a_damaged_directory_is_named(tmp_path: Path, damage: Any, message: str) -> None:
    saved(tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError, match=message):
        MambaLM.load(tmp_path)
