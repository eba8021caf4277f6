"""Cases of the fuzzer that failed once, each reduced to what matters."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fuzz import samples
from tests.fuzz.targets.documents import sealed
from whence.arena.config import ArenaConfig
from whence.arena.instrument import ARENA
from whence.errors import UserError
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.experiments.comparison import runs_of
from whence.experiments.export import PublishedResults
from whence.features.actions import run_collect
from whence.features.activations.store import Collection
from whence.features.config import CollectConfig
from whence.features.sae.saelens import imported
from whence.fields.config import FieldsConfig
from whence.leak.config import LeakConfig
from whence.models.mamba_lm import MambaLM
from whence.recordings import read_npy
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.records import RunStatus, read_as
from whence.store.runs import Store

LONG = "x" * 300
"""Longer than a file's name can be"""


def npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode("latin-1") + b"\0" * 64


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<i\0\0,\0",  # a TokenError of the standard library
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }\n",  # OverflowError
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-4, -1), }\n",
        "{'descr': ('<f4',), 'fortran_order': False, 'shape': (4, 3), }\n",  # TypeError
        "(((((])",  # SyntaxError
        "(" * 300,
    ],
)
def test_headers_of_arrays(header: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(npy(header))
    with pytest.raises(UserError):
        read_npy(path, {2: "(a, b)"})


@pytest.mark.parametrize(
    ("config", "document"),
    [
        (FieldsConfig, {"data": f"photos{LONG}"}),
        (FieldsConfig, {"data": f"{LONG}.npy"}),
        (FieldsConfig, {"data": f"folder:path={LONG}"}),
        (FieldsConfig, {"data": f"emoji:font={LONG}"}),
        (LeakConfig, {"data": f"{LONG}.npy"}),
        (LeakConfig, {"data": "\0.npy"}),
    ],
)
def test_names_that_no_file_can_have(config: type[Any], document: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        config.read(document).data.build().draw(torch.Generator(), 1, "train")


def test_results_that_are_not_documents(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for content in (b"{", b"\xff", b"[" * 100_000, b'{"format": 1, "hash": NaN}', b'{"format": "\xed\xa0\x80"}', b"[]"):
        path.write_bytes(content)
        with pytest.raises(CorruptFileError):
            PublishedResults.load(path)


def test_halves_of_characters_in_a_document(tmp_path: Path) -> None:
    """Written as the bytes that UTF-8 does not allow, they passed the parser and failed later."""
    folder = samples.write_files(tmp_path / "sae", samples.saelens())
    config = json.loads((folder / "cfg.json").read_text())
    config["metadata"]["\ud800"] = 1
    (folder / "cfg.json").write_bytes(json.dumps(config, ensure_ascii=False).encode(errors="surrogatepass"))
    with pytest.raises(UserError, match="JSON"):
        imported(folder)
    path = tmp_path / "status.json"
    path.write_bytes(sealed('{"id": "\ud800"}', f"{tmp_path.name}/status.json"))
    with pytest.raises(CorruptFileError):
        read_as(RunStatus, path)


def test_a_document_takes_no_more_memory_than_it_has_bytes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"{}\n")
    tracemalloc.start()
    try:
        assert disk.read(path, disk.LARGEST_CHAIN) == b"{}\n"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_model_of_nested_json(tmp_path: Path) -> None:
    folder = samples.write_files(tmp_path / "model", samples.mamba())
    (folder / "config.json").write_bytes(b'{"model_type": "mamba", "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    with pytest.raises(UserError):
        MambaLM.load(folder)


def test_a_tokenizer_whose_settings_fail_when_it_is_used(tmp_path: Path) -> None:
    from whence.models.pretrained import tokenizer_of

    folder = samples.write_files(tmp_path / "model", samples.transformers_models(tmp_path)["bert"])
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": "[PAD]"}))
    with pytest.raises(UserError, match="cannot be loaded"):
        tokenizer_of(str(folder))


def test_a_job_that_resumes_nothing(tmp_path: Path) -> None:
    from whence.app.jobs import Submission

    path = tmp_path / "job.json"
    body = {"request": {"kind": "resume", "runs": []}, "title": "", "link": {}, "exclusive": True}
    path.write_bytes(sealed(json.dumps(body), f"{tmp_path.name}/job.json"))
    with pytest.raises(CorruptFileError):
        read_as(Submission, path)


def test_an_analysis_of_a_run_whose_results_are_damaged(store: Store) -> None:
    from whence.fields.page import metrics_of
    from whence.fields.run import FieldsRun

    run = FieldsRun.read(samples.TINY_FIELD)
    with pytest.raises(UserError, match="not run"):
        metrics_of(run, store)
    execute(run, store, ExecutionOptions(threads=1, device="cpu"))
    assert metrics_of(run, store).test
    (store.folder(run.id).path / "metrics.jsonl").write_bytes(b"{}\n")
    with pytest.raises(UserError, match="runs verify"):
        metrics_of(run, store)


def test_collecting_from_a_task_that_prompts_for_its_answer(store: Store) -> None:
    """Its sequences are longer than those that it was trained at: flags and contexts were too short."""
    run = runs_of(ARENA.plan(ArenaConfig.read(samples.COMPARISON), store))[0]
    execute(run, store, ExecutionOptions(threads=1, device="cpu"))
    run_collect(CollectConfig(model=f"run:{run.id}", layer=1, tokens=200, name="some"), store, samples.print_nothing)
    collection = Collection.open(store, "some")
    assert collection.config.context_size == len(collection.flags) == collection.tokens.shape[1] > run.train_length
