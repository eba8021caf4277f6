"""The entry point of the command line. It lists the commands and imports nothing heavy."""

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
    "runs": "List, show, export, resume, verify, repair or delete stored runs",
    "report": "Write a page, picture or table of stored runs, or compare two comparisons",
    "reproduce": "Test published claims: run their presets and report which hold",
    "encodings": "List the positional encodings and their options",
    "tasks": "List the tasks and their shortcut baselines",
    "app": "Open the app in a browser",
}
TRY_FIRST = {
    "whence demo --open": "tour the four instruments",
    "whence arena compare --tasks k_back_recall --encodings rope alibi none": "compare three encodings",
    "whence leak audit --model DIR": "audit a masked model for position leakage",
}
SLOW_TO_START = (*INSTRUMENTS, "demo", "report", "reproduce")
OTHER_MODULES = {"encodings": "catalog", "tasks": "catalog"}
"""Commands that are not in the module of their name"""


def listed(commands: dict[str, str], between: str = "  ") -> str:
    width = max(map(len, commands))
    return "\n".join(f"  {name:<{width}}{between}{line}" for name, line in commands.items())


HELP = f"""whence {__version__} measures how sequence models use position.

usage: whence INSTRUMENT VERB [options]
       whence COMMAND [options]

Instruments ('whence INSTRUMENT' lists its verbs):
{listed(INSTRUMENTS)}

Commands:
{listed(COMMANDS)}

Try first:
{listed(TRY_FIRST, "  # ")}

Every verb accepts --help, which shows examples, and --json, which prints one JSON document on standard output.
Runs are stored in --store DIR, or $WHENCE_STORE, or ./whence-runs. Finished runs are reused, and repeating a command
after an interruption resumes it.

Exit codes: 0 success · 1 a run failed or a stored file is corrupt · 2 invalid input · 130 interrupted (Ctrl-C)
Documentation: README.md and docs/ in the repository of whence
"""


def main(arguments: Sequence[str] | None = None) -> None:
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by whoever started the command
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115  (as long as the process)
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """The exit code: 0 success, 1 a run failed or a file is corrupt, 2 invalid input, 130 interrupted."""
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
    except BrokenPipeError:  # the reader of a pipe has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except (CorruptFileError, OSError) as damage:  # raised where nothing can be done about it
        more = " See 'whence runs verify'." if isinstance(damage, CorruptFileError) else ""
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
        print("whence: loading PyTorch …", file=sys.stderr)
    from whence.cli.options import Invocation  # imports pydantic, which the list of commands does without

    verbs = verbs_of(name)
    if name in verbs:
        return verbs[name].run(Invocation((name,), verbs[name].description, list(arguments)))
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{(INSTRUMENTS | COMMANDS)[name]}.\n\nusage: whence {name} VERB [options]\n")
        print(listed({verb: verbs[verb].summary for verb in verbs}))
        print(f"\n'whence {name} VERB --help' shows examples and the options of a verb.")
        return 0
    verb, *rest = arguments
    if verb not in verbs:
        raise not_allowed("verb", verb, list(verbs))
    return verbs[verb].run(Invocation((name, verb), verbs[verb].description, rest))


def verbs_of(name: str) -> dict[str, Verb]:
    """The verbs of an instrument or of a command; a command without verbs is its own only verb."""
    verbs = importlib.import_module(f"whence.cli.{OTHER_MODULES.get(name, name)}").VERBS
    return {name: verbs[name]} if name in verbs else verbs
