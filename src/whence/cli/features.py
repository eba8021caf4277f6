"""`whence features …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from whence.cli.options import Engine, Output, Stored, dispatch, parse, parse_options
from whence.cli.output import print_json, stderr
from whence.errors import UserError

if TYPE_CHECKING:
    from whence.features.data.base import Data
    from whence.registry import Choice

ACTIONS = {
    "collect": "hidden states of a model on text, each with its token, position and sequence",
    "presets": "the runs of the documents, and their baselines",
    "train": "train one autoencoder, from a preset or part by part",
    "bench": "presets against each other, at the same number of active features, over paired seeds",
    "measure": "one autoencoder, trained here or with SAELens, on other states",
    "probe": "read labels, and the order of words, from a few features of trained runs",
    "splice": "put reconstructions into a language model: cross-entropy recovered, unlearning",
    "show": "what a trained autoencoder's features do: where they speak, and in which text",
    "export": "one autoencoder, as SAELens keeps its own",
}
HELP = """whence features: which learned features are about position? Sparse autoencoders that know where states stand.

usage: whence features ACTION [options]

""" + "".join(f"  {action:<8} {text}\n" for action, text in ACTIONS.items())
HELP += "\nEvery action: --help teaches it, --json prints one JSON document on standard output.\n"

COLLECT = """Collect hidden states with their positions. Ctrl-C stops cleanly, and the same command goes on.

  whence features collect --model minilm --layer 3 --tokens 500000
  whence features collect --model smollm2 --layer 15 --precision bf16 --name smollm2-middle
  whence features collect --text book.txt --context 256 --name book
  whence features collect --model run:7c1e --layer 2 --tokens 50000        a run of the arena, on its own task

The forward pass ends at the layer. Documents follow each other in sequences of --context tokens; one document in ten
is held out, and makes sequences of its own. Special tokens and the first position are flagged, and left out of
training."""

PRESETS = """Autoencoders that come with whence: every run of the two sources, and the baselines.

  whence features presets
  whence features presets 001_run02_soft_mask
  whence features train --preset 001_run02_soft_mask --activations minilm-3"""

TRAIN = """Train one sparse autoencoder on collected states, or on planted ones, whose features are known.

  whence features train --preset position_mean_topk --activations minilm-3
  whence features train --mask gaussian:sigma=0.25 --sparsity topk:k=32 --activations minilm-3
  whence features train --preset plain_topk --data planted:regime=equal

An autoencoder is a composition: centre, encoder, norm, mask, sparsity, losses, position_schedule, start. Scored are
states of documents never trained on. Ctrl-C stops cleanly, and the same command goes on."""

BENCH = """Compare presets on the same states, at the same number of active features, over paired seeds.

  whence features bench --presets 001_run02_soft_mask plain_topk --seeds 3
  whence features bench --presets all --seeds 3 --activations minilm-3
  whence features bench --presets all --sparsity topk --controls --activations minilm-3

A penalty is steered to the wanted number of active features; a top-k has it anyway. Masks make fidelity to positions
trivial, so that position-bound features are counted with masks lifted. Every preset is compared with
position_mean_topk, the baseline. Ctrl-C stops cleanly, and the same command goes on."""


class Collecting(Stored):
    """Where states are kept."""

    name: str = Field(default="", description="what to call them; none: model and layer")


class OnStates(Engine):
    """Where and how to run: none of this changes what a run is."""

    activations: str = Field(default="", description="the name of collected states; none: what --data says")


def main(arguments: list[str]) -> int:
    from whence.cli.features_evaluate import probe, splice
    from whence.cli.features_export import export
    from whence.cli.features_measure import measure
    from whence.cli.features_show import show

    actions = {"collect": _collect, "presets": _presets, "train": _train, "bench": _bench}
    actions |= {"measure": measure, "probe": probe, "splice": splice, "show": show, "export": export}
    return dispatch(arguments, HELP, actions)


# --- collect


def _collect(arguments: list[str]) -> int:
    from whence.features.activations.collect import collect
    from whence.features.activations.sources import Collection
    from whence.features.activations.store import Activations
    from whence.store.runs import Store

    spec, options = parse(Collection, Collecting, arguments, prog="whence features collect", description=COLLECT)
    store = Store(options.store)
    store.prepare()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr) as progress:
        task = progress.add_task("loading the model and the text", total=None)

        def tell(done: int, parts: int) -> None:
            progress.update(task, description="collecting", completed=done, total=parts)

        path = collect(spec, store, options.name, tell)
    facts: dict[str, Any] = {"name": path.name, "path": str(path), **Activations.open(store, path.name).facts()}
    if options.json_:
        print_json(facts)
    else:
        print(
            f"{path.name}  {facts['states']:,} states of {facts['width']} numbers, "
            f"{facts['held_out']:,} more held out, {facts['special']:,} of special and first tokens beside  {path}"
        )
    return 0


# --- presets


def _presets(arguments: list[str]) -> int:
    options, words = parse_options(
        Output, arguments, prog="whence features presets NAME…", description=PRESETS, words=True
    )
    from whence.features.config import PRESETS as COME_WITH

    names = words or COME_WITH.names()
    found = {name: {"about": COME_WITH.about(name), **COME_WITH.read(name)} for name in names}
    if options.json_:
        print_json(found)
        return 0
    for name, preset in found.items():
        parts = "  ".join(f"{part} {chosen}" for part, chosen in preset["model"].items())
        print(f"{name}\n  {preset['about'].replace(chr(10), chr(10) + '  ')}\n  {parts}\n")
    return 0


# --- train


def _train(arguments: list[str]) -> int:
    from whence.cli.features_measure import print_quality
    from whence.cli.sweep import train_one
    from whence.features.config import PRESETS as COME_WITH
    from whence.features.run import FeaturesRun

    run, engine = parse(
        FeaturesRun, OnStates, arguments, prog="whence features train", description=TRAIN, presets=COME_WITH
    )
    run = run.model_copy(update=_chosen_data(engine, run.data))
    if engine.print_spec:
        print_json({"id": run.id, **run.document()})
        return 0
    return train_one(run, engine, lambda store, status: print_quality(status["latest"]))


def _chosen_data(engine: OnStates, asked: Choice[Data]) -> dict[str, Any]:
    """What --activations stands for. asked: what --data says."""
    if not engine.activations:
        return {}
    from whence.features.activations.store import Activations
    from whence.features.sae.parts import DATA
    from whence.recordings import with_checksum
    from whence.store.runs import Store

    if asked != DATA.choose("planted"):
        raise UserError("activations: --data was given, too. Allowed: one of them.", field="activations")
    found = Activations.open(Store(engine.store), engine.activations)
    return {"data": with_checksum(DATA.choose({"name": "stored", "path": str(found.path)}))}


# --- bench


def _bench(arguments: list[str]) -> int:
    from whence.cli.compare_verb import compare
    from whence.features.instrument import FEATURES

    def on_activations(config: Any, options: Any) -> Any:
        return config.model_copy(update=_chosen_data(options, config.data))

    return compare(FEATURES, arguments, BENCH, OnStates, on_activations)
