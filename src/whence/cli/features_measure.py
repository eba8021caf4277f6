"""`whence features measure`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from whence.cli.options import Invocation, StoreOptions
from whence.cli.output import print_json, stderr
from whence.errors import UserError
from whence.experiments.options import positional

if TYPE_CHECKING:
    from torch import Tensor

    from whence.features.data.base import Data
    from whence.features.sae.dictionary import Dictionary
    from whence.store.runs import Store

MEASURE = """Measure an autoencoder on held-out states: one trained here, or a folder of SAELens.

  whence features measure 3f2a --activations minilm-3-long
  whence features measure my-sae --activations smollm2-15

A folder holds cfg.json and sae_weights.safetensors, as SAELens 6 and 'whence features export' write them; ReLU, top-k
and JumpReLU are read. A run keeps its own idea of position: what lies beyond the positions it was trained on counts as
the nearest of them."""


class Measuring(StoreOptions):
    """On what."""

    run: str = Field(
        description="first digits of a run's id, or a folder of SAELens", json_schema_extra=positional("RUN|DIR")
    )
    activations: str = Field(default="", description="the name of collected states; none: those a run was trained on")


def measure(invocation: Invocation) -> int:
    options = invocation.options(Measuring)
    from whence.features.evals import measures
    from whence.store.runs import Store

    dictionary, assigned, data = _opened(Store(options.store), options.run, options.activations)
    if dictionary.width != data.width:
        raise UserError(
            f"activations: states have {data.width} numbers, and {options.run!r} is of states of {dictionary.width}. "
            "Allowed: states of the model and the layer that it was trained on.",
            field="activations",
        )
    with stderr.status("measuring …"):
        found = measures.measure(dictionary, data.held_out(), assigned)
    if options.json_:
        print_json({"of": options.run, "activations": options.activations, **found})
    else:
        print(f"{options.run}  {dictionary.size} features of {dictionary.width} numbers")
        print_quality(found)
    return 0


def _opened(store: Store, word: str, name: str) -> tuple[Dictionary, Tensor | None, Data]:
    """The dictionary, where its features may speak if they are masked, and the states."""
    from whence.features.activations.store import Activations
    from whence.features.data.stored import Stored as StoredStates
    from whence.features.sae.saelens import imported
    from whence.features.stored import load

    data = StoredStates(path=str(Activations.open(store, name).path)) if name else None
    if not Path(word).is_dir():
        model, run = load(store, word)
        assigned = model.assigned()
        return model, None if assigned is None else assigned.detach(), data or run.data.build()
    if data is None:
        raise UserError("activations: a folder needs states. Allowed: --activations NAME.", field="activations")
    return imported(Path(word)), None, data


def print_quality(found: dict[str, Any]) -> None:
    lifted = found["lifted"]
    print(
        f"  FVU {found['fvu']:.4f} with {found['l0']:.1f} active features; {100 * found['dead']:.1f} % never active on "
        f"{found['states']:,} states of documents never trained on"
    )
    bound = lifted["fidelity"]
    masked = f" (masks lifted: FVU {lifted['fvu']:.4f}, {lifted['l0']:.1f} active)" if "retention" in lifted else ""
    print(
        f"  position-bound: {bound['bound']} of {bound['features']} features; median of what position explains "
        f"{bound['median']:.4f}{masked}"
    )
    if lifted.get("retention", {}).get("features"):
        kept = lifted["retention"]
        print(
            f"  where features may speak and where they do, masks lifted: median correlation {kept['median']:.2f}; "
            f"with masks of others {kept['chance']:.2f}"
        )
    for kind, known in found.get("recovery", {}).items():
        print(f"  {kind} features recovered: cosine {known['matched']:.3f}, {100 * known['found']:.0f} % above .9")
