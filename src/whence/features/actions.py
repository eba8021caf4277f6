"""Actions: measurements on request, outside of comparisons. Each takes a configuration and returns a stored artifact.

The command line and the app's jobs call the same actions. Stored results are not measured again.
"""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from whence.config import Config
from whence.errors import UserError
from whence.experiments.instrument import Action, OnProgress
from whence.features.activations.collect import collect
from whence.features.activations.labelled import DEFAULT_SETS, labelled_activations
from whence.features.activations.sources import RUN
from whence.features.activations.store import ActivationSite, Collection, CollectionRecord, folder
from whence.features.activations.text import checksum, packaged_texts
from whence.features.config import (
    CollectConfig,
    EvaluateConfig,
    ProbeConfig,
    ShowConfig,
    SpliceConfig,
)
from whence.features.data import StoredActivations
from whence.features.evals.measures import dictionary_metrics, seed_stability
from whence.features.evals.order_probing import OrderProbe, order_activations, probe_order
from whence.features.evals.probing import ProbeByPosition, SetProbe, probe, probe_by_position
from whence.features.evals.profiles import FeatureProfiles, feature_profiles
from whence.features.evals.splice import Recovered, SplitModel, held_out_text, recovered
from whence.features.evals.unlearning import Corpora, UnlearningResult, UnlearningSettings, unlearning
from whence.features.metrics import DictionaryMetrics
from whence.features.run import load_autoencoder
from whence.features.sae.autoencoder import Autoencoder
from whence.features.sae.dictionary import check_fits
from whence.features.sae.saelens import imported, imported_checksum
from whence.models.pretrained import content_of
from whence.store.artifacts import Artifact, ArtifactKind
from whence.store.runs import Store

# --- collect


class CollectRequest(CollectConfig):
    """The configuration, with checksums of text and weights."""

    text_checksum: str
    weights: str


COLLECTED = ArtifactKind("collection", CollectRequest, CollectionRecord)


def run_collect(
    config: CollectConfig, store: Store, on_progress: OnProgress
) -> Artifact[CollectRequest, CollectionRecord]:
    """Collect activations and store a record of them. Activations that were removed since are collected again."""
    if config.model.startswith(RUN):
        run = store.find(config.model.removeprefix(RUN)).id
        config = config.model_copy(update={"model": f"{RUN}{run}", "text": ""})
        text, weights = "", run
    else:
        text, weights = checksum(config.text), content_of(config.model)
    request = CollectRequest(**config.model_dump(), text_checksum=text, weights=weights)
    artifact = COLLECTED.find(request, store)
    with suppress(UserError):
        if artifact and (collection := Collection.open(store, artifact.result.name)):
            collection.check()
            if collection.checksum == artifact.result.checksum:
                return artifact
    store.prepare()
    on_progress("Loading the model and the text")
    collection = collect(config, store, lambda done, parts: on_progress(f"Collected {done} of {parts} parts"))
    return COLLECTED.save(request, collection.record(), store)


def repair_collection(name: str, store: Store, on_progress: OnProgress) -> None:
    """Collect damaged or missing activations again. Raises `UserError` where that is not possible."""
    run_collect(_collected(name, store), store, on_progress)


def _collected(name: str, store: Store) -> CollectConfig:
    """The configuration of a collection, from the collection itself or from its record."""
    try:
        config = Collection.begun(folder(store, name)).config
    except UserError:
        records = (artifact for artifact in COLLECTED.all(store) if artifact.result.name == name)
        if record := next(records, None):
            own = {field: getattr(record.request, field) for field in CollectConfig.model_fields}
            return CollectConfig(**{**own, "name": name})
        raise UserError(
            f"name: the store has no record of what {name!r} was collected from. Repeat the original command."
        ) from None
    if config.site is None:
        raise UserError(f"name: {name!r} was collected by a Python program. Repeat its call of collect_from().")
    own = {field: config.about[field] for field in ("tokens", "batch_size") if field in config.about}
    return CollectConfig.read({**config.site.model_dump(), **own, "text": config.text, "name": name})


# --- evaluate


class EvaluateRequest(Config):
    """A dictionary by the id of its run or by its checksum, and activations by their checksum."""

    run: str
    dictionary: str
    activations: str
    """Empty for those that the run was trained on"""


class EvaluateResult(Config):
    """Metrics on held-out activations."""

    d_in: int
    d_sae: int
    metrics: DictionaryMetrics


EVALUATIONS = ArtifactKind("evaluation", EvaluateRequest, EvaluateResult)


def run_evaluate(
    config: EvaluateConfig, store: Store, on_progress: OnProgress
) -> Artifact[EvaluateRequest, EvaluateResult]:
    if not config.target:
        raise UserError(
            "target: expected a run or a directory in the format of SAELens, got none. Pass one, e.g. 'whence features "
            "evaluate 3f2a'."
        )
    collection = Collection.open(store, config.activations) if config.activations else None
    stored = StoredActivations(path=str(collection.path)) if collection else None
    folder = Path(config.target) if os.path.isdir(config.target) else None
    if folder and stored is None:
        raise UserError(f"activations: {config.target!r} is a directory, which requires --activations NAME.")
    request = EvaluateRequest(
        run="" if folder else store.find(config.target).id,
        dictionary=imported_checksum(folder) if folder else "",
        activations=collection.checksum if collection else "",
    )

    def evaluate() -> EvaluateResult:
        if folder and stored:
            dictionary, mask_values, data = imported(folder), None, stored
        else:
            dictionary, run = load_autoencoder(store, config.target)
            mask_values, data = dictionary.mask_values(), stored or run.data.build()
        check_fits(dictionary, data.shape.d_in, name=repr(config.target))
        on_progress("Evaluating")
        metrics = dictionary_metrics(dictionary, data.held_out(), mask_values)
        return EvaluateResult(d_in=dictionary.d_in, d_sae=dictionary.d_sae, metrics=metrics)

    return EVALUATIONS.measure(request, store, evaluate)


# --- probe


class ProbeRequest(ProbeConfig):
    """The configuration with complete ids of runs, which depend on the checksums of their activations."""

    texts: str
    """Version of the packaged texts"""


class ProbeReport(Config):
    """Results by name of the set, or of the word-order task."""

    sets: dict[str, SetProbe]
    by_position: dict[str, ProbeByPosition]
    order: dict[str, OrderProbe]
    activations: dict[str, str]
    """Checksums of the activations"""


PROBES = ArtifactKind("probe", ProbeRequest, ProbeReport)


def run_probe(config: ProbeConfig, store: Store, on_progress: OnProgress) -> Artifact[ProbeRequest, ProbeReport]:
    named = config.model_copy(update={"runs": run_ids(config.runs, store), "sets": config.sets or DEFAULT_SETS})
    request = ProbeRequest(**named.model_dump(), texts=packaged_texts())
    return PROBES.measure(request, store, lambda: _probe(request, store, on_progress))


def _probe(config: ProbeConfig, store: Store, on_progress: OnProgress) -> ProbeReport:
    dictionaries, _, site = _on_text(store, config.runs)
    report = ProbeReport(sets={}, by_position={}, order={}, activations={})
    for name in config.sets:
        on_shard = partial(_report_shards, on_progress, f"{name}: collecting activations")
        texts = labelled_activations(name, site, store, train=config.train, test=config.test, on_progress=on_shard)
        on_progress(f"{name}: probing")
        report.activations[name] = texts.checksum
        report.sets[name] = probe(dictionaries, texts, mask_off=config.mask_off)
        if config.by_position:
            report.by_position[name] = probe_by_position(dictionaries, texts, mask_off=config.mask_off)
    for kind in config.order:
        texts = order_activations(
            kind, site, store, on_progress=partial(_report_shards, on_progress, f"{kind}: collecting activations")
        )
        on_progress(f"{kind}: probing")
        report.activations[kind] = texts.checksum
        report.order[kind] = probe_order(dictionaries, texts, mask_off=config.mask_off)
    return report


def _report_shards(on_progress: OnProgress, what: str, done: int, parts: int) -> None:
    on_progress(f"{what}, {done} of {parts} parts")


# --- splice


class SpliceRequest(SpliceConfig):
    """The configuration with complete ids of runs."""

    texts: str


class SplicedRun(Config):
    """Results of one dictionary; None where not requested."""

    recovered: Recovered | None = None
    unlearning: UnlearningResult | None = None


class SpliceReport(Config):
    """Results by name of the dictionary."""

    runs: dict[str, SplicedRun]


SPLICES = ArtifactKind("splice", SpliceRequest, SpliceReport)


def run_splice(config: SpliceConfig, store: Store, on_progress: OnProgress) -> Artifact[SpliceRequest, SpliceReport]:
    named = config.model_copy(update={"runs": run_ids(config.runs, store)})
    request = SpliceRequest(**named.model_dump(), texts=packaged_texts())
    return SPLICES.measure(request, store, lambda: _splice(request, store, on_progress))


def _splice(config: SpliceConfig, store: Store, on_progress: OnProgress) -> SpliceReport:
    dictionaries, collection, site = _on_text(store, config.runs)
    on_progress("Loading the model")
    split_model = SplitModel.of(site.model, site.layer)
    runs = {name: SplicedRun() for name in dictionaries}
    if config.what != "unlearning":
        on_progress("Computing cross-entropies")
        text = held_out_text(split_model, collection, config.sequences)
        entropies = recovered(split_model, text, dictionaries, config.mask_off)
        runs = {name: SplicedRun(recovered=entropies[name]) for name in dictionaries}
    if config.what != "recovered":
        settings = UnlearningSettings(length=min(UnlearningSettings.length, collection.context_size))
        on_progress("Computing activations of the texts to forget and to retain")
        corpora = Corpora.read(split_model, settings)
        for name, dictionary in dictionaries.items():
            on_progress(f"Unlearning: {name}")
            score = unlearning(split_model, corpora, dictionary, settings)
            runs[name] = runs[name].model_copy(update={"unlearning": score})
    return SpliceReport(runs=runs)


def run_ids(names: Sequence[str], store: Store) -> tuple[str, ...]:
    if not names:
        raise UserError("run: expected one or more runs, got none. See 'whence runs list'.")
    return tuple(store.find(name).id for name in names)


def _on_text(store: Store, runs: Sequence[str]) -> tuple[dict[str, Autoencoder], Collection, ActivationSite]:
    """Dictionaries by id and architecture, and their common collection, which must be of a language model."""
    dictionaries, collections = {}, {}
    for name in runs:
        model, run = load_autoencoder(store, name)
        data = run.data.build()
        if not isinstance(data, StoredActivations):
            raise UserError(
                f"run: expected runs trained on collected activations, got {run.id}, trained on synthetic ones. "
                "Collect activations first ('whence features collect')."
            )
        dictionaries[f"{run.id} {run.labels()['architecture']}"] = model
        collections[run.data] = data.collection
    if len(collections) > 1:
        raise UserError(
            f"run: expected runs trained on the same collection, got {len(collections)} collections. Name one run each."
        )
    collection = next(iter(collections.values()))
    site = collection.config.site
    if site is None or site.model.startswith(RUN):
        raise UserError(
            "run: expected a run on activations of a language model, got activations of "
            f"{site.model if site else 'another module'}, which has no text."
        )
    if collection.config.about.get("weights") not in (None, content_of(site.model)):
        raise UserError(
            f"model: the weights of {site.model!r} have changed since its activations were collected. Collect them "
            "again, and train on the new collection."
        )
    return dictionaries, collection, site


# --- show


PROFILES = ArtifactKind("feature_profiles", ShowConfig, FeatureProfiles)


def run_show(config: ShowConfig, store: Store, on_progress: OnProgress) -> Artifact[ShowConfig, FeatureProfiles]:
    if not config.run:
        raise UserError("run: expected a run, got none. See 'whence runs list'.")
    request = ShowConfig(run=store.find(config.run).id)

    def profiles() -> FeatureProfiles:
        model, run = load_autoencoder(store, request.run)
        return feature_profiles(model, run.data.build(), on_progress)

    return PROFILES.measure(request, store, profiles)


# --- two seeds


class PairOfRuns(Config):
    """Two seeds of one variant."""

    runs: tuple[str, str]


class SeedStability(Config):
    """Agreement of the directions that two seeds learn."""

    cosine: float
    """Mean cosine, with directions matched one to one"""


STABILITY = ArtifactKind("seed_stability", PairOfRuns, SeedStability)


def match_seeds(store: Store, pair: PairOfRuns) -> SeedStability:
    one, other = (load_autoencoder(store, run)[0].directions.detach() for run in pair.runs)
    return SeedStability(cosine=seed_stability(one, other))


ACTIONS: tuple[Action[Any, Any], ...] = (
    Action("collect", CollectConfig, run_collect, lambda c: f"Activations of {c.model}, layer {c.layer}"),
    Action(
        "evaluate",
        EvaluateConfig,
        run_evaluate,
        lambda c: f"Evaluation of {c.target} on {c.activations or 'its own data'}",
    ),
    Action("probe", ProbeConfig, run_probe, lambda c: f"Sparse probing of {', '.join(c.runs)}"),
    Action("splice", SpliceConfig, run_splice, lambda c: f"Cross-entropy and unlearning with {', '.join(c.runs)}"),
    Action("show", ShowConfig, run_show, lambda c: f"Features of {c.run}"),
)
