"""Features: position-specific features of a real language model, by a sparse autoencoder that is trained now."""

from __future__ import annotations

import shlex
from pathlib import Path

from markupsafe import Markup

from whence.demo.section import Content, Context, Requirement, Section, Size, small
from whence.experiments.options import command, set_fields
from whence.features.actions import ACTIONS
from whence.features.activations.store import Collection
from whence.features.activations.text import checksum
from whence.features.config import CollectConfig, ShowConfig
from whence.features.data import DATA
from whence.features.page import (
    context_table,
    describe_feature,
    feature_profile,
    profile_findings,
    profile_map,
    selectivity_histogram,
)
from whence.features.run import PRESETS, FeaturesRun
from whence.models.pretrained import PACKAGED, content_of, default_text
from whence.recordings import with_checksum
from whence.report.html import bullets, heading, render
from whence.report.shell import plot
from whence.store import disk
from whence.store.files import canonical, digest

MODEL, PRESET = "minilm", "plain_topk"
COLLECT: dict[Size, dict[str, object]] = {"full": {"tokens": 60_000}, "quick": {"tokens": 12_000}}
TRAINING: dict[Size, dict[str, dict[str, object]]] = {
    "full": {"model": {"d_sae": 1024}, "training": {"steps": 300}},
    "quick": {"model": {"d_sae": 512}, "training": {"steps": 120, "evaluations": 2}},
}
TEXT = "python-reference.txt"
SHOWN = 40
"""Features on the map"""
NAMED = 4
"""Features whose text is shown"""
RUN_COLLECT, RUN_SHOW = (next(action for action in ACTIONS if action.verb == verb) for verb in ("collect", "show"))
"""The actions of `whence features collect` and `whence features show`"""


def build(context: Context) -> Content:
    store, progress = context.store, context.progress
    progress.phase(0.4, "loading the language model")
    text = context.out / TEXT
    if not text.is_file():
        disk.write_output(text, default_text().encode())
    config = _named({"model": MODEL, "text": str(text), **COLLECT[context.size]})
    collected = RUN_COLLECT.run(config, store, progress.note)
    collection = Collection.open(store, collected.result.name)
    run = training_run(context.size, collection.path)
    progress.phase(0.45, "starting the worker")
    context.train(run)
    progress.phase(0.15, "computing mean activations")
    profiles = RUN_SHOW.run(ShowConfig(run=run.id), store, progress.note).result
    specific = profiles.position_specific[:SHOWN]
    shown = [feature for feature in profiles.order("peak") if feature in set(specific)]
    if not shown:
        shown = profiles.order("position_selectivity")[:SHOWN]
    findings = profile_findings(profiles)
    heat = profile_map(profiles, "mask_off", shown)
    body = [
        plot(heat),
        Markup("<p class=note>{}</p>").format(
            "Mean activation on held-out text by position. A row is a feature, scaled to its own maximum; a dot marks "
            f"its peak. Activations of {MODEL} after block {config.layer}, in contexts of "
            f"{config.context_size} tokens; the text is Python's own language reference."
        ),
        bullets(findings[2:]),
        heading("Single features", level=3),
        plot(feature_profile(profiles, shown)),
        *(
            render(
                "<details class=contexts><summary>{{ text }}</summary>{{ table }}</details>",
                text=describe_feature(profiles, feature),
                table=Markup(context_table(profiles.contexts.get(feature, ()))),
            )
            for feature in specific[:NAMED]
        ),
        heading("How many features are position-specific", level=3),
        plot(selectivity_histogram(profiles)),
    ]
    where, at = context.store_option, shlex.join(context.store_option)
    return Content(
        headline=f"{len(profiles.position_specific)} of {len(profiles.position_selectivity)} features of MiniLM are "
        "position-specific.",
        picture=small(heat, yaxis_showticklabels=False),
        verdict=" ".join(findings[:2]),
        body=body,
        command=" && ".join(
            [
                command(("features", "collect"), CollectConfig, set_fields(config), where),
                command(("features", "train"), FeaturesRun, _without_data(run), ["--activations", config.name, *where]),
            ]
        ),
        further={
            f"whence features show {run.id} {at}": "Shows every feature of this autoencoder with the "
            "text that activates it.",
            f"whence features compare --presets 001_run02_soft_mask plain_topk --activations {config.name} "
            f"{at}": "Compares position-aware autoencoders with a plain one.",
        },
        runs=[run.id],
        numbers=profiles.summary(),
    )


def _named(document: dict[str, object]) -> CollectConfig:
    """A collection is not replaced by another one of its name: the name follows from the content."""
    config = CollectConfig.read(document)
    content = {**config.model_dump(mode="json"), "weights": content_of(MODEL), "checksum": checksum(config.text)}
    return config.model_copy(update={"name": f"demo-{digest(canonical(content))[:8]}"})


def training_run(size: Size, activations: Path) -> FeaturesRun:
    """What `whence features train --preset plain_topk --activations demo` trains, in small."""
    data = with_checksum(DATA.choose({"name": "stored", "path": str(activations)}))
    preset, changes = PRESETS.read(PRESET), TRAINING[size]
    document = {key: {**preset.get(key, {}), **changes.get(key, {})} for key in {*preset, *changes}}
    return FeaturesRun.read({**document, "data": data})


def _without_data(run: FeaturesRun) -> dict[str, object]:
    return {key: value for key, value in set_fields(run).items() if key != "data"}


SECTION = Section(
    name="features",
    title="Which features of a language model are about position?",
    question="A sparse autoencoder decomposes the activations of MiniLM, a small BERT, into features. It is not given "
    "any positions: features that depend on position are learned from the activations alone.",
    build=build,
    seconds={"full": 40, "quick": 20},
    requires=(Requirement("transformers", "transformers"), Requirement(PACKAGED[MODEL][0])),
)
