"""Parts of pages inside a notebook, where they must not change how anything else looks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup

from whence.report.html import render
from whence.report.shell import STYLE

FRAGMENT = """\
<div><style>@scope { {{ style }} :scope { margin: 0; max-width: none } }</style>
{% for part in parts %}{{ part }}
{% endfor %}</div>"""
WHOLE_PAGE = re.compile(r"(?<![\w.#-])(?::root|body)(?![\w-])")
"""What styles a page. In a notebook it styles the fragment: `@scope` confines all rules to the element around them."""


def fragment(parts: Sequence[str]) -> str:
    """HTML for `_repr_html_`, with the styles of pages and without scripts. Parts that are not `Markup` are escaped."""
    return render(FRAGMENT, style=Markup(WHOLE_PAGE.sub(":scope", STYLE)), parts=parts)
