"""The pages of the documentation and the code blocks in them.

A comment directly above a block states how it is tested; README and docs hold no other blocks than these:

    ```python                     executed by `make test`, all blocks of a page in one namespace
    ```bash                       executed by `make docs-test` as written; `make test` checks that every flag is known
    ```yaml                       a configuration file: needs `<!-- file: … -->`
    ```text                       output or a diagram: not executed

    <!-- quick -->                executed by `make test`, too
    <!-- quick: OLD => NEW; … --> the same with replacements that make it cheap; `make docs-test` executes it as written
    <!-- long -->                 executed by `make docs-test` only
    <!-- parse: REASON -->        not executed: flags and targets are checked
    <!-- output -->               what the ```python block before it prints
    <!-- file: NAME -->           written to a file in the folder of the page, where later blocks find it
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
GENERATED = ("docs/cli.md", "docs/api.md", "docs/configuration.md")
"""Written from the source by `make docs`"""
BLOCK = re.compile(
    r"(?:^<!-- (?P<how>(?:quick|long|parse|file|output)\b[^\n]*?) ?-->\n+)?^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
LANGUAGES = ("python", "bash", "yaml", "text")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    code: str
    how: str = ""
    """quick, long, parse, file or output"""
    argument: str = ""

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(PROJECT)}:{self.line}"

    @property
    def quick(self) -> bool:
        """Whether `make test` executes it."""
        return self.how == "quick" or (self.language == "python" and not self.how)

    @property
    def quick_code(self) -> str:
        code = self.code
        for change in filter(None, self.argument.split("; ")):
            old, new = change.split(" => ")
            assert old in code, f"{self.name}: {old!r} is not in the block"
            code = code.replace(old, new)
        return code

    @property
    def commands(self) -> list[str]:
        return commands_in(self.code)


def commands_in(code: str) -> list[str]:
    """The lines of a script without comments, continued lines joined."""
    lines = code.replace("\\\n", " ").split("\n")
    return [line for line in map(str.strip, lines) if line and not line.startswith("#")]


def pages() -> list[Path]:
    written = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]
    return [page for page in written if str(page.relative_to(PROJECT)) not in GENERATED]


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in BLOCK.finditer(text):
        how, _, argument = (match["how"] or "").partition(":")
        line = text.count("\n", 0, match.start("info")) + 1
        found.append(Block(page, line, match["info"], match["code"], how.strip(), argument.strip()))
    return found
