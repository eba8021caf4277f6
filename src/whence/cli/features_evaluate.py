"""`whence features probe` and `whence features splice`: what trained dictionaries are good for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from whence.cli.options import Invocation, StoreOptions
from whence.cli.output import print_json, print_table, stderr
from whence.errors import UserError
from whence.experiments.options import positional

if TYPE_CHECKING:
    from whence.features.activations.store import Activations
    from whence.features.sae.autoencoder import Autoencoder
    from whence.store.runs import Store

PROBE = """Read labels, and the order of words, from a few features of trained dictionaries.

  whence features probe 7c1e 90ab                          two runs on the same states, side by side
  whence features probe 7c1e --sets 97_news_class --by-position
  whence features probe 7c1e --train 1000 --test 500       quicker than 4000 and 1000, which is SAEBench's protocol

Beside each: the raw states under the same rule, and random directions of the same number and sparsity. The states of
labelled texts are computed once, and kept in the store."""

SPLICE = """Put reconstructions in the place of a language model's states, and clamp features to make it forget.

  whence features splice 7c1e 90ab                         cross-entropy recovered, and unlearning
  whence features splice 7c1e --what recovered

The runs must be on states of a causal model (smollm2, or a directory). Recovered: 1 is the model itself, 0 a model
whose states are zeros (and, stricter, the mean state). Unlearning: of the features that hardly ever fire on text to be
retained, those that fire most on text to be forgotten (code) are clamped; at least 99 % of what the model gets right on
the other text must stay right. Where no feature is eligible, that is said, and is not a score of 0."""


class Probing(StoreOptions):
    """What is read from features."""

    runs: tuple[str, ...] = Field(
        default=(), description="first digits of their ids", json_schema_extra=positional("RUN")
    )
    sets: tuple[str, ...] = Field(default=(), description="labelled sets that come with sae-probes; none: five of them")
    order: tuple[Literal["first", "halves", "thirds"], ...] = Field(
        default=("first", "halves", "thirds"),
        description="which of two words came first; halves exchanged; first or last third",
    )
    train: int = Field(default=4000, ge=20, description="texts of a set to learn from")
    test: int = Field(default=1000, ge=20, description="texts of a set to be judged on")
    by_position: bool = Field(default=False, description="also from one range of positions at a time")
    lifted: bool = Field(default=False, description="with masks lifted")


class Splicing(StoreOptions):
    """What is done to the model."""

    runs: tuple[str, ...] = Field(
        default=(), description="first digits of their ids", json_schema_extra=positional("RUN")
    )
    what: Literal["both", "recovered", "unlearning"] = Field(default="both", description="which evaluation")
    sequences: int = Field(default=32, ge=1, description="held-out sequences that cross-entropies are taken on")
    lifted: bool = Field(default=False, description="cross-entropies with masks lifted")


def probe(invocation: Invocation) -> int:
    options = invocation.options(Probing)
    from whence.features.activations.labelled import DEFAULT_SETS, labelled_states
    from whence.features.activations.sequences import Place
    from whence.features.evals.order_probing import probe_order
    from whence.features.evals.order_tasks import order_states
    from whence.features.evals.probing import probe as probe_set
    from whence.features.evals.probing import probe_by_position
    from whence.store.runs import Store

    store = Store(options.store)
    dictionaries, activations = _loaded(store, options.runs)
    place = Place.of(activations.spec)
    found: dict[str, Any] = {}
    with stderr.status("probing …") as status:

        def tell(done: int, parts: int) -> None:
            status.update(f"{name}: states of texts, {done} of {parts} …")

        for name in options.sets or DEFAULT_SETS:
            states = labelled_states(name, place, store, train=options.train, test=options.test, tell=tell)
            status.update(f"{name}: probing …")
            found[name] = probe_set(dictionaries, states, lifted=options.lifted)
            if options.by_position:
                found[f"{name}, by position"] = probe_by_position(dictionaries, states, lifted=options.lifted)
        for name in options.order:
            states = order_states(name, place, store, tell=tell)
            status.update(f"{name}: probing …")
            found[f"order: {name}"] = probe_order(dictionaries, states, lifted=options.lifted)
    if options.json_:
        print_json(found)
        return 0
    for name, result in found.items():
        if "ranges" in result:
            for part in result["ranges"]:
                _print_probe(f"{name}, {part['first']}–{part['last']}", part)
        else:
            _print_probe(name, result)
    return 0


def _print_probe(name: str, result: dict[str, Any]) -> None:
    ks = list(result["raw"]["k"])
    sides = {"raw states": result["raw"]["k"]}
    for each, known in result["dictionaries"].items():
        sides |= {each: known["k"], f"{each}, control": known["control"]["k"]}
    rows = [[side, *(f"{100 * accuracies[k]:.1f}" for k in ks)] for side, accuracies in sides.items()]
    print_table(f"Accuracy (%) of {name}", ["from", *(f"{k} features" for k in ks)], rows)
    shown = f"  majority {100 * result['majority']:.1f}, all raw numbers {100 * result['raw']['all']:.1f}"
    print(shown + (f", a bag of tokens {100 * result['bag']:.1f}" if "bag" in result else "") + "\n")


def splice(invocation: Invocation) -> int:
    options = invocation.options(Splicing)
    from whence.features.evals.recovered import held_out_text, recovered
    from whence.features.evals.splice import Halves
    from whence.features.evals.unlearning import Corpora, Unlearning, unlearning
    from whence.store.runs import Store

    dictionaries, activations = _loaded(Store(options.store), options.runs)
    found: dict[str, dict[str, Any]] = {name: {} for name in dictionaries}
    with stderr.status("loading the model …") as status:
        halves = Halves.of(activations.spec["model"], activations.spec["layer"])
        if options.what != "unlearning":
            status.update("cross-entropies …")
            for name, known in recovered(
                halves, held_out_text(halves, activations, options.sequences), dictionaries, options.lifted
            ).items():
                found[name]["recovered"] = known
        if options.what != "recovered":
            asked = Unlearning(length=min(Unlearning().length, activations.context))
            status.update("reading what is to be forgotten, and what retained …")
            corpora = Corpora.read(halves, asked)
            for name, dictionary in dictionaries.items():
                status.update(f"unlearning: {name} …")
                found[name]["unlearning"] = unlearning(halves, corpora, dictionary, asked)
    if options.json_:
        print_json(found)
        return 0
    if options.what != "unlearning":
        _print_recovered(found)
    if options.what != "recovered":
        _print_unlearning(found)
    return 0


def _print_recovered(found: dict[str, dict[str, Any]]) -> None:
    rows = []
    for name, known in found.items():
        r = known["recovered"]
        shares = [
            f"{100 * r[key]:.1f} %" if r[key] is not None else "–" for key in ("recovered", "recovered_from_mean")
        ]
        rows.append([name, *(f"{r[key]:.3f}" for key in ("clean", "spliced", "mean", "zero")), *shares])
    columns = ["run", "clean", "spliced", "mean state", "zeros", "recovered", "against the mean"]
    print_table("Cross-entropy (nats per token) on held-out text", columns, rows)


def _print_unlearning(found: dict[str, dict[str, Any]]) -> None:
    rows = []
    for name, known in found.items():
        u = known["unlearning"]
        if u["score"] is None:
            rows.append([name, u["outcome"], "–", "–", "–", u["reason"]])
            continue
        beside = f"{u['random']['forgotten']:.3f} · {u['random']['retained']:.3f}"
        count = f"{len(u['setting']['features'])} features × {u['setting']['multiplier']:g}"
        kept = f"{u['test']['retained']:.3f}" + ("" if u["kept"] else " (too little)")
        rows.append([name, f"{u['score']:.3f}", kept, f"{u['validation']['forgotten']:.3f}", beside, count])
    columns = ["run", "forgotten", "retained", "on validation", "as many random features", "clamped"]
    print_table("Unlearning: share of right next tokens that become wrong", columns, rows)


def _loaded(store: Store, words: Sequence[str]) -> tuple[dict[str, Autoencoder], Activations]:
    """By id, and the states that all of them were trained on."""
    from whence.features.activations.sources import RUN
    from whence.features.data.stored import Stored as StoredStates
    from whence.features.stored import load

    if not words:
        raise UserError("run: name at least one run. See 'whence runs list'.", field="run")
    dictionaries, places = {}, {}
    for word in words:
        model, run = load(store, word)
        data = run.data.build()
        if not isinstance(data, StoredStates):
            raise UserError(f"run: {run.id} is on planted states. Allowed: runs on collected states.", field="run")
        dictionaries[f"{run.id} {run.labels()['made of']}"] = model
        places[run.data] = data.activations
    if len(places) > 1:
        raise UserError("run: they are on different states. Allowed: runs on the same collection.", field="run")
    found = next(iter(places.values()))
    if "model" not in found.spec or found.spec["model"].startswith(RUN):
        raise UserError("run: its states are of no model that reads text. Allowed: runs on such states.", field="run")
    return dictionaries, found
