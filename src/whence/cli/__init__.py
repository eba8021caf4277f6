"""The command line: `whence VERB …`. This file knows the verbs' names and imports nothing heavy."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence

from whence import __version__
from whence.errors import UserError, not_allowed

VERBS = {
    "arena": "compare positional encodings on tasks, within and beyond the training length",
    "leak": "does a masked model predict from content or from position, and what stops it?",
    "features": "which learned features are about position? sparse autoencoders that know where",
    "fields": "a picture, a sound or a volume at any resolution, from learnable position tokens",
    "app": "the lab in a browser",
    "train": "train one model: one task, one encoding, one seed",
    "report": "a page, picture or table of stored runs and comparisons",
    "compare": "two stored comparisons: what was changed, and what changed with it",
    "presets": "comparisons that come with whence: what each is, costs and should give",
    "reproduce": "check published claims: run their presets and judge them",
    "encodings": "list the positional encodings, where each enters and what it does past training",
    "tasks": "list the tasks and the scores that need no skill",
    "runs": "list, show, export, verify, resume or remove stored runs",
}

SLOW_TO_START = ("arena", "leak", "features", "fields", "train", "report", "compare", "reproduce")

HELP = f"""whence {__version__}: whence does a model know where?

usage: whence VERB [options]

{chr(10).join(f"  {verb:<10} {line}" for verb, line in VERBS.items())}

Try first:
  whence arena --tasks k_back_recall --encodings rope alibi none --seeds 3
  whence encodings

Every verb: --help teaches it, --json prints one JSON document on standard output.
Runs are kept in ./whence-runs, $WHENCE_STORE or --store DIR; a repeated command goes on where it stopped.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Exit code: 0 done, 1 some run failed or a file is corrupt, 2 bad input, 130 interrupted."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if arguments[0] in ("-V", "--version"):
        print(__version__)
        return 0
    try:
        verb = arguments[0]
        if verb not in VERBS:
            raise not_allowed("verb", verb, list(VERBS))
        if verb in SLOW_TO_START and sys.stderr.isatty():
            print("whence: starting (loading torch) …", file=sys.stderr)
        return importlib.import_module(f"whence.cli.{verb}").main(arguments[1:])
    except SystemExit as leaving:  # argparse leaves by itself after --help
        return int(leaving.code or 0)
    except UserError as error:
        if "--json" in arguments:
            print(json.dumps({"error": {"field": error.field, "message": str(error)}}))
        print(f"whence: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("whence: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0


if __name__ == "__main__":
    main()
