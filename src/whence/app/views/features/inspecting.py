"""Inspect one trained autoencoder: mean activation of its features by position, and activating text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import streamlit as st

from whence.app.address import choice
from whence.app.components import downloads, draw, empty, findings, guarded, live, markup, plain, terminal
from whence.features.actions import run_show
from whence.features.config import ShowConfig
from whence.features.evals.profiles import (
    SHOWN,
    ActivatingContext,
    FeatureProfiles,
    Order,
    contexts,
    most_position_specific,
)
from whence.features.page import (
    NAMED,
    context_table,
    describe_feature,
    feature_profile,
    learning_curve,
    orders,
    profile_findings,
    profile_map,
    run_page,
    selectivity_histogram,
    tables,
)
from whence.features.run import FeaturesRun, load_autoencoder
from whence.store.records import RunSummary
from whence.store.runs import Store

ALONE = "none"


@dataclass(frozen=True)
class Opened:
    """A run from the store, and the profiles of its features."""

    run: FeaturesRun
    profiles: FeatureProfiles


def inspect_run(store: Store) -> None:
    runs = [run for run in reversed(store.summaries()) if run.kind == FeaturesRun.kind and run.state == "finished"]
    if not runs:
        empty("No autoencoder has been trained in this store yet.", "Start a comparison under “Compare”.")
        return
    labels = {run.id: _label(run) for run in runs}
    one, other = st.columns(2)
    with one:
        chosen = choice("features", "run", "Run", labels)
    beside = other.selectbox(
        "Compare with",
        [ALONE, *(name for name in labels if name != chosen)],
        format_func=lambda name: str(labels.get(name, name)),
        help="A second autoencoder, shown side by side.",
    )
    opened = _open(store, chosen)
    findings(profile_findings(opened.profiles))
    live(None)(_features)(opened, store, beside)
    guarded(_training)(opened, store)


def _label(run: RunSummary) -> str:
    when = datetime.fromtimestamp(run.created).strftime("%d %b %H:%M")
    return f"{run.title} · seed {run.seed} · {run.id[:4]} · {when}"


def _open(store: Store, run_id: str) -> Opened:
    return _opened(run_id, store.root, tuple(store.folder(run_id).stamp()))


@st.cache_resource(show_spinner="Computing profiles of all features on held-out activations", max_entries=4)
def _opened(run_id: str, root: Path, stamp: Any) -> Opened:
    """Cached. stamp: changes when a run is trained again."""
    store = Store(root)
    profiles = run_show(ShowConfig(run=run_id), store, lambda text: None).result
    return Opened(load_autoencoder(store, run_id)[1], profiles)


def _features(opened: Opened, store: Store, beside: str) -> None:
    profiles, key = opened.profiles, opened.run.id
    st.subheader("Mean activation by position")
    table, by, those = _map_controls(profiles, key)
    if beside == ALONE:
        _map(opened, table, by, those, picked=lambda: _pick(key))
    else:
        for column, one in zip(st.columns(2), (opened, _open(store, beside)), strict=True):
            with column:
                _map(one, table, by, those)
    st.subheader("One feature")
    feature = _choose(profiles, key)
    text = describe_feature(profiles, feature)
    st.caption(plain(text))
    draw(feature_profile(profiles, [feature]), f"Profile over positions. {text}", f"profile:{key}")
    _text(opened, store, feature)


def _groups(profiles: FeatureProfiles) -> dict[str, list[int]]:
    return {
        "position-specific": profiles.position_specific,
        "active often enough to test": list(profiles.position_selectivity),
        "all": list(range(len(profiles.active))),
    }


def _map_controls(profiles: FeatureProfiles, key: str) -> tuple[str, Order, str]:
    names = {name: text for name, (text, _) in tables(profiles).items()}
    sorted_by, columns = orders(profiles), st.columns(3)
    counts = {name: len(group) for name, group in _groups(profiles).items() if group}
    those = columns[0].selectbox(
        "Features", list(counts), format_func=lambda name: f"{name} ({counts[name]:,})", key=f"those:{key}"
    )
    by = columns[1].selectbox("Sort by", list(sorted_by), format_func=sorted_by.__getitem__, key=f"by:{key}")
    table = columns[2].selectbox("Values", list(names), format_func=names.__getitem__, key=f"table:{key}")
    return table, by, those


def _map(opened: Opened, table: str, by: Order, those: str, picked: Callable[[], None] | None = None) -> None:
    """The map of one run. A second run may have no masks, so that unavailable choices fall back to defaults."""
    profiles = opened.profiles
    known = tables(profiles)
    table, by = table if table in known else "mask_off", by if by in orders(profiles) else "peak"
    wanted = set(_groups(profiles)[those])
    features = [feature for feature in profiles.order(by) if feature in wanted]
    caption = f"{' · '.join(opened.run.labels().values())}: {known[table][0]}, {len(features)} features"
    st.caption(plain(caption))
    if not features:
        empty(f"This autoencoder has no features in the group “{those}”.")
        return
    drawn = profile_map(profiles, table, features)
    draw(drawn, f"Map of features and positions: {caption}", f"map:{opened.run.id}", picked)
    note = "Each feature is scaled to its own maximum."
    if by == "peak":
        note += " Sorting by peak shows a diagonal even for noise; see the position selectivity (ε²) of each feature."
    if picked and len(features) <= NAMED:
        note += " Click a circle to select its feature."
    st.caption(note)


def _pick(key: str) -> None:
    """Select the feature that was clicked on the map."""
    for point in st.session_state[f"map:{key}"]["selection"]["points"]:
        st.session_state[f"feature:{key}"] = int(point["customdata"])
        st.session_state[f"listed:{key}"] = None


def _choose(profiles: FeatureProfiles, key: str) -> int:
    """By number, or from the most position-specific features."""
    number, listed = f"feature:{key}", f"listed:{key}"
    selectivity = profiles.position_selectivity
    most_specific = most_position_specific(selectivity)
    if number not in st.session_state:
        st.session_state[number] = next(iter([*profiles.position_specific, *profiles.contexts, *most_specific]), 0)

    def take() -> None:
        st.session_state[number] = st.session_state[listed]

    def let_go() -> None:
        st.session_state[listed] = None

    columns = st.columns(2)
    columns[0].number_input(
        "Feature", min_value=0, max_value=len(profiles.active) - 1, step=1, key=number, on_change=let_go
    )
    peaks = profiles.peaks.tolist()
    columns[1].selectbox(
        "Most position-specific",
        most_specific[:SHOWN],
        index=None,
        placeholder="Choose one",
        format_func=lambda f: f"{f} · selectivity {selectivity[f]:.2f} · peak at {peaks[f]}",
        key=listed,
        on_change=take,
    )
    return int(st.session_state[number])


def _text(opened: Opened, store: Store, feature: int) -> None:
    if opened.profiles.note:
        empty(opened.profiles.note)
        return
    stamp = tuple(store.folder(opened.run.id).stamp())
    those = opened.profiles.contexts.get(feature) or _contexts(opened.run.id, store.root, stamp, feature)
    if those:
        markup(context_table(those))
    else:
        empty(f"Feature {feature} is never active in held-out text.")


@st.cache_resource(show_spinner="Finding activating text", max_entries=512)
def _contexts(run_id: str, root: Path, stamp: Any, feature: int) -> Sequence[ActivatingContext]:
    model, run = load_autoencoder(Store(root), run_id)
    return contexts(model, run.data.build(), [feature])[0][feature]


def _training(opened: Opened, store: Store) -> None:
    run, records = opened.run, store.folder(opened.run.id).metrics()
    explained, trained = st.tabs(["Position selectivity", "Training"])
    with explained:
        title = "Histogram of the position selectivity of features"
        draw(selectivity_histogram(opened.profiles), title, "selectivity")
    with trained:
        draw(learning_curve(records), "Training loss and fraction of variance unexplained over steps", "learning")
    command = terminal("features", "show", run.id)
    downloads(f"features-{run.id}", {".html": lambda: run_page(run, opened.profiles, records, command)})
