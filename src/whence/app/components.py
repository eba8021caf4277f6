"""What pages are made of: the list of pages and links to them, guarded and live parts, tables, figures, downloads."""

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
    "arena": "Which positional encoding should I use, and does it hold past the training length?",
    "leak": "Is my masked model predicting from content, or only from position? Where does it leak, and what stops it?",
    "features": "Which learned features are about position? Sparse autoencoders that know where.",
    "fields": "Can learnable position tokens carry a picture at any resolution?",
    "runs": "Every training run of this store, whoever started it.",
}
EMPTY = """\
<div class="whence empty" role=status><strong>{{ title }}</strong>
{% for line in lines %}<p>{{ line }}</p>{% endfor %}</div>"""
INVISIBLE = "unseen"
"""Key of a container that is not displayed"""
P = ParamSpec("P")
R = TypeVar("R")


def guarded(part: Callable[P, R]) -> Callable[P, R | None]:
    """Whatever goes wrong in a part of a page becomes a message in its place: never a traceback, never a blank page."""

    @functools.wraps(part)
    def shown(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return part(*args, **kwargs)
        except UserError as error:
            st.error(plain(str(error)), icon=":material/error:")
        except CorruptFileError as damage:
            st.error(plain(f"A file is damaged: {damage}. 'whence runs verify' says more."), icon=":material/error:")
        except Exception:
            logging.getLogger(__name__).exception("a part of a page failed")
            st.error(
                "This part of the page could not be made. The terminal of the app says why.", icon=":material/error:"
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
    """To a page, and to something on it."""
    st.page_link(page(name), label=label, icon=PAGES[name][1], query_params=parameters or None)


def header(name: str) -> Store:
    """Title and question of a page. Returns the store that it shows."""
    st.title(PAGES[name][0])
    st.caption(QUESTIONS[name])
    return the_store()


def live(seconds: float | None) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """A part that is made anew every few seconds while somebody looks."""
    return lambda part: st.fragment(guarded(part), run_every=seconds)


@st.cache_resource(show_spinner=False)
def the_store() -> Store:
    """The one that `whence app` was started with. One for all pages: it remembers what it has read."""
    return Store(os.environ.get(STORE))


def terminal(*words: str) -> str:
    """A command to copy, for this store."""
    from whence.experiments.options import store_flag  # the first page can do without it, and comes sooner

    return shlex.join(["whence", *words, *store_flag(the_store())])


def plain(text: str) -> str:
    """For places that would read Markdown: shown as written."""
    return "".join("\\" + letter if letter in "\\`*_{}[]()<>#+-.!|$~:^" else letter for letter in text)


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def empty(title: str, *lines: str) -> None:
    """Nothing here yet, and what would change that."""
    st.html(render(EMPTY, title=title, lines=lines))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, label: str) -> None:
    markup(html_table(columns, rows, label=label, prose=True))


def markup(body: str) -> None:
    """HTML of ours, as reports have it."""
    st.html(f'<div class="whence">{body}</div>')


def findings(lines: Sequence[str]) -> None:
    """Key findings, in words."""
    if lines:
        markup(bullets(lines))


def draw(figure: go.Figure, alt: str, key: str | None = None, picked: Callable[[], None] | None = None) -> None:
    """A figure in the colours of the page, light or dark. alt: what it shows, for those who do not see it.

    picked: called when a reader clicks on a point, which is then to be found under the key in the session.
    """
    figure.update_layout(template=None, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)")
    picking: Any = {"on_select": picked, "selection_mode": "points"} if picked else {}
    config = {"displaylogo": False, "responsive": True}
    st.plotly_chart(figure, theme="streamlit", alt=alt, key=key, config=config, **picking)


def ready_to_draw() -> None:
    """For pages that draw only when asked: the browser loads what it draws with before somebody waits for it."""
    import plotly.graph_objects as go

    with st.container(key=INVISIBLE):
        st.plotly_chart(go.Figure(), key=f"{INVISIBLE}:figure")


def downloads(
    name: str,
    forms: Mapping[str, Callable[[], bytes]],
    caption: str = "Take it with you",
    not_now: Mapping[str, str] = {},
) -> None:
    """forms: by ending, what makes the file, once somebody wants it. not_now: by ending, why there is none."""
    problems = dict(not_now)
    if ".png" in forms and not browser():
        problems[".png"] = "Needs Chromium, which was not found."
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
