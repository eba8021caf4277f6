"""The view Render: an image at any size by a trained run, next to bicubic and, if known, the original."""

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

GIVEN = {"full": 1, "half": 2, "quarter": 4}
"""Divisors of both sides"""
SIZES = range(64, 321, 16)
"""Lengths of the longer side for which a rendering takes about two seconds at most"""
DEFAULT_SIZE = 256
LARGER = (384, 512, 768, 1024)
PIXELS_PER_SECOND = 40_000
MOSTLY = 0.998
"""Quantile of a map at which its colour scale ends: a single pixel would darken all others"""
DIVIDED, BESIDE = "divider", "side by side"
T = TypeVar("T")
HTML, CSS, JS = ((Path(__file__).parent / f"divider.{language}").read_text() for language in ("html", "css", "js"))
_pictures = component("whence_divider", html=HTML, css=CSS, js=JS)
"""Images of one size, two with a divider or all side by side. The divider and the zoom work in the browser."""


def show(store: Store) -> None:
    known = {run_id: one for run_id, one in field_runs(store).items() if one.of_images}
    runs = {run_id: one for run_id, one in known.items() if one.state == "finished"}
    if not runs:
        if any(one.state == "running" for one in known.values()):
            empty(
                "A field is being trained.",
                "See its progress under Train. Images can be rendered when it has finished.",
            )
        else:
            empty(
                "No field of colour images has been trained in this store yet.",
                "Open Train and press Start. Images can be rendered when the run has finished.",
            )
        return
    settings, result = st.columns([1, 2], gap="large")
    with settings:
        made = guarded(_requested)(store, runs)
    with result:
        if made is None:
            empty("No image to show.", "See the error message.")
            return
        _result(*made)
    with settings:
        _beyond(*made)


def _requested(store: Store, runs: dict[str, ListedRun]) -> tuple[RenderedImage, Output, str]:
    """The widgets, and the requested rendering."""
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
        "Input resolution",
        list(GIVEN),
        "half",
        "With half or quarter resolution, the output can be compared with the original.",
    )
    outputs: list[Output] = ["render", "field"] if runs[run_id].renders else ["field"]
    output: Output = _one_of(
        "output",
        "Output",
        outputs,
        outputs[0],
        "field: decodes the position tokens alone. render: corrects the bicubic enlargement.",
    )
    side = addressed(
        "fields",
        "size",
        list(SIZES),
        DEFAULT_SIZE,
        lambda key: st.slider(
            "Output size: longer side (pixels)",
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
    """Larger sizes, by a button or on the command line."""
    height, width = rendered.output.shape[1:]
    with st.expander("Larger sizes"):
        side = st.selectbox("Longer side (pixels)", LARGER, key="fields:larger-side")
        seconds = side**2 * min(height, width) / max(height, width) / PIXELS_PER_SECOND
        st.button(
            f"Render at {side}",
            on_click=lambda: st.session_state.update({"fields:larger": side}),
            help="Move the slider to return to smaller sizes.",
        )
        st.caption(f"About {max(1, round(seconds))} s on one core. For up to {LARGEST:,} pixels, use the command line:")
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
            help="This is one image. Train, Results shows the quality on many held-out images.",
        )
        maps = {
            f"error of the {output}": difference(rendered.output, rendered.truth),
            "error of bicubic": difference(rendered.bicubic, rendered.truth),
        }
        shown = {"original": rendered.truth, **shown}
    else:
        maps = {f"{output} against bicubic": difference(rendered.output, rendered.bicubic)}
        if rendered.enlarged:
            st.caption(
                "The original at this size is not known. Reduce the input resolution or the output size to compare."
            )
        else:
            st.caption("The output is not larger than the input. Increase the output size.")
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
            "View",
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
    """Difference maps. Two maps share one scale."""
    most = max(float(one.quantile(MOSTLY)) for one in maps.values())
    tabs = st.tabs([f"{name[0].upper()}{name[1:]}" for name in maps])
    for (name, values), tab in zip(maps.items(), tabs, strict=True):
        with tab:
            mean = float(values.mean())
            st.caption(
                plain(
                    "Absolute difference, mean over colour channels, of 255 levels: "
                    f"{mean:.1f} on average, {values.max():.0f} at most."
                )
            )
            draw(difference_map(values, most), f"Map of the {name}: {mean:.1f} of 255 levels on average", f"map:{name}")
