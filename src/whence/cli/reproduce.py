"""`whence reproduce`."""

from __future__ import annotations

from pydantic import Field

from whence.cli.options import EngineOptions, Invocation, Verb
from whence.cli.output import exit_code, print_json, print_note, print_table, stderr
from whence.cli.progress import RunProgress
from whence.errors import not_allowed
from whence.experiments.options import positional

DESCRIPTION = """Check published claims about positional encodings: run the preset of each, and judge it by the table

  whence reproduce                        what there is to check, and what the stored runs say so far (runs nothing)
  whence reproduce claim_even_pairs       run what is missing, then judge
  whence reproduce --all                  all of them (see 'whence arena presets' for what each costs)

A claim is reproduced, not reproduced, or not decidable at this size, with the reason."""


class ReproduceOptions(EngineOptions):
    claims: tuple[str, ...] = Field(
        default=(), description="those to check; none: show what is known", json_schema_extra=positional("CLAIM")
    )
    all: bool = Field(default=False, description="run the presets of all claims")


def _reproduce(invocation: Invocation) -> int:
    options = invocation.options(ReproduceOptions)
    from whence.arena.claims import CLAIMS, judge
    from whence.arena.instrument import ARENA, PRESETS
    from whence.experiments.comparison import check_plan, run_comparison, tables_of
    from whence.store.runs import Store

    for name in options.claims:
        if name not in CLAIMS:
            raise not_allowed("claim", name, list(CLAIMS))
    if options.print_config:
        print_json({name: PRESETS.load(name).model_dump(mode="json") for name in options.claims or CLAIMS})
        return 0
    store, code = Store(options.store), 0
    judged: list[dict[str, str]] = []
    for name, claim in CLAIMS.items():
        config = PRESETS.load(name)
        if name in options.claims or options.all:
            print_note(f"{name}: {len(check_plan(ARENA, config, store))} runs")
            result = run_comparison(ARENA, config, store, options, watch=RunProgress)
            code = max(code, exit_code(result.ends, invocation.command))
            if result.interrupted:
                return code
        with stderr.status(f"judging {name}"):
            judgement = judge(claim, tables_of(ARENA, config, store))
        judged.append({"claim": name, "who": claim.who, "says": claim.says, **judgement._asdict()})
    if options.json_:
        print_json(judged)
    else:
        rows = [list(one.values()) for one in judged]
        print_table("published claims", ["claim", "who", "says", "here", "because"], rows)
    return code


VERBS = {"reproduce": Verb(DESCRIPTION, _reproduce)}
