"""docs/cli.md, from the help of every verb: `python -m whence.cli.reference > docs/cli.md` (`make docs`)."""

from __future__ import annotations

import contextlib
import io
import os

from whence.cli.main import COMMANDS, INSTRUMENTS, run, verbs_of


def reference() -> str:
    """The page, at a width that does not depend on the terminal."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        parts = ["# Command line", "", "Generated from `--help` by `make docs`.", "", _block([])]
        for name in INSTRUMENTS | COMMANDS:
            parts += ["", f"## whence {name}", "", _block([name, "--help"])]
            for verb in verbs_of(name):
                if verb != name:
                    parts += ["", f"### whence {name} {verb}", "", _block([name, verb, "--help"])]
        return "\n".join(parts) + "\n"
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


def _block(arguments: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        run(arguments)
    return f"```text\n{printed.getvalue().rstrip()}\n```"


if __name__ == "__main__":
    print(reference(), end="")
