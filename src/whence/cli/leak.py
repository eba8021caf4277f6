"""`whence leak …`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from whence.cli import instrument
from whence.cli.options import Invocation, OutputOptions, StoreOptions, Verb
from whence.cli.output import print_json, print_table
from whence.cli.progress import progress_line
from whence.cli.report import report_verb
from whence.errors import UserError
from whence.formatting import number
from whence.leak import RATIOS, shares

if TYPE_CHECKING:
    from whence.leak.audit.auditing import Audit
    from whence.leak.audit.target import AuditTarget

AUDIT = """Measure position leakage of a masked model and the pathways through which position enters

  whence leak audit --model minilm                 MiniLM, a BERT with learned absolute positions (a package)
  whence leak audit --model smollm2                SmolLM2-135M, a Llama (a package)
  whence leak audit --model DIR                    any transformers model in a directory; nothing is downloaded
  whence leak audit --model DIR --token-ids F.npy  the same without a tokenizer
  whence leak audit --model path.py:build          your own: build() returns (model, content)   (docs/leak.md)
  whence leak audit --run 7c1e                     a stored run of 'whence leak compare' or of the arena

The shift test translates visible content and mask together and reports the share of the prediction variance that
changes (shift sensitivity). All measures are taken at several mask ratios, beside an untrained twin. Verdicts:
reconstructs nothing, no different from untrained, leaky, undecided, traces, clean (docs/leak.md).

Masked tokens are replaced by the mask token of the tokenizer. Causal language models have none: there the embedding
of a masked token is replaced by the mean of all token embeddings, and the target is the last hidden state of the same
model with nothing masked. In a causal model a token's position determines how many tokens it attends to; the table of
pathways separates what causal order explains from what is left. The output states which token was used.

Exit code 2: no tokenizer, nearly all tokens have one id, nothing varies, a measure is not finite, or --length exceeds
the positions of the model."""

COMPARE = """Compare mitigations: train masked models with and without them, over paired seeds

  whence leak compare                                            a first look: four treatments, three seeds
  whence leak compare --data basic_motions --backbone bimamba --mitigations none all content_gated --seeds 6
  whence leak compare --data planted:position=0.5 --mitigations none content_gated content_gated+position_prior
  whence leak compare --data mine.npy --window 8                 your own recordings: (time, channels)

The first mitigation is what the others are held against. Ctrl-C stops cleanly, and the same command resumes."""


TRAIN = """Train one masked model: one recording, one mitigation, one seed

  whence leak train --mitigation content_gated --steps 400
  whence leak train --data mine.npy --window 8"""

MITIGATIONS = """List the mitigations: what each can stop, and what it cannot

  whence leak mitigations"""


class Auditing(StoreOptions):
    """What is audited, and how."""

    model: str | None = Field(default=None, description="minilm, smollm2, a directory, or FILE.py:FUNCTION")
    run: str | None = Field(default=None, description="a stored run, by the first digits of its id")
    text: str | None = Field(default=None, description="text file that a language model reads; none: Python's manual")
    token_ids: str | None = Field(
        default=None, description=".npy file of token ids (rows, tokens) in place of text; needs no tokenizer"
    )
    mask_token_id: int | None = Field(
        default=None, ge=0, description="with token_ids: id of the mask token; none: the mean of all token embeddings"
    )
    rows: int | None = Field(default=None, ge=5, le=1000, description="number of examples of text; none: 24")
    length: int | None = Field(
        default=None, ge=12, le=4096, description="tokens per example of text; none: 64, or as many as the model takes"
    )
    ratios: Annotated[tuple[float, ...], AfterValidator(shares)] = Field(
        default=RATIOS, description="mask ratios, above 0 and up to 1"
    )
    seed: int = Field(default=0, ge=0, description="seed of the masks, and of the noise of models that draw any")


# --- audit


def _audit(invocation: Invocation) -> int:
    options = invocation.options(Auditing)
    if (options.model is None) == (options.run is None):
        raise UserError("model: name a model or a stored run. Allowed: --model or --run.", field="model")
    from whence.leak.audit.auditing import audit
    from whence.leak.page import audit_page
    from whence.report.shell import write
    from whence.store.runs import Store

    store = Store(options.store)
    with progress_line("loading the model") as on_progress:
        target = _target(options, store)
        found = audit(target, options.ratios, seed=options.seed, on_progress=on_progress)
        again = invocation.command
        store.prepare()
        report = write("audit", audit_page(found, again), store.reports)
    if options.json_:
        print_json({**found.to_json(), "report": str(report), "again": again})
        return 0
    print_audit(found)
    print(f"report  {report}")
    return 0


def _target(options: Auditing, store: Any) -> AuditTarget:
    if options.run is not None:
        return _stored(options.run, store)
    assert options.model is not None
    if ".py:" in options.model:
        from whence.leak.audit.targets.user_file import load as load_file

        return load_file(options.model)
    from whence.leak.audit.targets.pretrained import load, load_ids

    if options.token_ids is not None:
        unused = [name for name in ("text", "rows", "length") if getattr(options, name) is not None]
        if unused:
            raise UserError(
                f"{unused[0]}: applies to text, but --token-ids is given. Pass one of them.", field=unused[0]
            )
        return load_ids(options.model, options.token_ids, options.mask_token_id)
    if options.mask_token_id is not None:
        raise UserError("mask_token_id: requires --token-ids; text is masked by its tokenizer.", field="mask_token_id")
    text = None
    if options.text is not None:
        try:
            text = Path(options.text).read_text()
        except (OSError, UnicodeDecodeError):
            raise UserError(f"text: {options.text!r} cannot be read as text.", field="text") from None
    return load(options.model, text, options.rows, options.length)


def _stored(word: str, store: Any) -> AuditTarget:
    from whence.leak.audit.targets.arena_run import arena_run_target
    from whence.leak.audit.targets.masked_run import leak_run_target
    from whence.leak.run import LeakRun
    from whence.store.runs import open_finished_run

    with open_finished_run(store, word) as (folder, run):
        return leak_run_target(run, folder) if isinstance(run, LeakRun) else arena_run_target(run, folder)


def print_audit(found: Audit) -> None:
    print(f"{found.name}: {found.rows} examples of {found.tokens} tokens\n")
    for sentence in [*found.verdict.sentences, *found.facts]:
        print(f"  {sentence}")
    print()
    columns = [
        "mask ratio",
        "",
        "error",
        "|r|",
        "chance",
        "target",
        "η²",
        "target",
        "similarity",
        "centered",
        "variance",
    ]
    columns += ["R²", "±", "p", "pattern", "shift", "content", "gradient"]
    rows = []
    for ratio, trained in found.ratios.items():
        rows.append([f"{float(ratio):g}", "model", *_numbers(trained)])
        if ratio in found.untrained:
            rows.append(["", "untrained", *_numbers(found.untrained[ratio])])
    print_table("predictions of masked tokens", columns, rows)
    print()
    if found.profile:
        ratio = next(iter(found.profile.values())).get("ratio", 0)
        print_table(
            f"activations at masked tokens, mask ratio {ratio:g}: shift sensitivity, and R² of a probe for position",
            ["layer", "shift", "", "untrained", "R²", "shape", "p", "untrained", "mask pattern"],
            [_layer(name, layer) for name, layer in found.profile.items()],
        )
        print()
    if found.sources:
        print_table(
            "pathways (shift sensitivity, mean over mask ratios below 1)",
            ["pathway", "where", "", "with all", "without it", "it alone"],
            [
                [s["name"], s["where"], s["note"], *(number(s[key]) for key in ("with_all", "without", "alone"))]
                for s in found.sources
            ],
        )
        print()
    print("thresholds  " + " · ".join(f"{name} {value:g}" for name, value in found.verdict.thresholds.items()))


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


# --- mitigations


def _mitigations(invocation: Invocation) -> int:
    options = invocation.options(OutputOptions)
    from whence.cli.catalog import options_text, registry_options
    from whence.leak.mitigations import MITIGATIONS

    if options.json_:
        keys = ("name", "stops", "leaves")
        print_json([{key: getattr(one, key) for key in keys} | {"summary": one.summary()} for one in MITIGATIONS])
        return 0
    print_table(
        "mitigations",
        ["name", "what it does", "stops", "leaves", "options"],
        [
            [m.name, m.summary(), m.stops, m.leaves, options_text(registry_options(MITIGATIONS, m.name))]
            for m in MITIGATIONS
        ],
    )
    return 0


VERBS = {
    "audit": Verb(AUDIT, _audit),
    "compare": instrument.compare("leak", COMPARE),
    "train": instrument.train("leak", TRAIN),
    "mitigations": Verb(MITIGATIONS, _mitigations),
    "report": report_verb("leak"),
}
