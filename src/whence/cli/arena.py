"""`whence arena …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.cli import instrument
from whence.cli.report import report_verb

if TYPE_CHECKING:
    from whence.arena.run import ArenaRun
    from whence.experiments.instrument import OnProgress
    from whence.store.runs import Store

COMPARE = """Compare positional encodings on tasks, in distribution and out of distribution.

  whence arena compare                                           four tasks, four encodings, three seeds
  whence arena compare --tasks k_back_recall --encodings rope alibi none --seeds 7
  whence arena compare --preset source_encodings                 a preset ('whence arena presets' lists them)
  whence arena compare --tasks long_range_match --encodings rope randomized+rope:base=500 --steps 1000
  whence arena compare --mixer bimamba
  whence arena compare --tasks k_back_recall --sweep "d_model=64,128;k=1,3,7" --workers 2
  whence arena compare --tasks copy --tune lr=0.001,0.003        tune the learning rate of each encoding
  whence arena compare --tasks copy --against rope --seeds 8     compare with one encoding only: needs fewer seeds
  whence arena compare --tasks copy --encodings rope t5 --until-decided --max-seeds 20

For one seed, all encodings are trained on the same data from the same initial weights. Every accuracy is first tested
against the shortcut baseline: the best accuracy of a predictor that lacks the skill of the task. Cells that are not
above it are marked "at chance" and are not ranked. OOD accuracy is reported only for encodings with at least 95 % ID.
Ctrl-C stops the comparison, and the same command resumes it."""

TRAIN = """Train one model: one task, one encoding, one seed.

  whence arena train --task k_back_recall:k=5 --encoding rope --steps 600
  whence arena train --encoding alibi --positions randomized:span=512

The id of a run is a hash of its configuration. The same command returns a finished run from the store, and resumes an
interrupted one with bit-identical results."""

SHOW = """Write the report page of one run.

  whence arena show 7c1e                          into the reports of the store
  whence arena show 7c1e --out run.html           to a file"""


def _page(run: ArenaRun, store: Store, command: str, on_progress: OnProgress) -> bytes:
    from whence.arena.instrument import ARENA
    from whence.experiments.export import report_on_runs

    return report_on_runs([run], store, lambda name: ARENA).html()


VERBS = {
    "compare": instrument.compare("arena", COMPARE),
    "train": instrument.train("arena", TRAIN),
    "show": instrument.show("arena", SHOW, _page),
    "report": report_verb("arena"),
    "presets": instrument.presets("arena"),
}
