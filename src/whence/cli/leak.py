"""`whence leak …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from whence.cli import instrument
from whence.cli.options import Invocation, OutputOptions, StoreOptions, Verb
from whence.cli.output import print_json, print_table, print_text
from whence.cli.report import report_verb
from whence.experiments.options import positional
from whence.formatting import number

if TYPE_CHECKING:
    from whence.experiments.instrument import OnProgress
    from whence.leak.audit.artifact import AuditArtifact
    from whence.leak.metrics import LayerComparison, RatioMetrics
    from whence.store.runs import Store

AUDIT = """Measure position leakage of a masked model and the pathways through which position enters

A masked model can predict a token from its context or merely from its position. The second case,
position leakage, gives a low training loss without useful representations. The audit reports how much
of the prediction variance depends on absolute position, in which layer the dependence begins, and
through which pathways position enters.

Examples:
  whence leak audit --model minilm                      # packaged: a BERT with learned absolute positions
  whence leak audit --model smollm2                     # packaged: a causal model with rotary positions
  whence leak audit --model ./my-bert                   # a directory with a transformers model
  whence leak audit --model ./gpt2 --token-ids ids.npy  # a model without a tokenizer, on your token ids
  whence leak audit --model mine.py:build               # your own module: build() returns (model, examples)
  whence leak audit --run 7c1e --ratios 0.5 1           # a stored run of leak or arena, at two mask ratios

Method: the shift test translates visible content and mask together. Shift sensitivity is the share of
the prediction variance that this causes; it is 0 for a model that uses relative context only. All
measures are taken at several mask ratios and compared with an untrained twin. Verdicts: leaky, traces,
undecided, clean, reconstructs nothing, no different from untrained (docs/leak.md).

Masked tokens: the mask token of the tokenizer is used. Causal language models have none, so that the
embeddings of masked tokens are replaced by the mean of all token embeddings. The target is the last
hidden state of the same model with nothing masked. The output states the replacement.

Audits are stored. The same command prints the stored audit, unless --force is given or the model is
FILE.py:FUNCTION. Nothing is downloaded.

Exit code 2: the audit is not possible, e.g. there is no tokenizer, nearly all tokens have the same id,
outputs are constant or not finite, or --length exceeds the positions of the model."""

COMPARE = """Compare mitigations of position leakage: train masked models with and without them

All variants are trained on the same data with the same seeds. The table shows the leakage that remains
and the reconstruction error, with tests against the first variant, the reference.

Examples:
  whence leak compare                                          # four variants, three seeds: exploratory
  whence leak compare --mitigations none content_gated --seeds 6   # enough seeds for significance tests
  whence leak compare --data synthetic:position=0.5 --mitigations none content_gated+position_prior
                                                     # position carries half of the data variance
  whence leak compare --data mine.npy --window 8     # your recordings, 8 time steps per token

'whence leak mitigations' lists the mitigations. Ctrl-C stops cleanly, and the same command resumes."""


TRAIN = """Train one masked model with one mitigation and one seed

The run is stored with its leakage measures, and can be audited layer by layer with 'whence leak audit --run ID'.

Examples:
  whence leak train --mitigations content_gated --steps 400   # one mitigation, 400 optimizer steps
  whence leak train --data mine.npy --window 8                # your recordings, without a mitigation"""

SHOW = """Print a stored audit and write its page

Examples:
  whence leak show 3f2a      # by the first digits of the id that 'whence leak audit' prints"""

MITIGATIONS = """List the mitigations: which leakage each prevents, which it cannot prevent, and its options

Examples:
  whence leak mitigations             # a table
  whence leak mitigations --json      # the same as JSON

Write one as NAME:OPTION=VALUE, and join several with a plus sign:  content_gated:reach=16+position_prior"""


class ShowAuditOptions(StoreOptions):
    """The audit to show."""

    audit: str = Field(description="first digits of the id of a stored audit", json_schema_extra=positional("AUDIT"))


def _show(invocation: Invocation) -> int:
    options = invocation.options(ShowAuditOptions)
    from whence.leak.audit.artifact import AUDITS

    store = options.open_store()
    artifact = AUDITS.open(options.audit, store)
    report = instrument.write_page(artifact, store, invocation, _page, lambda message: None)
    if options.json_:
        print_json({"artifact": artifact.path.stem, "report": str(report), "command": invocation.command})
        return 0
    print_audit(artifact)
    print_text(f"report  {report}")
    return 0


def _page(artifact: AuditArtifact, store: Store, command: str, on_progress: OnProgress) -> bytes:
    from whence.leak.page import audit_page

    return audit_page(artifact)


def print_audit(artifact: AuditArtifact) -> None:
    from whence.leak.page import PATHWAY_COLUMNS, pathway_rows

    audit = artifact.result
    print_text(f"{audit.name}: {audit.rows} examples of {audit.tokens} tokens\n")
    for sentence in [*audit.verdict.sentences, *audit.facts]:
        print_text(f"  {sentence}")
    print_text()
    rows = []
    for ratio, metrics in audit.ratios.items():
        rows.append([f"{ratio:g}", "model", *_ratio_cells(metrics)])
        if ratio in audit.untrained:
            rows.append(["", "untrained", *_ratio_cells(audit.untrained[ratio])])
    print_table("Predictions of masked tokens", ["mask ratio", "", *RATIO_COLUMNS], rows, caption=RATIO_CAPTION)
    print_text()
    if profile := audit.profile:
        print_table(
            f"Activations at masked tokens, mask ratio {profile.ratio:g} (probe R² of the mask pattern alone: "
            f"{_short(profile.pattern_r2)})",
            ["layer", "shift sensitivity", "", "untrained", "probe R²", "function", "p", "untrained"],
            [_layer_cells(name, layer) for name, layer in profile.layers.items()],
        )
        print_text()
    if audit.pathways:
        title = "Pathways (shift sensitivity, mean over mask ratios below 1)"
        print_table(title, PATHWAY_COLUMNS, pathway_rows(audit))
        print_text()
    thresholds = [f"{name} {value:g}" for name, value in audit.verdict.thresholds.items()]
    print_text(f"thresholds  {' · '.join(thresholds)}")


RATIO_COLUMNS = [
    "shift sensitivity",
    "position variance",
    "normalized MSE",
    "probe R²",
    "p",
    "pattern R²",
    "mean |r|",
    "chance |r|",
    "content effect",
]
RATIO_CAPTION = (
    "Shift sensitivity, content effect: shares of the prediction variance changed by translating content and mask, and "
    "by permuting visible content. Position variance: relative to the target variance. Normalized MSE: 1 = predicting "
    "the mean. Probe R², pattern R²: position decoded from predictions, and from the mask alone."
)


def _ratio_cells(metrics: RatioMetrics) -> list[str]:
    probe, content = metrics.probe, metrics.content
    values = [metrics.shift.sensitivity, metrics.position_variance, metrics.error]
    values += [probe and probe.best, probe and probe.p, metrics.pattern_r2]
    values += [metrics.correlation, metrics.correlation_chance, content and content.permuted]
    return [_short(value) for value in values]


def _layer_cells(name: str, layer: LayerComparison) -> list[str]:
    trained, untrained = layer.trained, layer.untrained
    return [
        name,
        _short(trained.shift),
        "█" * round(20 * trained.shift),
        _short(untrained and untrained.shift),
        _short(trained.probe and trained.probe.best),
        trained.probe.shape if trained.probe else "",
        _short(trained.probe and trained.probe.p),
        _short(untrained and untrained.probe and untrained.probe.best),
    ]


def _short(value: float | None) -> str:
    return number(value, undefined="–")


def _mitigations(invocation: Invocation) -> int:
    options = invocation.options(OutputOptions)
    from whence.cli.catalog import options_text, registry_options
    from whence.leak.mitigations import MITIGATIONS

    if options.json_:
        keys = ("name", "stops", "leaves")
        print_json([{key: getattr(one, key) for key in keys} | {"summary": one.summary()} for one in MITIGATIONS])
        return 0
    print_table(
        "Mitigations",
        ["name", "method", "prevents", "does not prevent", "options"],
        [
            [m.name, m.summary(), m.stops, m.leaves, options_text(registry_options(MITIGATIONS, m.name))]
            for m in MITIGATIONS
        ],
    )
    return 0


VERBS = {
    "audit": instrument.action("leak", "audit", AUDIT, print_audit, _page),
    "compare": instrument.compare("leak", COMPARE),
    "train": instrument.train("leak", TRAIN),
    "show": Verb(SHOW, _show),
    "mitigations": Verb(MITIGATIONS, _mitigations),
    "report": report_verb("leak"),
}
