"""`whence features …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from whence.cli import instrument
from whence.cli.features_evaluate import PROBE, SPLICE, probe, splice
from whence.cli.features_export import EXPORT, export
from whence.cli.features_measure import MEASURE, measure, print_quality
from whence.cli.features_show import SHOW, show
from whence.cli.options import EngineOptions, Invocation, StoreOptions, Verb
from whence.cli.output import print_json, stderr
from whence.cli.report import report_verb
from whence.errors import UserError
from whence.store.runs import Store

if TYPE_CHECKING:
    from whence.features.data.base import Data
    from whence.features.run import FeaturesRun
    from whence.registry import Choice

COLLECT = """Collect hidden states with their positions. Ctrl-C stops cleanly, and the same command resumes.

  whence features collect --model minilm --layer 3 --tokens 500000
  whence features collect --model smollm2 --layer 15 --precision bf16 --name smollm2-middle
  whence features collect --text book.txt --context 256 --name book
  whence features collect --model run:7c1e --layer 2 --tokens 50000        a run of the arena, on its own task

The forward pass ends at the layer. Documents follow each other in sequences of --context tokens; one document in ten
is held out, and makes sequences of its own. Special tokens and the first position are flagged, and left out of
training."""

TRAIN = """Train one sparse autoencoder on collected states, or on planted ones, whose features are known.

  whence features train --preset position_mean_topk --activations minilm-3
  whence features train --mask gaussian:sigma=0.25 --sparsity topk:k=32 --activations minilm-3
  whence features train --preset plain_topk --data planted:regime=equal

An autoencoder is a composition: centre, encoder, norm, mask, sparsity, losses, position_schedule, start. Scored are
states of documents never trained on. Ctrl-C stops cleanly, and the same command resumes."""

COMPARE = """Compare presets on the same states, at the same number of active features, over paired seeds.

  whence features compare --presets 001_run02_soft_mask plain_topk --seeds 3
  whence features compare --presets all --seeds 3 --activations minilm-3
  whence features compare --presets all --sparsity topk --controls --activations minilm-3

A penalty is steered to the wanted number of active features; a top-k has it anyway. Masks make fidelity to positions
trivial, so that position-bound features are counted with masks lifted. Every preset is compared with
position_mean_topk, the baseline. Ctrl-C stops cleanly, and the same command resumes."""


class Collecting(StoreOptions):
    """Where states are kept."""

    name: str = Field(default="", description="what to call them; none: model and layer")


class OnStates(EngineOptions):
    """Where and how to run: none of this changes what a run is."""

    activations: str = Field(default="", description="the name of collected states; none: what --data says")


class CompareOnStates(OnStates, instrument.ComparisonOptions):
    """Where and how to run a comparison."""


# --- collect


def _collect(invocation: Invocation) -> int:
    from whence.features.activations.collect import collect
    from whence.features.activations.sources import Collection
    from whence.features.activations.store import Activations

    spec, options = invocation.parse(Collection, Collecting)
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


# --- train and compare


def _chosen_data(engine: OnStates, asked: Choice[Data]) -> dict[str, Any]:
    """What --activations stands for. asked: what --data says."""
    if not engine.activations:
        return {}
    from whence.features.activations.store import Activations
    from whence.features.sae.parts import DATA
    from whence.recordings import with_checksum

    if asked != DATA.choose("planted"):
        raise UserError("activations: --data was given, too. Allowed: one of them.", field="activations")
    found = Activations.open(Store(engine.store), engine.activations)
    return {"data": with_checksum(DATA.choose({"name": "stored", "path": str(found.path)}))}


def _on_activations(config: Any, options: OnStates) -> Any:
    return config.model_copy(update=_chosen_data(options, config.data))


def _print_metrics(run: FeaturesRun, store: Store) -> None:
    print_quality(store.folder(run.id).status().latest)


VERBS = {
    "collect": Verb(COLLECT, _collect),
    "presets": instrument.presets("features"),
    "train": instrument.train("features", TRAIN, OnStates, _on_activations, _print_metrics),
    "compare": instrument.compare("features", COMPARE, CompareOnStates, _on_activations),
    "measure": Verb(MEASURE, measure),
    "probe": Verb(PROBE, probe),
    "splice": Verb(SPLICE, splice),
    "show": Verb(SHOW, show),
    "export": Verb(EXPORT, export),
    "report": report_verb("features"),
}
