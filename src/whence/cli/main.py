"""The entry of the command line. This file knows the names of the commands and imports nothing heavy."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from whence import __version__
from whence.errors import UserError, not_allowed
from whence.formatting import visible
from whence.store.disk import CorruptFileError, explain

if TYPE_CHECKING:
    from whence.cli.options import Verb

INSTRUMENTS = {
    "arena": "Compare positional encodings on tasks, in distribution and out of distribution",
    "leak": "Measure position leakage in masked models and compare mitigations",
    "features": "Find position-specific features with sparse autoencoders",
    "fields": "Train fields that render a signal at any resolution (MAMBA-GINR)",
}
COMMANDS = {
    "demo": "Tour the four instruments: train small models and write one page of results",
    "runs": "List, show, export, resume, verify or remove stored runs",
    "report": "Write a page, picture or table of stored runs and comparisons, or compare two of them",
    "reproduce": "Check published claims: run their presets and judge them",
    "encodings": "List the positional encodings",
    "tasks": "List the tasks and their shortcut baselines",
    "app": "Open the lab in a browser",
}
SLOW_TO_START = (*INSTRUMENTS, "report", "reproduce")
OTHER_MODULES = {"encodings": "catalog", "tasks": "catalog"}
"""Commands that are not in the module of their name"""


def listed(commands: dict[str, str]) -> str:
    return "\n".join(f"  {name:<10} {line}" for name, line in commands.items())


HELP = f"""whence {__version__}: whence does a model know where?

usage: whence INSTRUMENT VERB [options]
       whence COMMAND [options]

Instruments ('whence INSTRUMENT' lists its verbs):
{listed(INSTRUMENTS)}

Commands:
{listed(COMMANDS)}

Try first:
  whence arena compare --tasks k_back_recall --encodings rope alibi none --seeds 3
  whence encodings

With --help every verb explains itself; with --json it prints one JSON document on standard output.
Runs are stored in ./whence-runs, $WHENCE_STORE or --store DIR; a repeated command resumes where it stopped.
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
        return run_command(*arguments)
    except SystemExit as leaving:  # after --help
        return int(leaving.code or 0)
    except UserError as error:
        _print_error(str(error), arguments, error.field)
        return 2
    except KeyboardInterrupt:
        print("whence: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except (CorruptFileError, OSError) as damage:  # met where nothing better can be done about it
        more = " 'whence runs verify' says more." if isinstance(damage, CorruptFileError) else ""
        _print_error(f"{explain(damage)}.{more}", arguments)
        return 1


def _print_error(message: str, arguments: Sequence[str], field: str | None = None) -> None:
    if "--json" in arguments:
        print(json.dumps({"error": {"field": field, "message": message}}))
    print("\n".join(map(visible, f"whence: {message}".split("\n"))), file=sys.stderr)


def run_command(name: str, *arguments: str) -> int:
    if name not in INSTRUMENTS | COMMANDS:
        raise not_allowed("command", name, [*INSTRUMENTS, *COMMANDS])
    if name in SLOW_TO_START and arguments and sys.stderr.isatty():
        print("whence: starting (loading torch) …", file=sys.stderr)
    from whence.cli.options import Invocation  # which imports pydantic, and the list of commands is printed without it

    verbs = verbs_of(name)
    if name in verbs:
        return verbs[name].run(Invocation((name,), verbs[name].description, list(arguments)))
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{(INSTRUMENTS | COMMANDS)[name]}.\n\nusage: whence {name} VERB [options]\n")
        print("\n".join(f"  {verb:<11} {verbs[verb].summary}" for verb in verbs))
        print(f"\n'whence {name} VERB --help' explains a verb and its options.")
        return 0
    verb, *rest = arguments
    if verb not in verbs:
        raise not_allowed("verb", verb, list(verbs))
    return verbs[verb].run(Invocation((name, verb), verbs[verb].description, rest))


def verbs_of(name: str) -> dict[str, Verb]:
    """The verbs of an instrument, or the one command of that name."""
    verbs = importlib.import_module(f"whence.cli.{OTHER_MODULES.get(name, name)}").VERBS
    return {name: verbs[name]} if name in verbs else verbs
