"""The page Arena: comparisons of positional encodings."""

from __future__ import annotations

import streamlit as st
from streamlit.components.v2 import component

from whence.app.address import switch
from whence.app.comparisons import Comparisons
from whence.app.components import empty, header
from whence.arena.config import ArenaConfig
from whence.arena.instrument import ARENA
from whence.arena.page import MAP_SCRIPT, attention_section, stored_maps
from whence.arena.run import ArenaRun
from whence.experiments.table import Table
from whence.store.runs import Store

NEW, RESULTS = "New", "Results"
CSS = """
* { font-family: var(--st-font); color: var(--st-text-color) } .maps { display: flex; flex-wrap: wrap; gap: 1rem }
canvas { image-rendering: pixelated; max-width: 100% } label { display: block; margin: .3rem 0 }
select { background: var(--st-background-color) } .note { opacity: .8; font-size: .9rem } .scroll { overflow-x: auto }
th, td { padding: .2rem .6rem; text-align: left }
"""
SCRIPT = f"""{MAP_SCRIPT}
export default function ({{ data, parentElement }}) {{
  const host = parentElement.querySelector('.host');
  if (host.dataset.html === data.html) return;
  host.dataset.html = host.innerHTML = data.html;
  drawMaps(host);
}}
"""
_maps = component("whence_attention", html="<div class=host></div>", css=CSS, js=SCRIPT)


def show() -> None:
    store = header("arena")
    if switch({NEW: "", RESULTS: "comparison"}, "arena:view") == RESULTS:
        COMPARISONS.results(store)
    else:
        COMPARISONS.new(store)


def _attention(config: ArenaConfig, table: Table[ArenaRun], store: Store) -> None:
    """Attention maps, as on the page of the comparison: any encoding, layer, head and example."""
    with st.expander("Attention", expanded=True):
        if section := attention_section("app", stored_maps(table, store)):
            _maps(key=f"attention:{table.title}", data={"html": str(section)})
        else:
            empty(
                "Attention maps are not available.",
                "The models have no attention, their sequences are too long, or runs are missing.",
            )


COMPARISONS = Comparisons(ARENA, first=("tasks", "encodings", "mixer", "seeds", "steps"), more=_attention)
