"""Leak: a bidirectional Mamba that predicts masked tokens from their position, and the mitigation that prevents it."""

from __future__ import annotations

import plotly.graph_objects as go
from markupsafe import Markup

from whence.demo.section import Content, Context, Section, Size, small
from whence.experiments.options import command, set_fields
from whence.experiments.page import table_html
from whence.experiments.table import Table
from whence.formatting import share
from whence.leak.audit.artifact import AUDIT
from whence.leak.config import AuditConfig, LeakConfig
from whence.leak.instrument import LEAK
from whence.leak.metrics import Audit
from whence.leak.page import predictions_by_position
from whence.leak.run import LeakRun
from whence.report.html import badges, bullets, heading
from whence.report.shell import plot

BEFORE, AFTER = "none", "content_gated"
CONFIGS: dict[Size, LeakConfig] = {
    "full": LeakConfig.read(
        {
            "data": "synthetic:position=0.3,steps=96",
            "mitigations": [BEFORE, AFTER],
            "seeds": 3,
            "training": {"steps": 400},
        }
    ),
    "quick": LeakConfig.read(
        {
            "data": "synthetic:position=0.3,steps=64",
            "mitigations": [BEFORE, AFTER],
            "seeds": 1,
            "masking": {"test_rows": 64},
            "training": {"steps": 150, "evaluations": 1},
        }
    ),
}


def build(context: Context) -> Content:
    config = CONFIGS[context.size]
    context.progress.phase(0.7, "starting the workers")
    result = context.compare(LEAK, config)
    table = result.tables[0]
    audits: dict[str, Audit] = {}
    for row in table.rows:
        context.progress.phase(0.15, f"auditing {row.name}")
        audits[row.name] = AUDIT.run(
            AuditConfig(run=row.results[0].run.id, ratios=(0.5, 1.0)), context.store, context.progress.note
        ).result
    before, after = (_same_range(predictions_by_position(audits[name]), audits) for name in (BEFORE, AFTER))
    figures = LEAK.figures(table)
    findings = table.findings
    body = [
        Markup("<div class=pair>{}{}</div>").format(
            _panel("without mitigation", audits[BEFORE], before), _panel(AFTER, audits[AFTER], after)
        ),
        Markup("<p class=note>{}</p>").format(
            "Every token is masked, so that a prediction can depend on nothing but position. Each line is one output "
            "channel of the first seed. A model without leakage predicts the same at every position."
        ),
        heading("Measured now", f"{table.heading}.", level=3),
        table_html(LEAK, table),
        bullets(findings[2:]),
        *(part for name, figure in figures.items() for part in (heading(name, level=3), plot(figure))),
    ]
    return Content(
        headline=_headline(table),
        picture=Markup("<div class=pair>{}{}</div>").format(small(before), small(after)),
        verdict=" ".join(findings[:2]),
        body=body,
        command=command(("leak", "compare"), LeakConfig, set_fields(config)),
        further={
            f"whence leak compare --data {config.data} --mitigations none zero_masked_positions all content_gated "
            "--seeds 6": "Compares all mitigations with enough seeds for a verdict on what each costs.",
            "whence leak audit --model FILE.py:FUNCTION": "Audits your own masked model and reports the pathways "
            "through which position enters it.",
        },
        runs=[run.id for run in table.planned.runs],
        numbers={"table": table.to_json()},
    )


def _headline(table: Table[LeakRun]) -> str:
    """How much of a prediction position determines, where every token is masked."""
    before, after = (share(table.row(name).cell("position_variance@1").mean or 0.0) for name in (BEFORE, AFTER))
    return (
        f"With every token masked, predictions still vary by {before} of the target variance; with {AFTER}, by {after}."
    )


def _panel(title: str, audit: Audit, figure: go.Figure) -> Markup:
    head = Markup("<figcaption><b>{}</b> {}</figcaption>").format(title, badges(audit.verdict.notes))
    return Markup("<figure>{}{}</figure>").format(head, plot(figure))


def _same_range(figure: go.Figure, audits: dict[str, Audit]) -> go.Figure:
    """Figures side by side share an axis."""
    values = [value for audit in audits.values() for line in audit.means.prediction for value in line]
    margin = 0.08 * (max(values) - min(values) or 1.0)
    return figure.update_yaxes(range=[min(values) - margin, max(values) + margin])


SECTION = Section(
    name="leak",
    title="Does a masked model predict from content, or only from position?",
    question="A bidirectional Mamba reconstructs masked parts of smooth random signals. A template that is the same "
    "in every example gives it something to learn from position alone.",
    build=build,
    seconds={"full": 45, "quick": 15},
)
