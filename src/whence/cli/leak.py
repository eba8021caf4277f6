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

  whence leak audit --model minilm                 MiniLM, a BERT with learned absolute positions (a package)
  whence leak audit --model smollm2                SmolLM2-135M, a Llama (a package)
  whence leak audit --model DIR                    any transformers model in a directory; nothing is downloaded
  whence leak audit --model DIR --token-ids F.npy  the same without a tokenizer
  whence leak audit --model path.py:build          your own: build() returns (model, content)   (docs/leak.md)
  whence leak audit --run 7c1e                     a stored run of 'whence leak compare' or of the arena

The shift test translates visible content and mask together and reports the share of the prediction variance that
changes (shift sensitivity). All measures are taken at several mask ratios, beside an untrained twin. Verdicts:
reconstructs nothing, no different from untrained, leaky, undecided, traces, clean (docs/leak.md).

An audit is stored. The same command shows it again without measuring, unless the model is FILE.py:FUNCTION or --force
is given.

Masked tokens are replaced by the mask token of the tokenizer. Causal language models have none: there the embedding
of a masked token is replaced by the mean of all token embeddings, and the target is the last hidden state of the same
model with nothing masked. In a causal model a token's position determines how many tokens it attends to; the table of
pathways separates what causal order explains from what is left. The output states which token was used.

Exit code 2: no tokenizer, nearly all tokens have one id, nothing varies, a measure is not finite, or --length exceeds
the positions of the model."""

COMPARE = """Compare mitigations: train masked models with and without them, over paired seeds

  whence leak compare                                            a first look: four treatments, three seeds
  whence leak compare --data basic_motions --backbone bimamba --mitigations none all content_gated --seeds 6
  whence leak compare --data synthetic:position=0.5 --mitigations none content_gated content_gated+position_prior
  whence leak compare --data mine.npy --window 8                 your own recordings: (time, channels)

The first mitigation is what the others are held against. Ctrl-C stops cleanly, and the same command resumes."""


TRAIN = """Train one masked model: one recording, one mitigation, one seed

  whence leak train --mitigation content_gated --steps 400
  whence leak train --data mine.npy --window 8"""

SHOW = """Show a stored audit again, and write its page

  whence leak show 3f2a                            by the first digits of its id"""

MITIGATIONS = """List the mitigations: what each can stop, and what it cannot

  whence leak mitigations"""


class ShowAuditOptions(StoreOptions):
    """Which audit to show."""

    audit: str = Field(description="first digits of the audit's id", json_schema_extra=positional("AUDIT"))


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
    columns = "error |r| chance target η² target similarity centered variance R² ± p pattern shift content gradient"
    print_table("predictions of masked tokens", ["mask ratio", "", *columns.split()], rows)
    print_text()
    if profile := audit.profile:
        print_table(
            f"activations at masked tokens, mask ratio {profile.ratio:g}: shift sensitivity, and R² of a probe for "
            f"position (mask pattern alone: {_short(profile.pattern_r2)})",
            ["layer", "shift", "", "untrained", "R²", "shape", "p", "untrained"],
            [_layer_cells(name, layer) for name, layer in profile.layers.items()],
        )
        print_text()
    if audit.pathways:
        title = "pathways (shift sensitivity, mean over mask ratios below 1)"
        print_table(title, PATHWAY_COLUMNS, pathway_rows(audit))
        print_text()
    print_text("thresholds  " + " · ".join(f"{name} {value:g}" for name, value in audit.verdict.thresholds.items()))


def _ratio_cells(metrics: RatioMetrics) -> list[str]:
    m, probe, content = metrics, metrics.probe, metrics.content
    values = [m.error, m.correlation, m.correlation_chance, m.correlation_target, m.eta2, m.eta2_target]
    values += [m.similarity, m.similarity_centered, m.position_variance]
    values += [probe.best, probe.mae, probe.p] if probe else [None, None, None]
    values += [m.pattern_r2, m.shift.sensitivity, content.permuted if content else None, m.gradient]
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
        "mitigations",
        ["name", "what it does", "stops", "leaves", "options"],
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
