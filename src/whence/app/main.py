"""What Streamlit runs. Started by `whence app`."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import streamlit as st

from whence.app.navigation import PAGES, page
from whence.app.style import STYLE


@st.cache_resource(show_spinner=False)
def warm_up() -> threading.Thread:
    """torch takes seconds to import: meanwhile the first page is there. It gets a moment to arrive."""
    thread = threading.Timer(1.0, importlib.import_module, args=("whence.arena.instrument",))
    thread.daemon = True
    thread.start()
    return thread


st.set_page_config(page_title="whence", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")
st.html(STYLE)
st.navigation([page(name) for name in PAGES]).run()
warm_up()
