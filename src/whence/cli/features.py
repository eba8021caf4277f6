"""`whence features …`."""

from __future__ import annotations

from pydantic import Field
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from whence.cli.options import Stored, dispatch, parse
from whence.cli.output import print_json, stderr

ACTIONS = {
    "collect": "hidden states of a model on text, each with its token, position and sequence",
}
HELP = """whence features: which learned features are about position?

usage: whence features ACTION [options]

""" + "".join(f"  {action:<8} {text}\n" for action, text in ACTIONS.items())
HELP += "\nEvery action: --help teaches it, --json prints one JSON document on standard output.\n"

COLLECT = """Collect hidden states with their positions. Ctrl-C stops cleanly, and the same command goes on.

  whence features collect --model minilm --layer 3 --tokens 500000
  whence features collect --model smollm2 --layer 15 --precision bf16 --name smollm2-middle
  whence features collect --text book.txt --context 256 --name book

The forward pass ends at the layer. Documents follow each other in sequences of --context tokens; one document in ten
is held out, and makes sequences of its own. Special tokens and the first position are flagged, and can be left out."""


class Collecting(Stored):
    """Where states are kept."""

    name: str = Field(default="", description="what to call them; none: model and layer")


def main(arguments: list[str]) -> int:
    return dispatch(arguments, HELP, {"collect": _collect})


def _collect(arguments: list[str]) -> int:
    from whence.features.activations import CONTENT, Activations
    from whence.features.collect import Collection, collect
    from whence.runs.store import Store

    spec, options = parse(Collection, Collecting, arguments, prog="whence features collect", description=COLLECT)
    store = Store(options.store)
    store.prepare()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr) as progress:
        task = progress.add_task("loading the model and the text", total=None)

        def tell(done: int, parts: int) -> None:
            progress.update(task, description="collecting", completed=done, total=parts)

        path = collect(spec, store, options.name, tell)
    found = Activations.open(store, path.name)
    facts = {
        "name": path.name,
        "path": str(path),
        "width": found.width,
        "context": found.context,
        "states": len(found.places("train")),
        "held_out": len(found.places("held out")),
        "special": int((found.flags != CONTENT).sum()) * len(found.tokens),
    }
    if options.json_:
        print_json(facts)
    else:
        print(
            f"{path.name}  {facts['states']:,} states of {found.width} numbers, {facts['held_out']:,} more held out, "
            f"{facts['special']:,} of special and first tokens beside  {path}"
        )
    return 0
