"""What Streamlit runs. Started by `whence app`."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import streamlit as st

from whence.app.components import PAGES, page
from whence.report.shell import SHARED_STYLE


@st.cache_resource(show_spinner=False)
def warm_up() -> threading.Thread:
    """Import torch in the background, which takes seconds, after the first page had a moment to load."""
    thread = threading.Timer(1.0, importlib.import_module, args=("whence.arena.instrument",))
    thread.daemon = True
    thread.start()
    return thread


HERE = Path(__file__).parent
st.set_page_config(page_title="whence", page_icon=str(HERE / "icon.svg"), layout="wide")
# pieces of reports are shown in the app as well, with their own classes
st.html(f"<style>.whence {{{SHARED_STYLE}}}\n{(HERE / 'style.css').read_text()}</style>")
st.navigation([page(name) for name in PAGES]).run()
warm_up()
