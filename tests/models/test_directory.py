"""Directories with a model, as a stranger may write them: refused in one line, in seconds, without the memory that they
claim; nothing in them is executed."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import hostile
from tests.features.causal import llama, save
from whence.errors import UserError
from whence.models.directory import prepared
from whence.models.mamba_lm import MambaLM
from whence.models.pretrained import check_ids, model_of, pretrained, tokenizer_of
from whence.models.weights import read_floats, stored_tensors

MEBIBYTES = 400
HARMLESS = {model_of: set[str](), MambaLM.load: {"config.json: no heads", "config.json: quantized"}}
"""Fields that mean nothing to a Mamba"""


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "llama"
    save(folder, llama())
    return folder


@pytest.fixture(scope="session")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import transformers

    folder = tmp_path_factory.mktemp("whole") / "mamba"
    config = transformers.MambaConfig(vocab_size=50, hidden_size=24, num_hidden_layers=2, state_size=8, pad_token_id=0)
    transformers.MambaForCausalLM(config).save_pretrained(folder)
    return folder


def edited(folder: Path, name: str = "config.json", **changes: Any) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_whole_directories_are_read(whole: Path) -> None:
    model, tokenizer = pretrained(str(whole), head=True)
    theirs = llama().eval()
    ids = torch.tensor([tokenizer("f0 r1 f2")["input_ids"]])
    assert ids.tolist() == [[0, 11, 2]]
    assert torch.equal(model(ids).logits, theirs(ids).logits)
    assert model_of(str(whole))(ids).last_hidden_state.shape == (1, 3, 32)


def test_links_to_files_are_followed_and_shards_found(whole: Path, tmp_path: Path) -> None:
    """As in the cache of the hub, where a directory holds nothing but links."""
    model = llama()
    model.save_pretrained(tmp_path / "blobs", max_shard_size="20KB")
    folder = tmp_path / "snapshot"
    folder.mkdir()
    for path in (tmp_path / "blobs").iterdir():
        (folder / path.name).symlink_to(Path("../blobs") / path.name)
    assert len(list(folder.glob("*.safetensors"))) > 1
    found = model_of(str(folder), head=True).state_dict()
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("load", HARMLESS)
def test_hostile_directories_are_refused(whole: Path, mamba: Path, tmp_path: Path, load: Callable[[str], Any]) -> None:
    good = whole if load is model_of else mamba
    load(str(good))  # what is imported on the way
    read = []
    for number, (name, make) in enumerate(hostile.hostile_model_directories(lambda path: shutil.copytree(good, path))):
        folder = tmp_path / str(number)
        make(folder)
        try:
            if not hostile.refusal(lambda folder=folder: load(str(folder)), MEBIBYTES):
                read.append(name)
        except (Exception, hostile.Stuck) as problem:
            raise AssertionError(name) from problem
    assert set(read) <= HARMLESS[load]


def test_hostile_safetensors_are_refused(tmp_path: Path) -> None:
    for name, data in hostile.hostile_safetensors():
        path = tmp_path / "a.safetensors"
        path.write_bytes(data)
        read = lambda path=path: read_floats(stored_tensors(path, "model"), {"a": (4,)}, "model")  # noqa: E731
        assert hostile.refusal(read, MEBIBYTES), name


def test_numbers_that_are_none_and_types_that_are_not_weights(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    path = tmp_path / "a.safetensors"
    for value, reason in ((torch.tensor([1.0, torch.nan]), "not finite"), (torch.tensor([1, 2]), "of type I64")):
        save_file({"a": value}, path)
        with pytest.raises(UserError, match=f"model: a in a.safetensors .*{reason}"):
            read_floats(stored_tensors(path, "model"), {"a": (2,)}, "model")
    save_file({"a": torch.ones(2).bfloat16()}, path)
    assert read_floats(stored_tensors(path, "model"), {"a": (2,)}, "model")["a"].dtype == torch.float32


def test_weights_that_do_not_fit_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2**19)}, tmp_path / "a.safetensors")
    monkeypatch.setattr("whence.models.weights.memory_bytes", lambda: 2**20)
    with pytest.raises(UserError, match=r"weights need 0\.0 GiB in single precision"):
        read_floats(stored_tensors(tmp_path / "a.safetensors", "model"), {"a": (2**19,)}, "model")


def test_layers_for_which_there_are_no_weights_are_not_made_up(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    shutil.copytree(whole, folder)
    edited(folder, num_hidden_layers=5)
    with pytest.raises(UserError, match=r"9 weights are missing, the first is 'layers\.4\."):
        model_of(str(folder))
    edited(folder, num_hidden_layers=3)
    with pytest.raises(UserError, match=r"describes fewer layers than are stored: 'model\.layers\.3\."):
        model_of(str(folder))


def test_a_tokenizer_of_another_model(whole: Path) -> None:
    model = model_of(str(whole))
    check_ids(model, torch.tensor([[0, 20]]))
    with pytest.raises(UserError, match="model: the tokenizer gives the id 21, and the model has 21 tokens"):
        check_ids(model, torch.tensor([[0, 21]]))


def test_errors_name_the_directory_of_the_user(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    shutil.copytree(whole, folder)
    edited(folder, model_type="nothing")
    with pytest.raises(UserError) as caught:
        model_of(str(folder))
    assert "whence-model-" not in str(caught.value)


class Runs:
    """When it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_nothing_beside_the_weights_is_followed(whole: Path, tmp_path: Path) -> None:
    """Code, adapters, checkpoints of torch and of its distributed form, and names of further files."""
    folder, ran = tmp_path / "a", tmp_path / "ran"
    shutil.copytree(whole, folder)
    pickled, code = pickle.dumps(Runs(ran)), f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n"
    for name in ("pytorch_model.bin", ".metadata", "shard-00001-model-00001-of-00001.safetensors", "vocab.pkl"):
        (folder / name).write_bytes(pickled)
    for name in ("modeling_llama.py", "tokenizer.py", "tokenization_llama.py", "custom_generate.py"):
        (folder / name).write_text(code)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "/dev/zero"}))
    (folder / "chat_template.jinja").mkdir()
    automatic = {"AutoModel": "modeling_llama.Model", "AutoConfig": "modeling_llama.Config"}
    edited(folder, auto_map=automatic, transformers_weights="../b.safetensors", _attn_implementation="kernels/evil")
    automatic = {"AutoTokenizer": ["tokenizer.Slow", "tokenizer.Fast"]}
    edited(folder, "tokenizer_config.json", auto_map=automatic, vocab_file="/dev/zero", init_inputs=["/dev/zero"])
    with hostile.bounded(MEBIBYTES):
        model, tokenizer = pretrained(str(folder))
    assert tokenizer("f0 r1")["input_ids"] == [0, 11]
    assert torch.equal(model.embed_tokens.weight, llama().model.embed_tokens.weight)
    with prepared(folder, weights=True) as clean:
        assert sorted(path.name for path in clean.iterdir()) == ["config.json", "model.safetensors"]
    assert not ran.exists()


def test_hostile_tokenizers_are_refused(whole: Path, tmp_path: Path) -> None:
    tokenizer_of(str(whole))
    broken: dict[str, bytes] = {
        "nested": hostile.DEEP,
        "no JSON": b"{",
        "a list": b"[]",
        "empty": b"",
        "only a version": b'{"version": "1.0"}',
        "bytes": bytes(range(256)),
        "a vocabulary of text": b'{"version":"1.0","added_tokens":[],"model":{"type":"WordLevel","vocab":"x"}}',
        "an unknown model": b'{"version":"1.0","added_tokens":[],"model":{"type":"Evil"}}',
    }
    for number, (name, data) in enumerate(broken.items()):
        folder = tmp_path / f"broken-{number}"
        shutil.copytree(whole, folder)
        (folder / "tokenizer.json").write_bytes(data)
        assert hostile.refusal(lambda folder=folder: tokenizer_of(str(folder)), MEBIBYTES), name
    for file in ("tokenizer.json", "tokenizer_config.json"):
        for number, (name, make) in enumerate(hostile.not_files()):
            folder = tmp_path / f"{file}-{number}"
            shutil.copytree(whole, folder)
            (folder / file).unlink()
            make(folder / file)
            refused = hostile.refusal(lambda folder=folder: tokenizer_of(str(folder)), MEBIBYTES)
            assert refused or (name, file) == ("nothing", "tokenizer_config.json"), name
