"""No phrase or identifier of the private vocabulary that whence once had: the field's words stand in their place.

The list holds phrases and identifiers, not common words. It is applied to the source code with its strings and
docstrings, the documentation, the presets, the help of every command and the rendered pages of every instrument.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.conftest import train_in_process
from tests.experiments.test_equivalence import CONFIGS
from whence.cli.main import run
from whence.cli.reference import help_texts

ROOT = Path(__file__).parents[1]

BANNED = {
    # what is measured
    r"hidden tokens?": "masked tokens",
    r"all hidden": "at mask ratio 1",
    r"(?:what|tokens?|share|positions?) (?:is|are) hidden": "masked",
    r"cures?|cured|curing": "mitigation",
    r"entrances?": "pathway",
    r"comes? in through": "enters through",
    r"shutting (?:it|one|a|the)": "ablating",
    r"what moving changes|moving everything|when moved": "shift sensitivity",
    r"(?:above|below|at|to|beat|over) (?:the|its|their|that) floors?|the floor": "shortcut baseline",
    r"within training": "in distribution (ID)",
    r"beyond training": "out of distribution (OOD)",
    r"holds past": "extrapolates",
    r"never trained on": "held-out",
    r"bound features?|features? (?:is|are) bound": "position-specific features",
    r"planted": "synthetic",
    r"fidelity": "position selectivity",
    r"masks? lifted|lifted masks?|with the masks? gone": "mask off",
    r"(?:each|may|feature|one|it) speaks?": "is active",
    r"saying the mean": "predicting the mean",
    r"picture points?|points of (?:a|the) picture": "pixels",
    r"(?:which|where|what) it knows": "what it encodes",
    # verdicts
    r"looks? (?:once|often)": "fixed-sample test, sequential test",
    r"told apart|tell apart|cannot be told": "distinguished",
    r"the luck of": "sampling error of",
    r"how sure": "with what certainty",
    r"not (?:mastered|judged) within": "not learned in distribution",
    # messages, pages
    r"take it with you": "Download",
    r"what was asked for": "Configuration",
    r"no run is like that": "No runs match these filters",
    r"make it again": "Reproduce",
    r"would be right|what is right": "expected, target",
    r"it says \d": "expected …, got …",
    r"that a kill can cost|longest work": "checkpoint interval",
    r"go(?:es|ing)? on with": "resume, continue",
    r"will go on": "will be resumed",
    r"(?:is|are) not run again|what the store has already": "cached",
    r"as usual": "name what it is",
    r"relies on|rely on where": "depends on",
    r"how many times, with other data": "number of random seeds",
    r"tokens as they come": "tokens in order",
    r"the sources?'s?|of the (?:two )?sources?(?! code| of)|sources? 00\d": "a title or a citation",
    r"has a place for|have a place": "supports",
    r"homeless|at_home_in|at home in": "unsupported_hooks, supported_hooks",
    # identifiers
    r"Weave|weave[sd]?": "Interleaving, merge",
    r"heard_at|heard|hears": "valid, attend, query_coordinates",
    r"Contenders?": "PositionConfig",
    r"crew|hired?|dismiss": "workers, spawn, close",
    r"class (?:Standing|Member)|pace": "steps_per_second, SeedResult",
    r"Tally|pinned": "EvalCounts, with_checksum",
    r"ambient_kept|ambient": "preserve_rng_state",
    r"class (?:Corrupt|Busy|NonFinite|Beside)|raise (?:Corrupt|Busy|NonFinite)": "CorruptFileError, RunLockedError, …",
    r"Subject|openly": "AuditTarget, has_explicit_prior",
    r"Halves|alike_by|blinded?": "SplitModel, seed_stability, position_ablated",
    r"telling|on_tell|tell=": "on_progress",
    r"settled?(?!_)": "threshold, validate, run_comparison",
    r"the_source": "citation",
    r"asked_for|what_is_said": "requested",
}
CASE_MATTERS = {name for name in BANNED if re.match(r"[A-Z]", name)}
PATTERNS = {
    re.compile(rf"(?<![\w-])(?:{name})(?![\w-])", 0 if name in CASE_MATTERS else re.IGNORECASE): better
    for name, better in BANNED.items()
}

FOLDERS = sorted(path.name for path in (ROOT / "src" / "whence").iterdir() if path.is_dir() and path.name[0] != "_")
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def banned(text: str, where: str) -> list[str]:
    lines = text.split("\n")
    return [
        f"{where}:{number}: {match.group()!r}, better: {better}"
        for number, line in enumerate(lines, 1)
        for pattern, better in PATTERNS.items()
        for match in pattern.finditer(line)
    ]


def of_files(paths: list[Path]) -> list[str]:
    return [each for path in paths for each in banned(path.read_text(), str(path.relative_to(ROOT)))]


def test_the_list_finds_what_it_bans():
    assert banned("The cure shuts one entrance; rope is above the floor.", "here")
    assert not banned("A mitigation ablates one pathway; rope is above the shortcut baseline (torch.floor).", "here")


@pytest.mark.parametrize("folder", [*FOLDERS, ""])
def test_source_speaks_the_fields_language(folder: str):
    here = ROOT / "src" / "whence" / folder
    paths = sorted(here.rglob("*") if folder else here.glob("*"))
    problems = of_files([path for path in paths if path.suffix in (".py", ".yaml", ".j2", ".html", ".js", ".css")])
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documentation_speaks_the_fields_language(page: Path):
    problems = of_files([page])
    assert not problems, "\n".join(problems)


def test_help_speaks_the_fields_language():
    problems = [each for words, text in help_texts() for each in banned(one_line(text), " ".join(("whence", *words)))]
    assert not problems, "\n".join(problems)


def test_the_help_of_every_verb_has_a_summary_and_an_example():
    verbs = [(" ".join(("whence", *words)), text) for words, text in help_texts() if text.startswith("usage: whence ")]
    assert len(verbs) > 30
    assert not [command for command, text in verbs if not text.split("\n")[2].endswith(".")]
    assert not [command for command, text in verbs if "\n  whence " not in text]


@pytest.mark.parametrize("name", list(CONFIGS))
def test_pages_speak_the_fields_language(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    train_in_process(monkeypatch)
    config, store = tmp_path / "config.json", tmp_path / "store"
    config.write_text(json.dumps(CONFIGS[name]))
    assert run([name, "compare", "--config", str(config), "--store", str(store)]) == 0
    first, *_ = sorted(path.name for path in (store / "runs").iterdir())
    assert run(["report", first, "--store", str(store)]) == 0
    if name != "leak":  # which shows audits
        assert run([name, "show", first, "--store", str(store)]) == 0
    pages = list((store / "reports").glob("*.html"))
    assert len(pages) >= 2
    problems = [each for page in pages for each in banned(visible_text(page.read_text()), page.name)]
    assert not problems, "\n".join(problems)


def test_visible_text_is_what_a_reader_sees():
    page = '<style>a { color: red }</style><p title="a cure">it <b>speaks</b><script>"heard"</script> &amp; more</p>'
    assert visible_text(page) == "a cure it speaks & more"


def one_line(text: str) -> str:
    """Without line breaks, which may divide a phrase."""
    return " ".join(text.split())


def visible_text(page: str) -> str:
    """Of a page in HTML, with the attributes that a browser shows or reads out."""
    text = _Text()
    text.feed(page)
    return one_line(" ".join(text.parts))


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.within = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.within = tag
        self.parts += [
            value for name, value in attrs if value and name in ("title", "alt", "aria-label", "placeholder")
        ]

    def handle_endtag(self, tag: str) -> None:
        self.within = ""

    def handle_data(self, data: str) -> None:
        if self.within not in ("script", "style"):
            self.parts.append(data)
