"""Pieces of pages: tables, lists, badges. Text is escaped; what is HTML already is marked as such (`Markup`)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

from jinja2 import Environment
from markupsafe import Markup

compiled = functools.lru_cache(Environment(autoescape=True, trim_blocks=True).from_string)
WITHOUT_EVIDENCE = ("reconstructs nothing", "no different from untrained")
"""Verdicts on a model beside which everything else that is said of it is uncertain"""
UNSURE = ("at chance", "not learned", "undecided", "exploratory", "seeds disagree", "traces")
UNSURE += (*WITHOUT_EVIDENCE, "not run", "interrupted", "stopped")
KINDS = {
    "good": ("solved", "finished", "clean"),
    "bad": ("failed", "damaged", "corrupt", "refused", "leaky", "position only"),
    "unsure": UNSURE,
}
TABLE = """\
<div class=scroll tabindex=0 role=region aria-label="{{ label }}"><table><thead><tr>
{% for column in columns %}<th scope=col>{{ column }}{% endfor %}</tr></thead><tbody>
{% for row in rows %}<tr>
{% for cell in row %}{{ first if loop.first else other }}{{ cell }}{% endfor %}
</tr>
{% endfor %}</tbody></table></div>"""


def render(template: str, **values: object) -> Markup:
    """A Jinja template, filled in. Values are escaped unless they are `Markup`."""
    return Markup(compiled(template).render(**values))


def html_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, label: str, row_headers: bool = False, prose: bool = False
) -> Markup:
    """A table that scrolls by itself where a page is too narrow. `label` names it for screen readers.

    prose: lines may break, as those of numbers may not.
    """
    cell = Markup("<td>" if prose else "<td class=n>")
    first = Markup("<th scope=row>") if row_headers else cell
    return render(TABLE, columns=columns, rows=rows, label=label, first=first, other=cell)


def bullets(lines: Iterable[str]) -> Markup:
    return render("<ul class=findings>{% for line in lines %}<li>{{ line }}</li>{% endfor %}</ul>", lines=lines)


def heading(title: str, note: str = "", level: int = 2) -> Markup:
    """Of a section, with a line below it."""
    template = "<h{{ level }}>{{ title }}</h{{ level }}>{% if note %}<p class=note>{{ note }}</p>{% endif %}"
    return render(template, title=title, note=note, level=level)


def badge(word: str, kind: str | None = None) -> Markup:
    """A verdict or a state, in a shape that says whether it is good, bad or not certain."""
    kind = kind or next((kind for kind, words in KINDS.items() if word in words), "")
    return Markup('<span class="badge {}">{}</span>').format(kind, word) if word else Markup("")


def badges(words: Sequence[str]) -> Markup:
    """The words of one verdict. Those on a model without evidence are all shown as uncertain."""
    kind = "unsure" if set(words) & set(WITHOUT_EVIDENCE) else None
    return Markup(" ").join(badge(word, kind) for word in words)


def swatch(style: Mapping[str, str]) -> Markup:
    """The colour of a line, as a dot; empty without one."""
    return Markup('<span class=swatch style="background:{}"></span>').format(style["color"]) if style else Markup("")
