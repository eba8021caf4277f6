"""`whence features …`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from whence.cli import instrument
from whence.cli.options import EngineOptions, Invocation, StoreOptions, Verb
from whence.cli.output import print_json, print_table, print_text
from whence.cli.progress import progress_line
from whence.cli.report import report_verb
from whence.errors import UserError
from whence.experiments.options import metavar, positional
from whence.store.runs import Store

if TYPE_CHECKING:
    from whence.features.actions import (
        CollectRequest,
        EvaluateRequest,
        EvaluateResult,
        ProbeReport,
        ProbeRequest,
        SpliceReport,
        SpliceRequest,
    )
    from whence.features.activations.store import CollectionRecord
    from whence.features.evals.probing import ProbeResult
    from whence.features.evals.splice import Recovered
    from whence.features.evals.unlearning import UnlearningResult
    from whence.features.metrics import DictionaryMetrics, RecoveryMetrics
    from whence.features.run import FeaturesRun
    from whence.store.artifacts import Artifact

COLLECT = """Collect activations with their positions. Ctrl-C stops cleanly, and the same command resumes.

  whence features collect --model minilm --layer 3 --tokens 500000
  whence features collect --model smollm2 --layer 15 --precision bf16 --name smollm2-middle
  whence features collect --text book.txt --context-size 256 --name book
  whence features collect --model run:7c1e --layer 2 --tokens 50000        a run of the arena, on its own task

The forward pass ends at the layer. Documents follow each other in sequences of --context-size tokens; one document in
ten is held out, and makes sequences of its own. Special tokens and the first position are flagged, and left out of
training."""

TRAIN = """Train one sparse autoencoder on collected activations, or on synthetic ones, whose features are known.

  whence features train --preset position_mean_topk --activations minilm-3
  whence features train --mask gaussian:sigma=0.25 --sparsity topk:k=32 --activations minilm-3
  whence features train --preset plain_topk --data synthetic:regime=equal

An autoencoder is a composition: centering, encoder, norm, mask, sparsity, losses, position_schedule, init. It is
evaluated on activations of held-out documents. Ctrl-C stops cleanly, and the same command resumes."""

COMPARE = """Compare presets on the same activations, at the same number of active features, over paired seeds.

  whence features compare --presets 001_run02_soft_mask plain_topk --seeds 3
  whence features compare --presets all --seeds 3 --activations minilm-3
  whence features compare --presets all --sparsity topk --controls --activations minilm-3

A penalty is steered to the requested number of active features; a top-k has it anyway. A mask makes features
position-specific by construction, so that they are counted with the mask off. Every preset is compared with
position_mean_topk, the baseline. Ctrl-C stops cleanly, and the same command resumes."""

EVALUATE = """Evaluate an autoencoder on held-out activations: one trained here, or a directory of SAELens.

  whence features evaluate 3f2a --activations minilm-3-long
  whence features evaluate my-sae --activations smollm2-15

A directory holds cfg.json and sae_weights.safetensors, as SAELens 6 and 'whence features export' write them; ReLU,
top-k and JumpReLU are read. Positions beyond those that a run was trained on count as the nearest of them."""

PROBE = """Probe few features of trained dictionaries for labels, and for the order of words.

  whence features probe 7c1e 90ab                          two runs on the same activations, side by side
  whence features probe 7c1e --sets 97_news_class --by-position
  whence features probe 7c1e --train 1000 --test 500       quicker than 4000 and 1000, which is SAEBench's protocol

Beside each: the raw activations under the same rule, and random directions of the same number and sparsity. The
activations of labelled texts are computed once, and kept in the store."""

SPLICE = """Replace activations of a language model by reconstructions, and clamp features to make it forget.

  whence features splice 7c1e 90ab                         cross-entropy recovered, and unlearning
  whence features splice 7c1e --what recovered

The runs must be on activations of a causal model (smollm2, or a directory). Recovered: 1 is the model itself, 0 a model
whose activations are zeros (and, stricter, the mean activation). Unlearning: of the features that hardly ever fire on
text to be retained, those that fire most on text to be forgotten (code) are clamped; at least 99 % of what the model
gets right on the other text must stay right. Where no feature is eligible, there is no score."""

SHOW = """Show the features of a trained autoencoder: mean activation by position, selectivity, activating text.

  whence features show 7c1e                           a page among the reports of the store
  whence features show 7c1e --out features.html       the same page elsewhere
  whence features show 7c1e --json                    numbers: position-specific features, their peaks, contexts

Everything is measured on activations of held-out documents, with the mask and with the mask off: under a mask, a
feature is active at its positions whatever it has learned."""

EXPORT = """Write a trained autoencoder in the format of SAELens: cfg.json and sae_weights.safetensors.

  whence features export 3f2a --out my-sae
  whence features export 3f2a --out my-sae --hook blocks.14.hook_resid_post

SAELens then loads it with SAE.load_from_disk("my-sae"). It takes activations as they are: centering and scale are
folded into the weights. SAELens knows no positions, so that an autoencoder which does is refused, with the part that
depends on them; 'whence features evaluate my-sae' reads it back."""


class ActivationOptions(EngineOptions):
    """Where and how to run: none of this changes what a run is."""

    activations: str = Field(
        default="", description="name of a collection; none: what --data says", json_schema_extra=metavar("NAME")
    )


class CompareOptions(ActivationOptions, instrument.ComparisonOptions):
    """Where and how to run a comparison."""


class ExportOptions(StoreOptions):
    """Which run, and where it goes."""

    run: str = Field(
        description="first digits of the run's id ('whence runs list')", json_schema_extra=positional("RUN")
    )
    out: str = Field(
        default="", description="directory to write; an earlier export is replaced", json_schema_extra=metavar("DIR")
    )
    hook: str = Field(
        default="",
        description="SAELens' name of the place in the model; none: left open",
        json_schema_extra=metavar("NAME"),
    )


def _on_activations(config: Any, options: ActivationOptions) -> Any:
    """With what --activations stands for."""
    if not options.activations:
        return config
    from whence.features.activations.store import Collection
    from whence.features.data import DATA
    from whence.recordings import with_checksum

    if config.data != DATA.choose("synthetic"):
        raise UserError("activations: --data was given, too. Allowed: one of them.")
    path = Collection.open(Store(options.store), options.activations).path
    return config.model_copy(update={"data": with_checksum(DATA.choose({"name": "stored", "path": str(path)}))})


def _print_run(run: FeaturesRun, store: Store) -> None:
    metrics = run.metrics_class().model_validate(store.folder(run.id).status().latest)
    if metrics.final:
        print_metrics(metrics.final, metrics.recovery)


def print_metrics(metrics: DictionaryMetrics, recovery: dict[str, RecoveryMetrics] | None = None) -> None:
    mask_off, retention = metrics.mask_off, metrics.mask_off.retention
    print_text(
        f"  FVU {metrics.fvu:.4f} with {metrics.l0:.1f} active features; {100 * metrics.dead:.1f} % never active on "
        f"{metrics.activations:,} activations of held-out documents"
    )
    masked = f" (mask off: FVU {mask_off.fvu:.4f}, {mask_off.l0:.1f} active)" if retention else ""
    selectivity = mask_off.position_selectivity
    print_text(
        f"  position-specific: {selectivity.position_specific} of {selectivity.features} features; median position "
        f"selectivity {selectivity.median:.4f}{masked}"
    )
    if retention and retention.features:
        print_text(
            f"  retention (correlation of mask and mean activation, mask off): median {retention.median:.2f}; "
            f"with masks of other features {retention.chance:.2f}"
        )
    for kind, known in (recovery or {}).items():
        name = kind.replace("_", "-")
        print_text(f"  {name} features recovered: cosine {known.matched:.3f}, {100 * known.recovered:.0f} % above .9")


def _print_collection(artifact: Artifact[CollectRequest, CollectionRecord]) -> None:
    record = artifact.result
    print_text(
        f"{record.name}  {record.activations:,} activations of {record.d_in} numbers, {record.held_out:,} more held "
        f"out, {record.special:,} of special and first tokens beside"
    )


def _print_evaluation(artifact: Artifact[EvaluateRequest, EvaluateResult]) -> None:
    result = artifact.result
    print_text(f"{result.d_sae} features of {result.d_in} numbers")
    print_metrics(result.metrics)


def _print_probes(artifact: Artifact[ProbeRequest, ProbeReport]) -> None:
    report = artifact.result
    for name, result in report.sets.items():
        _print_probe(name, result)
        for part in report.by_position[name].ranges if name in report.by_position else ():
            _print_probe(f"{name}, by position, {part.first}–{part.last}", part)
    for name, result in report.order.items():
        _print_probe(f"order: {name}", result, f", a bag of tokens {100 * result.bag:.1f}")


def _print_probe(name: str, result: ProbeResult, more: str = "") -> None:
    ks = list(result.raw.k)
    sides = {"raw activations": result.raw.k}
    for each, known in result.dictionaries.items():
        sides |= {each: known.k, f"{each}, control": known.control.k}
    rows = [[side, *(f"{100 * accuracies[k]:.1f}" for k in ks)] for side, accuracies in sides.items()]
    print_table(f"Accuracy (%) of {name}", ["from", *(f"{k} features" for k in ks)], rows)
    print_text(f"  majority {100 * result.majority:.1f}, all raw numbers {100 * result.raw.all:.1f}{more}\n")


def _print_splices(artifact: Artifact[SpliceRequest, SpliceReport]) -> None:
    runs = artifact.result.runs
    entropies = [[name, *_recovered_cells(run.recovered)] for name, run in runs.items() if run.recovered]
    if entropies:
        columns = ["run", "clean", "spliced", "mean activation", "zeros", "recovered", "against the mean"]
        print_table("Cross-entropy (nats per token) on held-out text", columns, entropies)
    forgotten = [[name, *_unlearning_cells(run.unlearning)] for name, run in runs.items() if run.unlearning]
    if forgotten:
        columns = ["run", "forgotten", "retained", "on validation", "as many random features", "clamped"]
        print_table("Unlearning: share of right next tokens that become wrong", columns, forgotten)


def _recovered_cells(r: Recovered) -> list[str]:
    shares = [f"{100 * share:.1f} %" if share is not None else "–" for share in (r.recovered, r.recovered_from_mean)]
    return [*(f"{entropy:.3f}" for entropy in (r.clean, r.spliced, r.mean, r.zero)), *shares]


def _unlearning_cells(u: UnlearningResult) -> list[str]:
    score = u.score
    if score is None:
        return [u.outcome, "–", "–", "–", u.reason]
    retained = f"{score.test.retained:.3f}" + ("" if score.retains_enough else " (too little)")
    random = f"{score.random.forgotten:.3f} · {score.random.retained:.3f}"
    clamped = f"{len(score.features)} features × {score.setting.multiplier:g}"
    return [f"{score.test.forgotten:.3f}", retained, f"{score.setting.forgotten:.3f}", random, clamped]


def _show(invocation: Invocation) -> int:
    from whence.features.actions import run_show
    from whence.features.config import ShowConfig
    from whence.features.page import profile_findings, run_page
    from whence.features.run import load_autoencoder

    options = invocation.options(instrument.ShowOptions)
    store = options.open_store()

    def page(run: FeaturesRun, store: Store, command: str, on_progress: Any) -> bytes:
        return run_page(run, profiles, store.folder(run.id).metrics(), command)

    with progress_line("loading") as on_progress:
        _, run = load_autoencoder(store, options.run)
        profiles = run_show(ShowConfig(run=run.id), store, on_progress).result
        report = instrument.write_page(run, store, invocation, page, on_progress, options.out)
    if options.json_:
        print_json({"run": run.id, **profiles.summary(), "report": str(report), "command": invocation.command})
        return 0
    for line in profile_findings(profiles):
        print_text(f"  {line}")
    print_text(f"report  {report}")
    return 0


def _export(invocation: Invocation) -> int:
    from whence.features.run import load_autoencoder
    from whence.features.sae.saelens import export

    options = invocation.options(ExportOptions)
    if not options.out:
        raise UserError("out: no directory is named. Allowed: --out DIR.")
    model, run = load_autoencoder(options.open_store(), options.run)
    config = export(model, run, Path(options.out), options.hook)
    if options.json_:
        print_json({"run": run.id, "path": options.out, **config.document()})
    else:
        print_text(f"{run.id}  {config.architecture}, {config.d_sae} features of {config.d_in} numbers  {options.out}")
    return 0


VERBS = {
    "collect": instrument.action("features", "collect", COLLECT, _print_collection),
    "presets": instrument.presets("features"),
    "train": instrument.train("features", TRAIN, ActivationOptions, _on_activations, _print_run),
    "compare": instrument.compare("features", COMPARE, CompareOptions, _on_activations),
    "evaluate": instrument.action("features", "evaluate", EVALUATE, _print_evaluation),
    "probe": instrument.action("features", "probe", PROBE, _print_probes),
    "splice": instrument.action("features", "splice", SPLICE, _print_splices),
    "show": Verb(SHOW, _show),
    "export": Verb(EXPORT, _export),
    "report": report_verb("features"),
}
