"""HTML tables and lists of every page. Text is escaped; what is HTML already is marked as such (`Markup`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, label: str) -> Markup:
    """A table that scrolls by itself where a page is too narrow. `label` names it for screen readers."""
    head = Markup("").join(Markup("<th scope=col>{}").format(column) for column in columns)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td class=n>{}").format(cell) for cell in row))
        for row in rows
    )
    return Markup(
        '<div class=scroll tabindex=0 role=region aria-label="{}"><table><thead><tr>{}</tr></thead><tbody>{}</tbody>'
        "</table></div>"
    ).format(label, head, body)


def bullets(lines: Iterable[str]) -> Markup:
    return Markup("<ul class=findings>{}</ul>").format(
        Markup("").join(Markup("<li>{}</li>").format(line) for line in lines)
    )
