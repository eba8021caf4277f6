"""Directories of models: configurations, weights and tokenizers, through everything that loads them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import torch

from tests.fuzz import guard, mutation, samples
from tests.fuzz.guard import Case, Run
from tests.fuzz.targets import target
from tests.fuzz.targets.documents import spoiled_tensors

CODE = b"open('/tmp/whence-fuzz-was-here', 'w').close()\nclass Model: pass\nclass Config: pass\n"
REMOTE = {"auto_map": {"AutoModel": "code.Model", "AutoConfig": "code.Config", "AutoTokenizer": ["code.Model", None]}}


def spoiled_directory(case: Case, files: samples.Files) -> Path:
    """One of its files, now and then two, changed; at times with code beside them, and with pickled weights."""
    random, valid, files = case.random, files, dict(files)
    for _ in range(random.choice((1, 1, 1, 2))):
        name = random.choice(sorted(files))
        kind = random.randrange(20)
        if kind == 0:
            del files[name]
            case.note(f"without {name}")
        elif kind == 1:
            files |= {"code.py": CODE, "pytorch_model.bin": b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR."}
            files["config.json"] = json.dumps({**json.loads(valid["config.json"]), **REMOTE}).encode()
        else:
            files[name] = _spoiled(random, name, files[name])
            case.note(f"{name}: {files[name][:2500]!r}")
    return samples.write_files(case.folder / "model", files)


def _spoiled(random: Random, name: str, data: bytes) -> bytes:
    if name.endswith(".safetensors"):
        return spoiled_tensors(random, data) if len(data) > 8 else mutation.spoil(random, data)
    try:
        return mutation.spoil_text(random, json.loads(data))
    except (ValueError, RecursionError):
        return mutation.spoil(random, data)


@target(cases=6_000)
def mamba(prepared: Path) -> Run:
    """Directories of Mamba language models, read by whence itself."""
    from whence.models.mamba_lm import MambaLM

    valid = samples.mamba()

    def run(case: Case) -> str:
        folder = spoiled_directory(case, valid)
        return guard.read(lambda: MambaLM.load(folder))

    return run


@target(cases=3_000)
def transformers(prepared: Path) -> Run:
    """Directories of transformers models: configuration, weights, tokenizer; an audit up to its first step."""
    from whence.leak.audit.pretrained import load, load_ids
    from whence.models.pretrained import model_of, tokenizer_of

    valid = list(samples.transformers_models(prepared / "models").values())
    ids = prepared / "ids.npy"
    np.save(ids, np.arange(5, 35).reshape(6, 5))
    text = " ".join(f"w{n % 35 + 5}" for n in range(1500))

    def run(case: Case) -> str:
        folder = spoiled_directory(case, case.random.choice(valid))
        kind = case.random.randrange(4)
        if kind == 0:
            return guard.read(lambda: tokenizer_of(str(folder)))
        if kind == 1:
            return guard.read(lambda: model_of(str(folder), head=case.random.random() < 0.5))
        if kind == 2:
            return guard.read(lambda: load_ids(str(folder), str(ids), case.random.choice((None, 4, 39, 10**9))))
        with torch.no_grad():
            return guard.read(lambda: load(str(folder), text, 6, case.random.choice((None, 12, 4096))))

    return run
