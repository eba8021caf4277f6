"""`whence reproduce`."""

from __future__ import annotations

from pydantic import Field

from whence.cli.options import EngineOptions, Invocation, Verb
from whence.cli.output import exit_code, print_json, print_note, print_table, stderr
from whence.cli.progress import watch_runs
from whence.errors import not_allowed
from whence.experiments.options import positional

DESCRIPTION = """Check published claims about positional encodings by running a comparison for each

  whence reproduce                        list the claims with the verdicts of stored runs; runs nothing
  whence reproduce claim_even_pairs       run the comparison of one claim and judge it
  whence reproduce --all                  all claims ('whence arena presets' shows the time that each takes)

The verdict is reproduced, not reproduced, or not decidable at this size. The reason is printed with it."""


class ReproduceOptions(EngineOptions):
    claims: tuple[str, ...] = Field(
        default=(),
        description="claims to check; default: list all with the verdicts of stored runs",
        json_schema_extra=positional("CLAIM"),
    )
    all: bool = Field(default=False, description="check all claims")


def _reproduce(invocation: Invocation) -> int:
    options = invocation.options(ReproduceOptions)
    from whence.arena.claims import CLAIMS, judge
    from whence.arena.instrument import ARENA, PRESETS
    from whence.experiments.comparison import check_plan, run_comparison, tables_of
    from whence.stats import count
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
            print_note(f"{name}: {count(len(check_plan(ARENA, config, store)), 'run')}")
            result = run_comparison(ARENA, config, store, options, watch=watch_runs(store))
            code = max(code, exit_code(result.ends, invocation.command))
            if result.interrupted:
                return code
        with stderr.status(f"Judging {name}"):
            judgement = judge(claim, tables_of(ARENA, config, store))
        judged.append({"claim": name, "authors": claim.authors, "statement": claim.statement, **judgement._asdict()})
    if options.json_:
        print_json(judged)
    else:
        rows = [list(one.values()) for one in judged]
        print_table("Published claims", ["claim", "authors", "statement", "verdict", "reason"], rows)
    return code


VERBS = {"reproduce": Verb(DESCRIPTION, _reproduce)}
