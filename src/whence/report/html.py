"""Parts of pages: tables, lists, badges. Text is escaped unless it is marked as HTML (`Markup`)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

from jinja2 import Environment
from markupsafe import Markup

compiled = functools.lru_cache(Environment(autoescape=True, trim_blocks=True).from_string)
WITHOUT_EVIDENCE = ("reconstructs nothing", "no different from untrained")
"""Verdicts that make all other verdicts on the same model uncertain."""
UNSURE = ("at chance", "not learned", "undecided", "exploratory", "seeds disagree", "traces")
UNSURE += (*WITHOUT_EVIDENCE, "not run", "interrupted", "stopped")
KINDS = {
    "good": ("solved", "finished", "clean"),
    "bad": ("failed", "damaged", "corrupt", "refused", "leaky", "position only"),
    "unsure": UNSURE,
}
TABLE = """\
<div class="scroll{{ " stack" if stack }}" tabindex=0 role=region aria-label="{{ label }}"><table><thead><tr>
{% for column in columns %}<th scope=col>{{ column }}{% endfor %}</tr></thead><tbody>
{% for row in rows %}<tr>
{% for cell in row %}{{ first if loop.first else other }}
{% if stack %} data-column="{{ columns[loop.index0] }}"{% endif %}>{{ cell }}{% endfor %}
</tr>
{% endfor %}</tbody></table></div>"""


HEADING = """\
<h{{ level }}{% if anchor %} id="{{ anchor }}"{% endif %}>{{ title }}</h{{ level }}>
{% if note %}<p class=note>{{ note }}</p>{% endif %}"""


def render(template: str, **values: object) -> Markup:
    """A Jinja template, filled in. Values are escaped unless they are `Markup`."""
    return Markup(compiled(template).render(**values))


def html_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    label: str,
    row_headers: bool = False,
    prose: bool = False,
    stack: bool = False,
) -> Markup:
    """A table that scrolls inside its own box where the page is too narrow.

    Args:
        label: name of the table for screen readers.
        row_headers: the first cell of every row is a header.
        prose: cells may wrap; cells with numbers do not.
        stack: on a narrow screen every row becomes a block with one line per cell. Columns are then plain text.
    """
    cell = Markup("<td" if prose else "<td class=n")
    first = Markup("<th scope=row") if row_headers else cell
    return render(TABLE, columns=columns, rows=rows, label=label, first=first, other=cell, stack=stack)


def bullets(lines: Iterable[str]) -> Markup:
    return render("<ul class=findings>{% for line in lines %}<li>{{ line }}</li>{% endfor %}</ul>", lines=lines)


def heading(title: str, note: str = "", level: int = 2, *, anchor: str = "") -> Markup:
    """The heading of a section, with a note below it. `anchor` is the id that links refer to."""
    return render(HEADING, title=title, note=note, level=level, anchor=anchor)


def badge(word: str, kind: str | None = None) -> Markup:
    """A verdict or a state, styled as good, bad or uncertain."""
    kind = kind or next((kind for kind, words in KINDS.items() if word in words), "")
    return Markup('<span class="badge {}">{}</span>').format(kind, word) if word else Markup("")


def badges(words: Sequence[str]) -> Markup:
    """The words of one verdict. All are shown as uncertain if one of them is in `WITHOUT_EVIDENCE`."""
    kind = "unsure" if set(words) & set(WITHOUT_EVIDENCE) else None
    return Markup(" ").join(badge(word, kind) for word in words)


def swatch(style: Mapping[str, str]) -> Markup:
    """The colour of a line, as a dot; empty without one."""
    return Markup('<span class=swatch style="background:{}"></span>').format(style["color"]) if style else Markup("")
