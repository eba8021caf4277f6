"""One trained autoencoder: where its features speak, and in which text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import streamlit as st

from whence.app.address import choice
from whence.app.components import downloads, draw, empty, findings, guarded, live, markup, plain, terminal
from whence.features.data.base import Data
from whence.features.map_page import context_table, profiles, sorts
from whence.features.page import degrees, learning, run_page, seen
from whence.features.profiles_page import NAMED, about, profile, profile_map
from whence.features.run import FeaturesRun
from whence.features.sae.autoencoder import Autoencoder
from whence.features.stored import load
from whence.features.view import SHOWN, Context, Order, View, contexts, most_bound, view
from whence.store.records import RunSummary
from whence.store.runs import Store

ALONE = "none"


@dataclass(frozen=True)
class Opened:
    """A run from the store, and what is to be seen of it."""

    run: FeaturesRun
    model: Autoencoder
    data: Data
    found: View


def look(store: Store) -> None:
    runs = {run.id: run for run in reversed(store.summaries()) if _can_be_looked_at(run)}
    if not runs:
        empty("No autoencoder has been trained in this store yet.", "Start a comparison under “Compare”.")
        return
    labels = {name: _label(run) for name, run in runs.items()}
    one, other = st.columns(2)
    with one:
        chosen = choice("features", "run", "Run", labels)
    beside = other.selectbox(
        "Beside it",
        [ALONE, *(name for name in labels if name != chosen)],
        format_func=lambda name: str(labels.get(name, name)),
        help="Another autoencoder, such as one with a hard mask beside one with a soft mask.",
    )
    opened = _open(store, chosen)
    findings(seen(opened.found))
    live(None)(_features)(opened, store, beside)
    guarded(_training)(opened, store)


def _can_be_looked_at(run: RunSummary) -> bool:
    return run.kind == FeaturesRun.kind and run.state == "finished"


def _label(run: RunSummary) -> str:
    when = datetime.fromtimestamp(run.created).strftime("%d %b %H:%M")
    return f"{run.title} · seed {run.seed} · {run.id[:4]} · {when}"


def _open(store: Store, run_id: str) -> Opened:
    return _opened(run_id, store.root, tuple(store.folder(run_id).stamp()))


@st.cache_resource(show_spinner="Looking at every feature, on states never trained on", max_entries=4)
def _opened(run_id: str, root: Path, stamp: Any) -> Opened:
    """stamp: a run that was made again is looked at again."""
    model, run = load(Store(root), run_id)
    data: Data = run.data.build()
    return Opened(run, model, data, view(model, data))


def _features(opened: Opened, store: Store, beside: str) -> None:
    found, key = opened.found, opened.run.id
    st.subheader("Where each feature speaks")
    table, by, those = _map_controls(found, key)
    if beside == ALONE:
        _map(opened, table, by, those, picked=lambda: _pick(key))
    else:
        for column, one in zip(st.columns(2), (opened, _open(store, beside)), strict=True):
            with column:
                _map(one, table, by, those)
    st.subheader("One feature")
    feature = _choose(found, key)
    st.caption(plain(about(found, feature)))
    draw(profile(found, feature), f"Profile over positions. {about(found, feature)}", f"profile:{key}")
    _text(opened, store, feature)


def _map_controls(found: View, key: str) -> tuple[str, Order, str]:
    names = {name: words for name, (words, _) in profiles(found).items()}
    orders = sorts(found)
    columns = st.columns(3)
    counts = {"position-bound": len(found.bound), "not too rare": len(found.fidelity), "all": len(found.active)}
    those = columns[0].selectbox(
        "Features",
        [name for name, count in counts.items() if count],
        format_func=lambda name: f"{name} ({counts[name]:,})",
        key=f"those:{key}",
    )
    by = columns[1].selectbox("Sorted by", list(orders), format_func=orders.__getitem__, key=f"by:{key}")
    table = columns[2].selectbox("Shown", list(names), format_func=names.__getitem__, key=f"table:{key}")
    return table, by, those


def _map(opened: Opened, table: str, by: Order, those: str, picked: Callable[[], None] | None = None) -> None:
    """Of another run, too, which may have no masks."""
    found = opened.found
    wanted = {"all": None, "position-bound": set(found.bound), "not too rare": set(found.fidelity)}[those]
    table, by = table if table in profiles(found) else "lifted", by if by in sorts(found) else "peak"
    features = [feature for feature in found.order(by) if wanted is None or feature in wanted]
    told = f"{' · '.join(opened.run.labels().values())}: {profiles(found)[table][0]}, {len(features)} features"
    st.caption(plain(told))
    if not features:
        empty(f"No feature of this autoencoder is {those}.")
        return
    drawn = profile_map(found, table, features)
    draw(drawn, f"Map of features and positions: {told}", f"map:{opened.run.id}", picked)
    told = "Each feature is scaled to its own maximum."
    if by == "peak":
        told += " Sorted by peaks, noise makes a diagonal, too: how much of it is position, fidelity says."
    if picked and len(features) <= NAMED:
        told += " A click on a circle looks at that feature."
    st.caption(told)


def _pick(key: str) -> None:
    """What was clicked on the map is looked at."""
    for point in st.session_state[f"map:{key}"]["selection"]["points"]:
        st.session_state[f"feature:{key}"] = int(point["customdata"])
        st.session_state[f"listed:{key}"] = None


def _choose(found: View, key: str) -> int:
    """By its number, or from those that are most about position."""
    number, listed = f"feature:{key}", f"listed:{key}"
    if number not in st.session_state:
        st.session_state[number] = next(iter([*found.bound, *found.contexts, *most_bound(found.fidelity)]), 0)

    def take() -> None:
        st.session_state[number] = st.session_state[listed]

    def let_go() -> None:
        st.session_state[listed] = None

    columns = st.columns(2)
    columns[0].number_input(
        "Feature", min_value=0, max_value=len(found.active) - 1, step=1, key=number, on_change=let_go
    )
    peaks = found.peaks.tolist()
    columns[1].selectbox(
        "Most position-bound",
        most_bound(found.fidelity)[:SHOWN],
        index=None,
        placeholder="Choose one",
        format_func=lambda f: f"{f} · fidelity {found.fidelity[f]:.2f} · peak at {peaks[f]}",
        key=listed,
        on_change=take,
    )
    return int(st.session_state[number])


def _text(opened: Opened, store: Store, feature: int) -> None:
    if opened.found.note:
        empty(opened.found.note)
        return
    stamp = tuple(store.folder(opened.run.id).stamp())
    those = opened.found.contexts.get(feature) or _looked_up(opened.run.id, store.root, stamp, feature)
    if those:
        markup(f'<div class=scroll tabindex=0 role=region aria-label="contexts">{context_table(those)}</div>')
    else:
        empty(f"Feature {feature} is never active in held-out text.")


@st.cache_resource(show_spinner="Looking up its text", max_entries=512)
def _looked_up(run_id: str, root: Path, stamp: Any, feature: int) -> Sequence[Context]:
    opened = _opened(run_id, root, stamp)
    return contexts(opened.model, opened.data, [feature])[0][feature]


def _training(opened: Opened, store: Store) -> None:
    run, records = opened.run, store.folder(opened.run.id).metrics()
    explained, trained = st.tabs(["How much of a feature position explains", "As it was trained"])
    with explained:
        draw(degrees(opened.found), "Histogram of features by the share of variance that position explains", "degrees")
    with trained:
        draw(learning(records), "Training loss and variance unexplained over steps", "learning")
    again = terminal("features", "show", run.id)
    downloads(f"features-{run.id}", {".html": lambda: run_page(run, opened.found, records, again)})
