"""An image at any size through a trained run, beside bicubic and, where it is known, the truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import streamlit as st
from streamlit.components.v2 import component
from torch import Tensor

from whence.app.address import addressed
from whence.app.components import draw, empty, guarded, plain, terminal
from whence.app.views.fields.images import (
    RenderedImage,
    choose_image,
    compared,
    difference,
    difference_map,
    render_image,
)
from whence.app.views.fields.runs import ListedRun, field_runs
from whence.fields.config import Output
from whence.fields.decode import LARGEST
from whence.fields.images import data_uri, encode
from whence.store.runs import Store

GIVEN = {"as it is": 1, "halved": 2, "quartered": 4}
"""By what each side is divided."""
SIZES = range(64, 321, 16)
"""Of the longer side: a move of the slider is answered within a couple of seconds."""
USUAL = 256
LARGER = (384, 512, 768, 1024)
PIXELS_PER_SECOND = 40_000
MOSTLY = 0.998
"""Of a map's pixels lie within its colour scale: a single one would darken all others."""
DIVIDED, BESIDE = "divider", "side by side"
T = TypeVar("T")
HTML, CSS, JS = ((Path(__file__).parent / f"divider.{language}").read_text() for language in ("html", "css", "js"))
_pictures = component("whence_divider", html=HTML, css=CSS, js=JS)
"""Of one size: two with a divider between them, or all side by side. What moves, moves in the browser: the divider, by
finger, mouse or arrow keys, and the zoom."""


def show(store: Store) -> None:
    known = {run_id: one for run_id, one in field_runs(store).items() if one.of_images}
    runs = {run_id: one for run_id, one in known.items() if one.state == "finished"}
    if not runs:
        if any(one.state == "running" for one in known.values()):
            empty("A field is being trained: watch it under Train.", "Images can be rendered once it has finished.")
        else:
            empty(
                "No field of colour images has been trained in this store yet.",
                "Open Train and press Start: after a minute there is something to render with.",
            )
        return
    settings, result = st.columns([1, 2], gap="large")
    with settings:
        made = guarded(_requested)(store, runs)
    with result:
        if made is None:
            empty("Nothing to show.", "The message beside says why.")
            return
        _result(*made)
    with settings:
        _beyond(*made)


def _requested(store: Store, runs: dict[str, ListedRun]) -> tuple[RenderedImage, Output, str]:
    """The widgets, and what they ask for."""
    best = next((run_id for run_id, one in runs.items() if one.renders), next(iter(runs)))
    run_id = addressed(
        "fields",
        "run",
        list(runs),
        best,
        lambda key: st.selectbox("Run", list(runs), key=key, format_func=lambda run_id: runs[run_id].label),
    )
    run = runs[run_id].run
    image = choose_image(run)
    given = _one_of(
        "given",
        "The model is given the image",
        list(GIVEN),
        "halved",
        "With each side halved or quartered first, there is a truth that the result can be held against.",
    )
    outputs: list[Output] = ["render", "field"] if runs[run_id].renders else ["field"]
    output: Output = _one_of(
        "output",
        "Output",
        outputs,
        outputs[0],
        "field: all comes through the position tokens. render: the enlarged input, corrected.",
    )
    side = addressed(
        "fields",
        "size",
        list(SIZES),
        USUAL,
        lambda key: st.slider(
            "Size of the longer side (pixels)",
            SIZES[0],
            SIZES[-1],
            step=SIZES.step,
            key=key,
            on_change=lambda: st.session_state.pop("fields:larger", None),
        ),
    )
    side = st.session_state.get("fields:larger", side)
    return render_image(store, run, image, GIVEN[given], side, output), output, run_id


def _one_of(name: str, label: str, options: Sequence[T], usual: T, help: str) -> T:
    return addressed(
        "fields",
        name,
        options,
        usual,
        lambda key: st.segmented_control(label, options, key=key, required=True, help=help),
    )


def _beyond(rendered: RenderedImage, output: Output, run_id: str) -> None:
    """Larger than the slider goes: asked for by a button, or in a terminal."""
    height, width = rendered.output.shape[1:]
    with st.expander("Larger"):
        side = st.selectbox("Longer side (pixels)", LARGER, key="fields:larger-side")
        seconds = side**2 * min(height, width) / max(height, width) / PIXELS_PER_SECOND
        st.button(
            f"Render at {side}",
            on_click=lambda: st.session_state.update({"fields:larger": side}),
            help="Moving the slider goes back.",
        )
        st.caption(f"About {max(1, round(seconds))} s on one core. Up to {LARGEST:,} pixels, in a terminal:")
        words = ["fields", "render", run_id, "--input", "IMAGE", "--size", str(LARGEST)]
        st.code(terminal(*words, "--output", output, "--out", "large.png"), language="bash", wrap_lines=True)


def _result(rendered: RenderedImage, output: Output, run_id: str) -> None:
    height, width = rendered.output.shape[1:]
    given = rendered.given.shape[1:]
    st.markdown(plain(f"{given[1]}×{given[0]} → {width}×{height} pixels") + f", {output}")
    shown = {"bicubic": rendered.bicubic, output: rendered.output}
    if rendered.truth is not None:
        st.markdown(
            plain(compared(output, rendered.output, rendered.bicubic, rendered.truth)),
            help="One image decides nothing: Train, under Results, says how a run does on many.",
        )
        maps = {
            f"error of the {output}": difference(rendered.output, rendered.truth),
            "error of bicubic": difference(rendered.bicubic, rendered.truth),
        }
        shown = {"original": rendered.truth, **shown}
    else:
        maps = {f"{output} against bicubic": difference(rendered.output, rendered.bicubic)}
        if rendered.enlarged:
            st.caption("There is no truth to hold this against: what lies between the pixels is a guess, of both.")
        else:
            st.caption("No larger than what the model was given: it has nothing to add. Move the slider further.")
    _images(shown, output)
    _maps(maps)
    st.download_button(
        "Download as PNG",
        encode(rendered.output),
        file_name=f"{output}-{width}x{height}.png",
        mime="image/png",
        on_click="ignore",
        icon=":material/download:",
    )


def _images(shown: dict[str, Tensor], output: Output) -> None:
    with st.container(horizontal=True):
        layout = st.segmented_control(
            "Shown with",
            [DIVIDED, BESIDE],
            default=DIVIDED,
            required=True,
            key="fields:layout",
            persist_state="session",
        )
        if layout == DIVIDED and len(shown) > 2:
            left = st.segmented_control(
                "Left of the divider", ["bicubic", "original"], default="bicubic", required=True, key="fields:left"
            )
            shown = {left: shown[left], output: shown[output]}
    pictures = [{"name": name, "src": data_uri(image)} for name, image in shown.items()]
    _pictures(key="fields:images", data={"pictures": pictures, "divided": layout == DIVIDED})


def _maps(maps: dict[str, Tensor]) -> None:
    """Where images differ. Two maps share one scale."""
    most = max(float(one.quantile(MOSTLY)) for one in maps.values())
    tabs = st.tabs([f"{name[0].upper()}{name[1:]}" for name in maps])
    for (name, values), tab in zip(maps.items(), tabs, strict=True):
        with tab:
            mean = float(values.mean())
            st.caption(
                plain(f"Absolute, mean over colours: {mean:.1f} of 255 levels on average, {values.max():.0f} at most.")
            )
            draw(difference_map(values, most), f"Map of the {name}: {mean:.1f} of 255 levels on average", f"map:{name}")
