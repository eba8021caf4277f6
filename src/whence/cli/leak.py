"""`whence leak …`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from whence.cli.options import Engine, Stored, dispatch, elsewhere, parse, parse_options
from whence.cli.output import print_json, print_table, telling
from whence.errors import UserError
from whence.leak import RATIOS, shares
from whence.leak.words import number

if TYPE_CHECKING:
    from whence.leak.auditing import Audit
    from whence.leak.subject import Subject
    from whence.leak.table import Table

ACTIONS = {
    "audit": "does a model predict hidden tokens from content or from position, and where does position come in?",
    "cure": "train masked models with and without cures: what each stops, and what it costs",
    "cures": "list the cures: what each can stop, and what it cannot",
}
HELP = """whence leak: is the model predicting from content or from position, and what stops it?

usage: whence leak ACTION [options]

""" + "".join(f"  {action:<8} {text}\n" for action, text in ACTIONS.items())
HELP += "\nEvery action: --help teaches it, --json prints one JSON document on standard output.\n"

AUDIT = """Look at a masked model from all sides: what predictions of hidden tokens ride on, where position comes in.

  whence leak audit --model minilm                 MiniLM, a BERT with learned absolute positions (a package)
  whence leak audit --model smollm2                SmolLM2-135M, a Llama (a package)
  whence leak audit --model DIR                    any transformers model in a directory; nothing is downloaded
  whence leak audit --model path.py:build          your own: build() returns (model, content)   (docs/leak.md)
  whence leak audit --run 7c1e                     a stored run of 'whence leak cure' or 'whence arena'

Hidden tokens are moved together with all visible content: what changes then is absolute position, and nothing else.
Everything is measured at several shares of hidden tokens, beside the model before training."""

CURE = """Train masked models with and without cures, and say what became of the leak and of the reconstruction.

  whence leak cure                                               a first look: four treatments, three seeds
  whence leak cure --data basic_motions --backbone bimamba --cures none all content_gated --seeds 6
  whence leak cure --data planted:position=0.5 --cures none content_gated content_gated+position_prior
  whence leak cure --data mine.npy --window 8                    your own recordings: (time, channels)

The first cure is what the others are held against. Ctrl-C stops cleanly, and the same command goes on."""


class Auditing(Stored):
    """What to look at, and how."""

    model: str | None = Field(default=None, description="minilm, smollm2, a directory, or FILE.py:FUNCTION")
    run: str | None = Field(default=None, description="a stored run, by the first digits of its id")
    text: str | None = Field(
        default=None, description="a text file to read with language models; none: Python's manual"
    )
    rows: int | None = Field(default=None, ge=5, le=1000, description="examples of text; none: 24")
    length: int | None = Field(default=None, ge=12, le=4096, description="tokens per example of text; none: 64")
    ratios: Annotated[tuple[float, ...], AfterValidator(shares)] = Field(
        default=RATIOS, description="shares of tokens to hide"
    )
    seed: int = Field(default=0, ge=0, description="which tokens are hidden")


def main(arguments: list[str]) -> int:
    actions = {"audit": _audit, "cure": _cure, "cures": _cures}
    return dispatch(arguments, HELP, actions)


# --- audit


def _audit(arguments: list[str]) -> int:
    options, _ = parse_options(Auditing, arguments, prog="whence leak audit", description=AUDIT)
    if (options.model is None) == (options.run is None):
        raise UserError("model: name a model or a stored run. Allowed: --model or --run.", field="model")
    from whence.leak.auditing import audit
    from whence.report.leak import audit_page, write_page
    from whence.runs.store import Store

    store = Store(options.store)
    with telling("loading the model") as tell:
        subject = _subject(options, store)
        found = audit(subject, options.ratios, seed=options.seed, tell=tell)
        again = shlex.join(["whence", "leak", "audit", *arguments])
        store.prepare()
        report = write_page("audit", audit_page(found, again), store.reports)
    if options.json_:
        print_json({**found.to_json(), "report": str(report), "again": again})
        return 0
    print_audit(found)
    print(f"report  {report}")
    return 0


def _subject(options: Auditing, store: Any) -> Subject:
    if options.run is not None:
        return _stored(options.run, store)
    assert options.model is not None
    if ".py:" in options.model:
        from whence.leak.adapters.user_file import load as load_file

        return load_file(options.model)
    from whence.leak.adapters.transformers_model import LENGTH, ROWS, load

    text = None
    if options.text is not None:
        try:
            text = Path(options.text).read_text()
        except (OSError, UnicodeDecodeError):
            raise UserError(f"text: {options.text!r} cannot be read as text.", field="text") from None
    return load(options.model, text, options.rows or ROWS, options.length or LENGTH)


def _stored(word: str, store: Any) -> Subject:
    from whence.leak.adapters.arena_run import sequence_subject
    from whence.leak.adapters.masked_run import masked_subject
    from whence.leak.run import Run
    from whence.runs.stored import stored

    with stored(store, word) as (folder, run):
        return masked_subject(run, folder) if isinstance(run, Run) else sequence_subject(run, folder)


def print_audit(found: Audit) -> None:
    print(f"{found.name}: {found.rows} examples of {found.tokens} tokens\n")
    for sentence in [*found.verdict.sentences, *found.facts]:
        print(f"  {sentence}")
    print()
    columns = ["hidden", "", "error", "|r|", "chance", "target", "η²", "target", "similarity", "centred", "variance"]
    columns += ["R²", "±", "p", "pattern", "moved", "content", "gradient"]
    rows = []
    for ratio, trained in found.ratios.items():
        rows.append([f"{100 * float(ratio):g} %", "model", *_numbers(trained)])
        if ratio in found.untrained:
            rows.append(["", "untrained", *_numbers(found.untrained[ratio])])
    print_table("predictions of hidden tokens", columns, rows)
    print()
    if found.profile:
        ratio = next(iter(found.profile.values())).get("ratio", 0)
        print_table(
            f"what hidden states know of position, {100 * ratio:g} % hidden: moved, and R² of the probe",
            ["after", "moved", "", "untrained", "R²", "shape", "p", "untrained", "mask pattern"],
            [_layer(name, layer) for name, layer in found.profile.items()],
        )
        print()
    if found.sources:
        print_table(
            "where position may come in (share of the predictions' variance that moving changes)",
            ["entrance", "where", "", "with all", "without it", "it alone"],
            [
                [s["name"], s["where"], s["note"], *(number(s[key]) for key in ("with_all", "without", "alone"))]
                for s in found.sources
            ],
        )
        print()
    print("thresholds  " + "  ".join(f"{name} {value:g}" for name, value in found.verdict.thresholds.items()))


def _numbers(found: dict[str, Any]) -> list[str]:
    probe = found["probe"] or {}
    content = found["content"] or {}
    values = [found["error"], found["correlation"], found["correlation_chance"], found["correlation_target"]]
    values += [found["eta2"], found["eta2_target"], found["similarity"], found["similarity_centred"], found["spread"]]
    values += [probe.get("best"), probe.get("mae"), probe.get("p"), found["pattern_r2"]]
    values += [found["shift"]["of_prediction"], content.get("changed"), found["gradient"]]
    return [_short(value) for value in values]


def _layer(name: str, layer: dict[str, Any]) -> list[str]:
    told, before = layer["trained"], layer.get("untrained") or {}
    return [
        name,
        _short(told["moved"]),
        "█" * round(20 * told["moved"]),
        _short(before.get("moved")),
        _short(told.get("best")),
        told.get("shape", ""),
        _short(told.get("p")),
        _short(before.get("best")),
        _short(layer.get("pattern_r2")),
    ]


def _short(value: float | None) -> str:
    return number(value, undefined="–")


# --- cure


def _cure(arguments: list[str]) -> int:
    from whence.cli.sweep import leave, run_specs
    from whence.leak.spec import LeakSpec
    from whence.leak.table import COMPARED, tabulate
    from whence.report.leak import cure_page, write_page
    from whence.runs.kept import earlier_look, keep
    from whence.runs.store import Store
    from whence.stats import plan_note

    spec, engine = parse(LeakSpec, Engine, arguments, prog="whence leak cure", description=CURE)
    runs = spec.plan()
    if engine.print_spec:
        print_json(spec.model_dump(mode="json"))
        return 0
    store = Store(engine.store)
    store.prepare()
    again = shlex.join(["whence", "leak", "cure", "--config", str(keep("leak", spec, store)), *elsewhere(store)])
    _, outcome = run_specs(runs, engine, plan_note(spec.seeds, len(COMPARED) * (len(spec.cures) - 1)))
    table = tabulate(runs, store, outcome.ends, earlier=earlier_look("leak", spec, store, ("cures",)))
    report = None
    if any(row.metrics for row in table.rows):
        report = write_page("leak", cure_page(table, spec.model_dump(mode="json"), again), store.reports)
    if engine.json_:
        print_json({**table.to_json(), "runs": outcome.ends, "report": str(report) if report else None, "again": again})
        return leave(outcome)
    print_cures(table)
    if report:
        print(f"report  {report}")
    if not outcome.interrupted:
        print(f"again   {again}")
    return leave(outcome)


def print_cures(table: Table) -> None:
    from whence.leak.table import COLUMNS, LEGEND

    print_table(table.title, COLUMNS, [row.cells() for row in table.rows])
    print(f"  {LEGEND}")
    for line in table.findings:
        print(f"  {line}")
    print()


def _cures(arguments: list[str]) -> int:
    from whence.cli.encodings import options_of, shown
    from whence.cli.options import Output

    options, _ = parse_options(Output, arguments, prog="whence leak cures", description=ACTIONS["cures"])
    from whence.leak.cures import CURES

    found = [
        {"name": cure.name, "summary": cure.summary(), "stops": cure.stops, "leaves": cure.leaves} for cure in CURES
    ]
    if options.json_:
        print_json(found)
        return 0
    print_table(
        "cures",
        ["name", "what it does", "stops", "leaves", "options"],
        [[c["name"], c["summary"], c["stops"], c["leaves"], shown(options_of(CURES, c["name"]))] for c in found],
    )
    return 0
