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

  whence arena compare                                           four tasks, four encodings, three seeds: a first look
  whence arena compare --tasks k_back_recall --encodings rope alibi none --seeds 7
  whence arena compare --preset source_encodings                 (see 'whence arena presets')
  whence arena compare --tasks long_range_match --encodings rope randomized+rope:base=500 --steps 1000
  whence arena compare --mixer bimamba
  whence arena compare --tasks k_back_recall --sweep "d_model=64,128;k=1,3,7" --workers 2
  whence arena compare --tasks copy --tune lr=0.001,0.003        (for each encoding, on seeds that are not reported)
  whence arena compare --tasks copy --against rope --seeds 8     (compare with one encoding: needs fewer seeds)
  whence arena compare --tasks copy --encodings rope t5 --until-decided --max-seeds 20

For one seed, every encoding sees the same data and starts from the same weights. A cell is first tested against
the best score that a shortcut without the skill would reach; what cannot be told from it is at chance and never
ranked. OOD scores are given only for encodings that mastered the task in distribution. Ctrl-C stops cleanly,
and the same command resumes."""

TRAIN = """Train one model: one task, one encoding, one seed.

  whence arena train --task k_back_recall:k=5 --encoding rope --steps 600
  whence arena train --encoding alibi --positions randomized:span=512

The run is stored under an id made of its configuration. Requested again, a finished run is not repeated and an
unfinished one resumes where it stopped, bit for bit as if it had never been interrupted."""

SHOW = """Write a page of one run.

  whence arena show 7c1e                          a page among the reports of the store
  whence arena show 7c1e --out run.html           the same page elsewhere"""


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
