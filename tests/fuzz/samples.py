"""Valid inputs to begin with: stores, model directories, pictures, arrays. The same bytes on every call."""

from __future__ import annotations

import io
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save

from tests.app.fields import TINY as TINY_FIELD
from whence.app.jobs import CompareRequest, JobEnd, JobStart, ResumeRequest, Submission, job_id
from whence.arena.config import ArenaConfig
from whence.arena.run import ArenaRun
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.experiments.comparison import read_comparison, runs_of
from whence.experiments.saved import save_config
from whence.store import disk
from whence.store.records import write_as
from whence.store.runs import Store
from whence.training.config import AnyRun, load_run_config

CLOCK = 1_700_000_000.0
COMPARISON: dict[str, Any] = {
    "tasks": ["copy"],  # whose shortcut baselines are packaged
    "encodings": ["rope", "none"],
    "model": {"d_model": 16, "heads": 2, "layers": 1},
    "lengths": {"train_length": 16, "test_lengths": [32], "test_sequences": 16},
    "training": {"steps": 2, "batch_size": 4, "evaluations": 1, "warmup": 0},
    "seeds": 1,
}
OTHER_RUNS: tuple[dict[str, Any], ...] = (
    {
        "kind": "leak",
        "data": "synthetic:steps=48,channels=2",
        "model": {"d_model": 8},
        "masking": {"test_rows": 8},
        "training": {"steps": 2, "batch_size": 4, "evaluations": 1},
    },
    {
        "kind": "features",
        "data": "synthetic:d_in=16,features=24,context_size=8",
        "model": {"d_sae": 32},
        "training": {"steps": 2, "batch_size": 8, "evaluations": 1},
    },
    {"kind": "fields", **TINY_FIELD},
)
"""One of each other instrument"""


def small_store(root: Path) -> Store:
    """Of everything that needs one instrument alone: runs that finished and one that did not, a comparison with its
    page and the record that it was shown, jobs, artifacts, the index."""
    store = Store(root)
    with _fixed_clock():
        store.prepare()
        config = ArenaConfig.read(COMPARISON)
        from whence.arena.instrument import ARENA

        runs = runs_of(ARENA.plan(config, store))
        for run in runs:
            _execute(run, store)
        unfinished = runs[0].model_copy(update={"seed": 7})
        stops = iter((False, True))
        execute(unfinished, store, ExecutionOptions(threads=1, device="cpu"), should_stop=lambda: next(stops, True))
        path = save_config("arena", config, store)
        read_comparison(ARENA, config, store)
        request = CompareRequest(instrument="arena", config=config.model_dump(mode="json"))
        _job(store, Submission(request=request, title="a title", link={"comparison": path.stem}, exclusive=True))
        resume = ResumeRequest(runs=(unfinished.id,))
        _job(store, Submission(request=resume, title="resumed", link={}, exclusive=True), state="failed")
        _collected(runs[0], store)
        store.summaries()
    return store


def full_store(root: Path) -> Store:
    """The same, and a run of every other instrument with what is measured of it."""
    store = small_store(root)
    with _fixed_clock():
        for document in OTHER_RUNS:
            run = load_run_config(document)
            _execute(run, store)
            _measured(run, store)
        store.summaries()
    return store


def _execute(run: AnyRun, store: Store) -> None:
    status = execute(run, store, ExecutionOptions(threads=1, device="cpu"))
    assert status.state == "finished", status.reason


def _measured(run: AnyRun, store: Store) -> None:
    """What the pages of a run are made of."""
    from whence.features.actions import run_show
    from whence.features.config import ShowConfig
    from whence.fields.analysis import ANALYSES
    from whence.fields.config import AnalyzeConfig
    from whence.fields.instrument import analyze_run
    from whence.leak.audit.artifact import run_audit
    from whence.leak.config import AuditConfig

    assert ANALYSES
    match run.kind:
        case "leak":
            run_audit(AuditConfig(run=run.id, ratios=(0.5,)), store, print_nothing)
        case "features":
            run_show(ShowConfig(run=run.id), store, print_nothing)
        case "fields":
            analyze_run(AnalyzeConfig(run=run.id), store, print_nothing)


def print_nothing(message: str) -> None:
    pass


def _collected(run: ArenaRun, store: Store) -> None:
    from whence.features.actions import run_collect
    from whence.features.config import CollectConfig

    run_collect(CollectConfig(model=f"run:{run.id}", layer=1, tokens=200, name="collected"), store, print_nothing)


def _job(store: Store, submission: Submission, state: str = "finished") -> None:
    folder = store.root / "jobs" / job_id(submission.request)
    disk.make_directory(folder)
    write_as(folder / "job.json", submission)
    write_as(folder / "started.json", JobStart(process=2**22 + 1, time=CLOCK, begun=CLOCK))
    write_as(folder / "end.json", JobEnd.model_validate({"state": state, "time": CLOCK}))
    disk.write_atomically(folder / "progress.txt", b"one step\nanother step\n")


def _fixed_clock() -> ExitStack:
    """The bytes of a store depend on nothing else."""
    stack = ExitStack()
    for name in ("time", "perf_counter", "monotonic"):
        stack.enter_context(mock.patch(f"time.{name}", return_value=CLOCK))
    return stack


# --- files of a user


def pictures() -> dict[str, bytes]:
    """By name, of every format that is read, in the modes that are decoded differently."""
    y, x = np.mgrid[:20, :24]
    waves = (127.5 * (1 + np.stack([np.sin(x / 3 + y / 7), np.cos(x / 5 - y / 4), np.sin(x * y / 200)], -1))).astype(
        "u1"
    )
    colour = Image.fromarray(waves)
    deep = Image.fromarray(waves[..., 0].astype(np.uint16) * 257)
    numbers = Image.fromarray(waves[..., 0].astype(np.float32) / 255)
    turned = Image.Exif()
    turned[0x0112] = 6
    clear = colour.convert("RGBA")
    clear.putalpha(90)
    made = {
        "colour.png": _saved(colour, "PNG"),
        "clear.png": _saved(clear, "PNG"),
        "palette.png": _saved(colour.convert("P"), "PNG", transparency=3),
        "deep.png": _saved(deep, "PNG"),
        "bits.png": _saved(colour.convert("1"), "PNG"),
        "frames.png": _saved(colour, "PNG", save_all=True, append_images=[colour.rotate(90)]),
        "colour.jpg": _saved(colour, "JPEG", exif=turned),
        "progressive.jpg": _saved(colour, "JPEG", progressive=True),
        "print.jpg": _saved(colour.convert("CMYK"), "JPEG"),
        "colour.webp": _saved(clear, "WEBP"),
        "frames.webp": _saved(colour, "WEBP", save_all=True, append_images=[colour.rotate(90)]),
        "frames.gif": _saved(colour, "GIF", save_all=True, append_images=[colour.rotate(90)]),
        "colour.bmp": _saved(colour, "BMP"),
        "palette.bmp": _saved(colour.convert("P"), "BMP"),
        "deep.tif": _saved(deep, "TIFF"),
        "numbers.tif": _saved(numbers, "TIFF"),
        "colour.ppm": _saved(colour, "PPM"),
        "bits.pbm": _saved(colour.convert("1"), "PPM"),
    }
    for kind in ("raw", "tiff_lzw", "tiff_deflate", "packbits", "jpeg", "group4"):
        image = colour.convert("1") if kind == "group4" else colour
        made[f"{kind}.tif"] = _saved(image, "TIFF", compression=kind)
    return made


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def arrays() -> dict[str, bytes]:
    """.npy files, by what they hold."""
    random = np.random.default_rng(0)
    values = {
        "series": random.standard_normal((400, 3)).astype(np.float32),
        "recordings": random.standard_normal((8, 80, 2)),
        "signals": random.standard_normal((6, 64)).astype(np.float16),
        "images": random.integers(0, 255, (6, 32, 32, 3), dtype=np.uint8),
        "volumes": random.standard_normal((6, 16, 16, 16)).astype(np.float32),
        "ids": random.integers(0, 90, (6, 12)),
        "fortran": np.asfortranarray(random.standard_normal((400, 3))),
        "complex": random.standard_normal((40, 3)) + 1j,
    }
    files = {}
    for name, array in values.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        files[name] = buffer.getvalue()
    return files


def tensors(shapes: dict[str, tuple[int, ...]], metadata: dict[str, str] | None = None) -> bytes:
    """A file of safetensors."""
    generator = torch.Generator().manual_seed(0)
    return save({name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}, metadata)


Files = dict[str, bytes]
"""Of a directory, by name"""


def saelens() -> Files:
    """An autoencoder as SAELens stores it."""
    config = {"architecture": "topk", "d_in": 6, "d_sae": 8, "k": 2, "dtype": "float32", "device": "cpu"}
    config |= {"apply_b_dec_to_input": True, "normalize_activations": "none", "reshape_activations": "none"}
    config |= {"metadata": {"sae_lens_version": "6.54.12", "context_size": 16}}
    weights = {"W_enc": (6, 8), "b_enc": (8,), "W_dec": (8, 6), "b_dec": (6,)}
    return {"cfg.json": json.dumps(config).encode(), "sae_weights.safetensors": tensors(weights)}


def mamba() -> Files:
    """A language model as `MambaLM` reads it."""
    from whence.models.mamba_lm import MambaLM

    model = MambaLM(20, 8, 2, d_state=4, expand=2, d_conv=4, dt_rank=2)
    config = {"model_type": "mamba", "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "state_size": 4}
    config |= {"expand": 2, "conv_kernel": 4, "time_step_rank": 2, "tie_word_embeddings": True, "hidden_act": "silu"}
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    return {"config.json": json.dumps(config).encode(), "model.safetensors": tensors(shapes)}


def transformers_models(folder: Path) -> dict[str, Files]:
    """Directories as transformers saves them: encoder and decoder, in one file and in shards, with tokenizer."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, **{f"w{n}": n for n in range(5, 40)}}
    plain = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    named = {f"{name}_token": token for name, token in special.items()}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, **named)
    shape: dict[str, Any] = {
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    shape |= {"vocab_size": 40, "max_position_embeddings": 32}
    torch.manual_seed(0)
    made = {
        "bert": (transformers.BertModel(transformers.BertConfig(**shape)), "50GB"),
        "llama": (transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)), "5KB"),
    }
    directories: dict[str, Files] = {}
    for name, (model, shard) in made.items():
        model.save_pretrained(folder / name, max_shard_size=shard)
        tokenizer.save_pretrained(folder / name)
        directories[name] = {path.name: path.read_bytes() for path in sorted((folder / name).iterdir())}
    return directories


def write_files(folder: Path, files: Files) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder
