"""`whence arena`."""

from __future__ import annotations

from pydantic import Field

from whence.cli.options import Engine

DESCRIPTION = """Compare positional encodings on tasks, within the training length and beyond it.

  whence arena                                           four tasks, four encodings, three seeds: a first look
  whence arena --tasks k_back_recall --encodings rope alibi none --seeds 7
  whence arena --preset source_encodings                 (see 'whence presets')
  whence arena --tasks long_range_match --encodings rope randomized+rope:base=500 --steps 1000
  whence arena --mixer bimamba
  whence arena --tasks k_back_recall --sweep "d_model=64,128;k=1,3,7" --workers 2
  whence arena --tasks copy --tune lr=0.001,0.003        (for each encoding, chosen on seeds that are not reported)
  whence arena --tasks copy --against rope --seeds 8     (compare with one encoding: fewer comparisons, fewer seeds)
  whence arena --tasks copy --encodings rope t5 --until-decided --max-seeds 20

For one seed, every encoding sees the same data and starts from the same weights. A cell is first tested against
the best score that a shortcut without the skill would reach; what cannot be told from it is at chance and never
ranked. Scores beyond training are given only for encodings that mastered the task within it. Ctrl-C stops cleanly,
and the same command goes on."""


class Timed(Engine):
    """Where and how to run: none of this changes what a run is."""

    minutes: float | None = Field(
        default=None, gt=0, description="add no more seeds to --until-decided after this long"
    )


def main(arguments: list[str]) -> int:
    from whence.arena.instrument import ARENA
    from whence.cli.compare_verb import compare

    return compare(ARENA, arguments, DESCRIPTION, Timed)
