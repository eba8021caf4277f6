"""Arena: four positional encodings on one task, a few seeds live beside many published ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from whence import stats
from whence.arena.config import ArenaConfig
from whence.arena.instrument import ARENA
from whence.arena.page import attention_of
from whence.arena.run import ArenaRun
from whence.arena.score import mastered
from whence.demo.published import published, side_by_side, table_of
from whence.demo.section import Content, Context, Section, Size, small
from whence.experiments.options import command, set_fields
from whence.experiments.page import table_html
from whence.experiments.table import Table
from whence.report.html import bullets, heading
from whence.report.shell import plot

TASK = "k_back_recall"
CONFIGS: dict[Size, ArenaConfig] = {
    "full": ArenaConfig.read(
        {
            "tasks": [TASK],
            "encodings": ["sinusoidal", "learned", "rope", "alibi"],
            "seeds": 3,
            "model": {"d_model": 64, "layers": 2},
            "lengths": {"test_lengths": [64, 128], "test_sequences": 128},
            "training": {"steps": 300},
        }
    ),
    "quick": ArenaConfig.read(
        {
            "tasks": [TASK],
            "encodings": ["sinusoidal", "learned", "rope", "alibi"],
            "seeds": 1,
            "model": {"d_model": 64, "layers": 2},
            "lengths": {"test_lengths": [64], "test_sequences": 64},
            "training": {"steps": 200, "evaluations": 5},
        }
    ),
}
RESULTS = {"fixed": "source_encodings", "tuned": "source_encodings_tuned"}
"""By the name of the settings, the published file"""
FIGURE = "Accuracy by position"


def build(context: Context) -> Content:
    config = CONFIGS[context.size]
    context.progress.phase(0.96, "starting the workers")
    result = context.compare(ARENA, config)
    context.progress.phase(0.04, "drawing")
    table = result.tables[0]
    figures = ARENA.figures(table)
    main = figures.get(FIGURE) or next(iter(figures.values()))
    claims = [line for line in table.findings if line.startswith(("ID:", "OOD:"))]
    body = [
        plot(main),
        Markup("<p class=note>{}.</p>").format(_settings(config)),
        heading("Measured now", f"{table.heading}.", level=3),
        table_html(ARENA, table),
        bullets(line for line in table.findings if line not in claims),
        *_published(config),
        *attention_of(table, context.store),
    ]
    return Content(
        headline=_headline(table),
        picture=small(main),
        verdict=" ".join(claims),
        body=body,
        command=command(("arena", "compare"), ArenaConfig, set_fields(config)),
        further={
            "whence arena compare --preset source_encodings": "Repeats the published table: four tasks, ten seeds.",
            "whence arena compare --tasks k_back_recall --encodings rope t5 fire --seeds 6": "Tests other encodings "
            "with enough seeds for a verdict ('whence encodings' lists them).",
        },
        runs=[run.id for run in table.planned.runs],
        numbers={"table": table.to_json()},
    )


def _headline(table: Table[ArenaRun]) -> str:
    """Accuracy out of distribution, of the encodings that learned the task."""
    means = {row.name: row.cell("ood").mean for row in table.rows if mastered(row)}
    known = sorted(((mean, name) for name, mean in means.items() if mean is not None), reverse=True)
    if not known:
        return "No encoding learned the task in so few steps."
    lengths = " and ".join(map(str, table.planned.run.test_lengths))
    scores = ", ".join(f"{name} {100 * mean:.0f} %" for mean, name in known)
    seeds = stats.count(table.seeds, "seed")
    return (
        f"Trained at length {table.planned.run.train_length}, accuracy at {lengths}: {scores} ({seeds}, exploratory)."
    )


def _settings(config: ArenaConfig) -> str:
    model, training = config.model, config.training
    size = f"d_model {model.d_model}, {stats.count(model.layers, 'layer')}"
    return f"Models: {size}, {training.steps} steps of {training.batch_size} sequences, lr {training.lr:g}"


def _published(config: ArenaConfig) -> list[Markup]:
    """The same task with many seeds."""
    results = {name: published(file) for name, file in RESULTS.items()}
    tables = {name: table_of(each, TASK) for name, each in results.items()}
    fixed = results["fixed"]["config"]
    note = (
        f"{tables['fixed']['seeds']} paired seeds, d_model {fixed['model']['d_model']}, "
        f"OOD at length {', '.join(map(str, fixed['lengths']['test_lengths']))}. Fixed: lr "
        f"{fixed['training']['lr']:g}, {fixed['training']['schedule']} schedule. Tuned: "
        f"{results['tuned']['config']['tune'].replace(';', ' × ')}, chosen for each encoding on validation data."
    )
    decided = _decided(tables["tuned"])
    return [
        heading("Published, with enough seeds for verdicts", note, level=3),
        side_by_side(tables, f"Published results on {TASK}"),
        bullets(decided),
    ]


def _decided(table: Mapping[str, Any]) -> list[str]:
    """Its findings that name a winner."""
    won = {(each["winner"], each["b" if each["winner"] == each["a"] else "a"]) for each in table["comparisons"]}
    return [line for line in table["findings"] if any({one, other} <= {*line.split()} for one, other in won if one)]


SECTION = Section(
    name="arena",
    title="Which positional encoding extrapolates?",
    question="Each model recalls the symbol three positions back. It is trained at length 32 and tested on longer "
    "sequences.",
    build=build,
    seconds={"full": 80, "quick": 18},
)
