"""Building blocks of pages: navigation, error handling, live updates, tables, figures and downloads."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import streamlit as st

from whence.app.server import STORE
from whence.errors import UserError
from whence.report.export import browser
from whence.report.html import bullets, html_table, render
from whence.store.disk import CorruptFileError
from whence.store.runs import Store

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from streamlit.navigation.page import StreamlitPage

PAGES = {
    "home": ("Home", ":material/home:"),
    "arena": ("Arena", ":material/leaderboard:"),
    "leak": ("Leak", ":material/water_drop:"),
    "features": ("Features", ":material/grid_on:"),
    "fields": ("Fields", ":material/texture:"),
    "runs": ("Runs", ":material/list:"),
}
"""By the name of their module in `views`: title and icon"""
QUESTIONS = {
    "arena": "Which positional encoding should I use, and does it extrapolate to longer sequences?",
    "leak": "Does my masked model predict from content or from position? Where does position leak, and what stops it?",
    "features": "Which features of a model encode position? Sparse autoencoders with position parameters.",
    "fields": "Can learnable position tokens represent an image at any resolution?",
    "runs": "All training runs of this store, from the app, the command line and Python.",
}
EMPTY = """\
<div class="whence empty" role=status><strong>{{ title }}</strong>
{% for line in lines %}<p>{{ line }}</p>{% endfor %}</div>"""
INVISIBLE = "unseen"
"""Key of a container that is not displayed"""
P = ParamSpec("P")
R = TypeVar("R")


def guarded(part: Callable[P, R]) -> Callable[P, R | None]:
    """Show an error message in place of a part of a page that raises: never a traceback, never a blank page."""

    @functools.wraps(part)
    def shown(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return part(*args, **kwargs)
        except UserError as error:
            st.error(plain(str(error)), icon=":material/error:")
        except CorruptFileError as damage:
            st.error(
                plain(f"A file is damaged: {damage}. Check the store with: whence runs verify"), icon=":material/error:"
            )
        except Exception:
            logging.getLogger(__name__).exception("a part of a page failed")
            st.error(
                "This part of the page could not be displayed. The terminal that runs the app shows the cause.",
                icon=":material/error:",
            )
        return None

    return shown


def page(name: str) -> StreamlitPage:
    @guarded
    def show() -> None:
        importlib.import_module(f"whence.app.views.{name}").show()

    show.__name__ = show.__qualname__ = name
    title, icon = PAGES[name]
    home = name == "home"
    return st.Page(show, title=title, icon=icon, url_path="" if home else name, default=home)


def link(name: str, label: str, **parameters: str) -> None:
    """A link to a page. parameters: of the address, which select something on it."""
    st.page_link(page(name), label=label, icon=PAGES[name][1], query_params=parameters or None)


def header(name: str) -> Store:
    """Write the title and the question of a page. Returns the store."""
    st.title(PAGES[name][0])
    st.caption(QUESTIONS[name])
    return the_store()


def live(seconds: float | None) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """Decorate a part of a page that is redrawn every few seconds while the page is open."""
    return lambda part: st.fragment(guarded(part), run_every=seconds)


@st.cache_resource(show_spinner=False)
def the_store() -> Store:
    """The store that `whence app` was started with. Shared by all pages, because it caches what it has read."""
    return Store(os.environ.get(STORE))


def terminal(*words: str) -> str:
    """A command to copy, for this store."""
    from whence.experiments.options import store_flag  # imported here, so that the first page appears sooner

    return shlex.join(["whence", *words, *store_flag(the_store())])


def plain(text: str) -> str:
    """Escape Markdown."""
    return "".join("\\" + letter if letter in "\\`*_{}[]()<>#+-.!|$~:^" else letter for letter in text)


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def empty(title: str, *lines: str) -> None:
    """An empty state: what is missing, and what to do."""
    st.html(render(EMPTY, title=title, lines=lines))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, label: str) -> None:
    markup(html_table(columns, rows, label=label, prose=True))


def markup(body: str) -> None:
    """Trusted HTML, as in reports."""
    st.html(f'<div class="whence">{body}</div>')


def findings(lines: Sequence[str]) -> None:
    """Key findings, in words."""
    if lines:
        markup(bullets(lines))


def draw(figure: go.Figure, alt: str, key: str | None = None, picked: Callable[[], None] | None = None) -> None:
    """A figure in the colours of the page, light or dark. alt: its description, for screen readers.

    picked: called after a click on a point, which is then in the session state under the key.
    """
    figure.update_layout(template=None, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)")
    picking: Any = {"on_select": picked, "selection_mode": "points"} if picked else {}
    config = {"displaylogo": False, "responsive": True}
    st.plotly_chart(figure, theme="streamlit", alt=alt, key=key, config=config, **picking)


def ready_to_draw() -> None:
    """Preload the plotting library in the browser, for pages that draw figures on request."""
    import plotly.graph_objects as go

    with st.container(key=INVISIBLE):
        st.plotly_chart(go.Figure(), key=f"{INVISIBLE}:figure")


def downloads(
    name: str,
    forms: Mapping[str, Callable[[], bytes]],
    caption: str = "Download",
    not_now: Mapping[str, str] = {},
) -> None:
    """Download buttons. forms: by suffix, a function that makes the file. not_now: why a suffix is disabled."""
    problems = dict(not_now)
    if ".png" in forms and not browser():
        problems[".png"] = "Requires Chromium, which was not found."
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(caption, width="content")
        for ending, make in forms.items():
            st.download_button(
                ending[1:].upper(),
                data=make,
                file_name=f"{name}{ending}",
                key=f"download:{name}{ending}",
                on_click="ignore",
                icon=":material/download:",
                disabled=ending in problems,
                help=problems.get(ending),
            )
