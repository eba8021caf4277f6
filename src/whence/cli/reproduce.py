"""`whence reproduce`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from whence.cli.options import Engine, parse_options
from whence.cli.output import print_json, print_table, stderr
from whence.errors import not_allowed

if TYPE_CHECKING:
    from whence.arena.claims import Claim, Judgement

DESCRIPTION = """Check published claims about positional encodings: run the preset of each, and judge it by the table.

  whence reproduce                        what there is to check, and what the stored runs say so far (runs nothing)
  whence reproduce claim_even_pairs       run what is missing, then judge
  whence reproduce --all                  all of them (see 'whence presets' for what each costs)

A claim is reproduced, not reproduced, or not decidable at this size, with the reason."""


class Reproducing(Engine):
    """Where and how to run: none of this changes what a run is."""

    all: bool = Field(default=False, description="run the presets of all claims")


def main(arguments: list[str]) -> int:
    options, words = parse_options(
        Reproducing, arguments, prog="whence reproduce CLAIM…", description=DESCRIPTION, words=True
    )
    from whence.arena.claims import CLAIMS, judge
    from whence.arena.config import ArenaConfig
    from whence.arena.instrument import ARENA, PRESETS
    from whence.cli.live import Watcher
    from whence.cli.sweep import exit_code
    from whence.experiments.comparison import check_plan, run_comparison, tables_of
    from whence.experiments.saved import read_config
    from whence.store.runs import Store

    for word in words:
        if word not in CLAIMS:
            raise not_allowed("claim", word, list(CLAIMS))
    if options.print_spec:
        print_json(
            {name: read_config(PRESETS.path(name), ArenaConfig).model_dump(mode="json") for name in words or CLAIMS}
        )
        return 0
    store, code = Store(options.store), 0
    found: dict[str, Judgement] = {}
    for name, claim in CLAIMS.items():
        spec = read_config(PRESETS.path(name), ArenaConfig)
        if name in words or options.all:
            stderr.print(f"{name}: {len(check_plan(ARENA, spec, store))} runs", highlight=False)
            result = run_comparison(ARENA, spec, store, options.execution, watch=Watcher)
            code = max(code, exit_code(result.ends))
            if result.interrupted:
                return code
        with stderr.status(f"judging {name}"):
            found[name] = judge(claim, tables_of(ARENA, spec, store))
    if options.json_:
        print_json([_document(CLAIMS[name], judgement) for name, judgement in found.items()])
        return code
    print_table(
        "published claims",
        ["claim", "who", "says", "here", "because"],
        [[n, CLAIMS[n].who, CLAIMS[n].says, judgement.outcome, judgement.reason] for n, judgement in found.items()],
    )
    return code


def _document(claim: Claim, judgement: Judgement) -> dict[str, str]:
    return {
        "claim": claim.preset,
        "who": claim.who,
        "says": claim.says,
        "outcome": judgement.outcome,
        "reason": judgement.reason,
    }
