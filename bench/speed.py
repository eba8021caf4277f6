"""The tables of docs/speed.md, from bench/results.json (`make bench`): `make publish`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results.json"


def speed() -> str:
    results = json.loads(RESULTS.read_text())
    parts = [_scan(results["scan"]), _loop(results["loop"]), _features(results["features_step"])]
    parts += [_fields(results["fields_encoder"]), _rest(results)]
    return "\n\n".join(parts) + "\n"


def _scan(scan: dict[str, Any]) -> str:
    lines = [
        "## Selective scan (Mamba)",
        "",
        f"Forward and backward in float32, N = {scan['N']}, best of {scan['rounds']} interleaved rounds. Outputs and "
        "gradients are checked for equality first. Peers: mambapy, two loops over time steps, transformers' slow path.",
        "",
        "| batch × length × channels | whence | fastest peer | speed-up | speed-up, freed memory kept "
        "| extra memory, mambapy / whence | BiMamba block, mambapy / whence |",
        "|---|---|---|---|---|---|---|",
    ]
    for shape, known in scan["scan"].items():
        both, kept = known["forward+backward"], scan["memory_kept"]["scan"][shape]["forward+backward"]
        lines.append(
            f"| {shape.replace('×', ' × ')} | {both['ms']['whence']:.1f} ms | {both['fastest_peer']} "
            f"| {both['whence_is_faster_by']:.1f}× | {kept['whence_is_faster_by']:.1f}× "
            f"| {scan['memory'][shape]['mambapy_over_whence']:.0f}× "
            f"| {scan['block'][shape]['forward+backward']['whence_is_faster_by']:.1f}× |"
        )
    forward = [known["forward"]["whence_is_faster_by"] for known in scan["scan"].values()]
    length = scan["length"]
    lines += [
        "",
        "*Freed memory kept* sets the C library so that peers do not request fresh memory for every call.",
        "",
        f"- Forward alone is {min(forward):.1f} to {max(forward):.1f} times as fast as the fastest peer.",
        f"- Two threads are {scan['two_threads']['two_are_faster_by']:.2f} times as fast as one.",
        f"- The first use takes {scan['compilation']['compile_s']:.1f} s to compile, later processes "
        f"{scan['compilation']['load_s']:.1f} s to load.",
        f"- Time per token from 1,024 to 65,536 tokens is the same within {100 * length['spread']:.1f} %.",
        f"- The scan is faster than causal attention of the same width from {length['crossing']:.0f} tokens on, a "
        f"whole Mamba mixer than a whole attention mixer from {length['mixers_crossing']:.0f}.",
        "",
        "![Time per token against length](scan.svg)",
        "",
        _measured("scan", scan),
    ]
    return "\n".join(lines)


def _loop(loop: dict[str, Any]) -> str:
    lines = [
        "## Training loop",
        "",
        f"Tokens per second of the same model and batch, {loop['threads']} threads.",
        "",
        "| dropout | whence | x-transformers | x-transformers, flash |",
        "|---|---|---|---|",
    ]
    for name, known in loop.items():
        if name.startswith("dropout"):
            rates = known["tokens_per_second"]
            cells = " | ".join(f"{rates[peer]:,.0f}" for peer in ("whence", "x-transformers", "x-transformers flash"))
            lines.append(f"| {name.removeprefix('dropout ')} | {cells} |")
    return "\n".join([*lines, "", _measured("loop", loop)])


def _features(step: dict[str, Any]) -> str:
    peers = ["whence", "SAELens", "SAELens, sparse", "dictionary_learning", "sparsify"]
    lines = [
        "## Training step of a sparse autoencoder",
        "",
        f"TopK with k = {step['k']}, activations of {step['width']} dimensions, batch {step['batch']}; milliseconds "
        "of processor time (wall-clock time in parentheses).",
        "",
        f"| features | {' | '.join(peers)} |",
        f"|---|{'---|' * len(peers)}",
    ]
    for size, known in step["size"].items():
        cells = " | ".join(f"{known['cpu_ms'][peer]:,.0f} ({known['wall_ms'][peer]:,.0f})" for peer in peers)
        lines.append(f"| {int(size):,} | {cells} |")
    return "\n".join([*lines, "", _measured("features", step)])


def _fields(fields: dict[str, Any]) -> str:
    lines = [
        "## Encoder of a field",
        "",
        "Milliseconds and MiB to encode on one thread. Bidirectional Mamba is faster than a Transformer of the same "
        f"size from {fields['faster_from']:.0f} tokens on.",
        "",
        "| tokens | Mamba | Transformer | Mamba, memory | Transformer, memory |",
        "|---|---|---|---|---|",
    ]
    for tokens in fields["ms"]["bimamba"]:
        ms = " | ".join(f"{fields['ms'][kind][tokens]:,.0f} ms" for kind in ("bimamba", "Transformer"))
        mib = " | ".join(f"{fields['mib'][kind][tokens]:.0f} MiB" for kind in ("bimamba", "Transformer"))
        lines.append(f"| {int(tokens):,} | {ms} | {mib} |")
    lines += ["", "![Encoding time against tokens](fields-encoder.svg)", "", _measured("fields", fields)]
    return "\n".join(lines)


def _rest(results: dict[str, Any]) -> str:
    arena, store, app = results["arena"], results["store"], results["app"]
    defaults = arena["defaults"]
    return "\n".join(
        [
            "## Comparisons, store and app",
            "",
            "| what | time | command |",
            "|---|---|---|",
            f"| `whence arena compare` with its defaults, {defaults['runs']} runs | {defaults['seconds'] / 60:.1f} min "
            "| `python bench/arena.py` |",
            f"| two workers over one | {arena['workers']['ratio']:.2f}× | `python bench/arena.py` |",
            f"| `whence --help` | {1000 * store['help_s']:.0f} ms | `python bench/store.py` |",
            f"| `whence runs list` with {store['runs']:,} runs | {store['list_s']:.1f} s | `python bench/store.py` |",
            f"| first page of the app with {app['runs']:,} runs | {app['first_page_s']['command']['median']:.1f} s "
            "| `python bench/app.py` |",
            "",
            f"Measured on {arena['machine']}.",
        ]
    )


def _measured(script: str, results: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return f"Measured {results['measured']} by `python bench/{script}.py` on {results['machine']} ({versions})."
