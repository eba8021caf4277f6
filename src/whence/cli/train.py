"""`whence train`."""

from __future__ import annotations

from whence.cli.options import Engine, parse
from whence.cli.output import print_json
from whence.formatting import duration, percent

DESCRIPTION = """Train one model: one task, one encoding, one seed.

  whence train --task k_back_recall:k=5 --encoding rope --steps 600
  whence train --encoding alibi --positions randomized:span=512

The run is kept under an id made of what was asked for. Asked for again, a finished run is not repeated and an
unfinished one goes on where it stopped, bit for bit as if it had never been interrupted."""


def main(arguments: list[str]) -> int:
    from whence.arena.run import ArenaRun
    from whence.cli.sweep import execute_runs, exit_code

    run, engine = parse(ArenaRun, Engine, arguments, prog="whence train", description=DESCRIPTION)
    if engine.print_spec:
        run.check()
        print_json({"id": run.id, **run.document()})
        return 0
    store, ends = execute_runs([run], engine)
    folder = store.folder(run.id)
    try:
        status = folder.status()
    except FileNotFoundError:  # stopped before it could begin, or another process is about to
        status = {"id": run.id, "state": ends[run.id], "step": 0, "steps": run.training.steps}
        status |= {"headline": {}, "seconds": 0.0}
    if engine.json_:
        print_json({"path": str(folder.path), **status})
        return exit_code(ends)
    if ends[run.id] == "busy":
        print(
            f"{run.id}  another process is running it; nothing was done here  step {status['step']}/{status['steps']}"
        )
        return exit_code(ends)
    scores = "  ".join(f"{name} {percent(value)} %" for name, value in status["headline"].items())
    print(
        f"{run.id}  {status['state']}  step {status['step']}/{status['steps']}  {scores}  {duration(status['seconds'])}"
    )
    if "error" in status:
        print(f"  {status['error']['message']}")
    print(f"  {folder.path}")
    return exit_code(ends)
