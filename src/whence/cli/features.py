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

COLLECT = """Collect activations of a model with their positions

Autoencoders are trained on stored activations. The forward pass ends at the requested layer.
Documents are concatenated into sequences of --context-size tokens. One document in ten is held out
for evaluation. Special tokens, the first position and attention sinks are excluded from training.

Examples:
  whence features collect --model minilm --layer 3 --tokens 500000      # packaged BERT, after 3 blocks
  whence features collect --model smollm2 --layer 15 --precision bf16   # packaged Llama, faster in bf16
  whence features collect --text book.txt --context-size 256 --name book   # your text, stored as 'book'
  whence features collect --model run:7c1e --layer 2 --tokens 50000     # a run of the arena, on its own task

Ctrl-C stops cleanly, and the same command resumes."""

TRAIN = """Train one sparse autoencoder on collected or synthetic activations

An autoencoder is composed of parts: centering, encoder, norm, mask, sparsity, losses,
position_schedule and init. A preset sets some of them; flags override it. It is evaluated on
activations of held-out documents. Synthetic activations have known features, so that their recovery
can be measured.

Examples:
  whence features train --preset plain_topk --data synthetic:regime=equal           # synthetic activations
  whence features train --preset position_mean_topk --activations minilm-3          # a preset, collected activations
  whence features train --mask gaussian:sigma=0.25 --sparsity topk:k=32 --activations minilm-3  # your own parts

Ctrl-C stops cleanly, and the same command resumes."""

COMPARE = """Compare presets of autoencoders on the same activations, at the same number of active features

All presets of a seed see the same activations. A sparsity penalty is adjusted to the requested
number of active features (L0), so that FVU is comparable. A mask makes features position-specific
by construction; position-specific features are therefore counted with the mask off. Every preset is
tested against the baseline position_mean_topk.

Examples:
  whence features compare --presets 001_run02_soft_mask plain_topk --seeds 3        # two presets, synthetic activations
  whence features compare --presets all --seeds 3 --activations minilm-3            # all presets, collected activations
  whence features compare --presets all --sparsity topk --controls --activations minilm-3
                                                # one sparsity for all, and controls without position

Ctrl-C stops cleanly, and the same command resumes."""

EVALUATE = """Evaluate an autoencoder, from a stored run or from SAELens, on held-out activations

Reports FVU, L0, dead features and position selectivity, as at the end of training.

Examples:
  whence features evaluate 3f2a --activations minilm-3-long      # a run, on another collection
  whence features evaluate my-sae --activations smollm2-15       # a directory in the format of SAELens 6

A directory contains cfg.json and sae_weights.safetensors, with a ReLU, top-k or JumpReLU
architecture. Positions beyond those of the training are treated as the nearest of them."""

PROBE = """Probe features of autoencoders for text labels and for word order (sparse probing)

A logistic regression is fitted on the few features that best separate two classes (the protocol of
SAEBench). Word order is probed on texts with equal tokens in a different order. Controls: raw
activations under the same rule, and random directions of the same number and sparsity.

Examples:
  whence features probe 7c1e 90ab                                # two runs on the same activations
  whence features probe 7c1e --sets 97_news_class --by-position  # one labelled set, by range of positions
  whence features probe 7c1e --train 1000 --test 500             # smaller and faster than SAEBench's 4000 and 1000

Activations of the labelled texts are computed once and stored."""

SPLICE = """Measure the cross-entropy recovered by reconstructions, and unlearning by clamped features

Recovered cross-entropy: activations are replaced by their reconstruction. 1 is the model itself; 0
is a model with zeros instead of activations or, more strictly, with the mean activation.
Unlearning: features that are active on text to be forgotten (code), but hardly ever on text to be
retained, are clamped. At least 99 % of correct predictions on text to be retained must stay
correct. Without an eligible feature there is no score.

Examples:
  whence features splice 7c1e 90ab                 # both evaluations, two runs
  whence features splice 7c1e --what recovered     # recovered cross-entropy only

Runs must be trained on activations of a causal language model (smollm2, or a directory)."""

SHOW = """Show the features of an autoencoder: mean activation by position, selectivity, activating text

Writes a page with heat maps of all features over positions, and with held-out text in which
selected features are most active. Values are measured on held-out activations, with the mask off:
under a mask, a feature is active at the positions that the mask admits, whatever it has learned.

Examples:
  whence features show 7c1e                        # a page among the reports of the store
  whence features show 7c1e --out features.html    # a page in this directory
  whence features show 7c1e --json                 # position-specific features, peaks and contexts as JSON"""

EXPORT = """Export an autoencoder in the format of SAELens: cfg.json and sae_weights.safetensors

Centering and scale are folded into the weights, so that the export takes activations as they are.
SAELens does not support position-dependent parts; an autoencoder with such a part is refused, and
the error names the part.

Examples:
  whence features export 3f2a --out my-sae                                     # load with SAE.load_from_disk("my-sae")
  whence features export 3f2a --out my-sae --hook blocks.14.hook_resid_post    # with the hook name of SAELens

'whence features evaluate my-sae' evaluates the export."""


class ActivationOptions(EngineOptions):
    """Where and how to run. These options do not change the id of a run."""

    activations: str = Field(
        default="",
        description="name of a collection ('whence features collect'); none: --data",
        json_schema_extra=metavar("NAME"),
    )


class CompareOptions(ActivationOptions, instrument.ComparisonOptions):
    """Where and how to run a comparison."""


class ExportOptions(StoreOptions):
    """The run to export, and the directory."""

    run: str = Field(
        description="first digits of the run's id ('whence runs list')", json_schema_extra=positional("RUN")
    )
    out: str = Field(
        default="",
        description="directory to write (required); an earlier export in it is replaced",
        json_schema_extra=metavar("DIR"),
    )
    hook: str = Field(
        default="",
        description="hook name of SAELens for the activations, e.g. blocks.14.hook_resid_post; none: not set",
        json_schema_extra=metavar("NAME"),
    )


def _on_activations(config: Any, options: ActivationOptions) -> Any:
    """The configuration with the collection that --activations names."""
    if not options.activations:
        return config
    from whence.features.activations.store import Collection
    from whence.features.data import DATA
    from whence.recordings import with_checksum

    if config.data != DATA.choose("synthetic"):
        raise UserError("activations: expected --activations or --data, got both. Pass one of them.")
    path = Collection.open(Store(options.store), options.activations).path
    return config.model_copy(update={"data": with_checksum(DATA.choose({"name": "stored", "path": str(path)}))})


def _print_run(run: FeaturesRun, store: Store) -> None:
    metrics = run.metrics_class().model_validate(store.folder(run.id).status().latest)
    if metrics.final:
        print_metrics(metrics.final, metrics.recovery)


def print_metrics(metrics: DictionaryMetrics, recovery: dict[str, RecoveryMetrics] | None = None) -> None:
    mask_off, retention = metrics.mask_off, metrics.mask_off.retention
    print_text(
        f"  FVU {metrics.fvu:.4f} with {metrics.l0:.1f} active features per activation (L0); {100 * metrics.dead:.1f} "
        f"% dead features; {metrics.activations:,} held-out activations"
    )
    masked = f" (mask off: FVU {mask_off.fvu:.4f}, L0 {mask_off.l0:.1f})" if retention else ""
    selectivity = mask_off.position_selectivity
    print_text(
        f"  position-specific: {selectivity.position_specific} of {selectivity.features} features; median position "
        f"selectivity {selectivity.median:.4f}{masked}"
    )
    if retention and retention.features:
        print_text(
            f"  retention (correlation of mask value and mean activation, mask off): median {retention.median:.2f}, by "
            f"chance {retention.chance:.2f}"
        )
    for kind, known in (recovery or {}).items():
        name = kind.replace("_", "-")
        above = f"{100 * known.recovered:.0f} % at 0.9 or more"
        print_text(f"  recovery of {name} features: mean cosine {known.matched:.3f}, {above}")


def _print_collection(artifact: Artifact[CollectRequest, CollectionRecord]) -> None:
    record = artifact.result
    print_text(
        f"{record.name}  {record.activations:,} training activations (d_in {record.d_in}), {record.held_out:,} held "
        f"out, {record.special:,} of special and first tokens"
    )


def _print_evaluation(artifact: Artifact[EvaluateRequest, EvaluateResult]) -> None:
    result = artifact.result
    print_text(f"d_sae {result.d_sae}, d_in {result.d_in}")
    print_metrics(result.metrics)


def _print_probes(artifact: Artifact[ProbeRequest, ProbeReport]) -> None:
    report = artifact.result
    for name, result in report.sets.items():
        _print_probe(name, result)
        for part in report.by_position[name].ranges if name in report.by_position else ():
            _print_probe(f"{name}, by position, {part.first}–{part.last}", part)
    for name, result in report.order.items():
        _print_probe(f"word order: {name}", result, f", bag of tokens {100 * result.bag:.1f}")


def _print_probe(name: str, result: ProbeResult, more: str = "") -> None:
    ks = list(result.raw.k)
    sides = {"raw activations": result.raw.k}
    for each, known in result.dictionaries.items():
        sides |= {each: known.k, f"{each}, random directions": known.control.k}
    rows = [[side, *(f"{100 * accuracies[k]:.1f}" for k in ks)] for side, accuracies in sides.items()]
    print_table(f"Probe accuracy (%): {name}", ["features of", *(f"k = {k}" for k in ks)], rows)
    print_text(f"  majority class {100 * result.majority:.1f}, all raw dimensions {100 * result.raw.all:.1f}{more}\n")


def _print_splices(artifact: Artifact[SpliceRequest, SpliceReport]) -> None:
    runs = artifact.result.runs
    entropies = [[name, *_recovered_cells(run.recovered)] for name, run in runs.items() if run.recovered]
    if entropies:
        columns = ["run", "original", "reconstruction", "mean activation", "zeros", "recovered", "recovered from mean"]
        print_table("Cross-entropy (nats per token) on held-out text", columns, entropies)
    forgotten = [[name, *_unlearning_cells(run.unlearning)] for name, run in runs.items() if run.unlearning]
    if forgotten:
        columns = ["run", "forgotten", "retained", "forgotten (validation)", "random features", "clamped"]
        title = "Unlearning: share of correct predictions that become wrong (forgotten) or stay correct (retained)"
        print_table(title, columns, forgotten)


def _recovered_cells(r: Recovered) -> list[str]:
    shares = [f"{100 * share:.1f} %" if share is not None else "–" for share in (r.recovered, r.recovered_from_mean)]
    return [*(f"{entropy:.3f}" for entropy in (r.clean, r.spliced, r.mean, r.zero)), *shares]


def _unlearning_cells(u: UnlearningResult) -> list[str]:
    score = u.score
    if score is None:
        return [u.outcome, "–", "–", "–", u.reason]
    retained = f"{score.test.retained:.3f}" + ("" if score.retains_enough else " (below 0.99)")
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

    with progress_line("Loading") as on_progress:
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
        raise UserError("out: expected a directory, got none. Pass --out DIR.")
    model, run = load_autoencoder(options.open_store(), options.run)
    config = export(model, run, Path(options.out), options.hook)
    if options.json_:
        print_json({"run": run.id, "path": options.out, **config.document()})
    else:
        print_text(f"{run.id}  {config.architecture}, d_sae {config.d_sae}, d_in {config.d_in}  {options.out}")
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
