"""A picture at any size through a trained run, beside bicubic and, where it is known, the truth."""

from __future__ import annotations

import plotly.graph_objects as go
import streamlit as st
from torch import Tensor

from whence.app.address import addressed
from whence.app.components import draw, empty, guarded, plain, terminal
from whence.app.divider import compare
from whence.app.fields.picture import chosen
from whence.app.fields.rendered import Rendered, rendered
from whence.app.fields.trained import Trained, field_runs
from whence.fields.baselines import resize
from whence.fields.config import Output
from whence.fields.decode import LARGEST
from whence.fields.images import encode
from whence.fields.metrics import MethodQuality, quality
from whence.stats import PSNR
from whence.store.runs import Store

GIVEN = {"as it is": 1, "halved": 2, "quartered": 4}
"""By what each side is divided."""
SIZES = range(64, 321, 16)
"""Of the longer side: a move of the slider is answered within a couple of seconds."""
USUAL = 256
LARGER = (384, 512, 768, 1024)
POINTS_PER_SECOND = 40_000
MOSTLY = 0.998
"""Of a map's points lie within its colour scale: a single one would darken all others."""
DIVIDED, BESIDE = "divider", "side by side"


def show(store: Store) -> None:
    known = {run_id: one for run_id, one in field_runs(store).items() if one.of_pictures}
    runs = {run_id: one for run_id, one in known.items() if one.summary["state"] == "finished"}
    if not runs and any(one.summary["state"] == "running" for one in known.values()):
        empty("A field is being trained: watch it under Train.", "Pictures can be rendered once it has finished.")
        return
    if not runs:
        empty(
            "No field of colour pictures has been trained in this store yet.",
            "Open Train and press Start: after a minute there is something to render with.",
        )
        return
    settings, result = st.columns([1, 2], gap="large")
    with settings:
        made = guarded(_asked_for)(store, runs)
    with result:
        if made is None:
            empty("Nothing to show.", "The message beside says why.")
        else:
            _result(*made)
    with settings:
        _beyond(made)


def _asked_for(store: Store, runs: dict[str, Trained]) -> tuple[Rendered, Output, str] | None:
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
    picture = chosen(run)
    given = addressed(
        "fields",
        "given",
        list(GIVEN),
        "halved",
        lambda key: st.segmented_control(
            "The model is given the picture",
            list(GIVEN),
            key=key,
            required=True,
            help="With each side halved or quartered first, there is a truth that the result can be held against.",
        ),
    )
    outputs: list[Output] = ["render", "field"] if runs[run_id].renders else ["field"]
    output: Output = addressed(
        "fields",
        "output",
        outputs,
        outputs[0],
        lambda key: st.segmented_control(
            "Output",
            outputs,
            key=key,
            required=True,
            help="field: all comes through the position tokens. render: the enlarged input, corrected.",
        ),
    )
    side = addressed(
        "fields",
        "size",
        list(SIZES),
        USUAL,
        lambda key: st.slider(
            "Size of the longer side (points)",
            SIZES[0],
            SIZES[-1],
            step=SIZES.step,
            key=key,
            on_change=lambda: st.session_state.pop("fields:larger", None),
        ),
    )
    side = st.session_state.get("fields:larger", side)
    return rendered(store, run, picture, GIVEN[given], side, output), output, run_id


def _beyond(made: tuple[Rendered, Output, str] | None) -> None:
    """Larger than the slider goes: asked for by a button, or in a terminal."""
    if made is None:
        return
    found, output, run_id = made
    height, width = found.made.shape[1:]
    with st.expander("Larger"):
        side = st.selectbox("Longer side (points)", LARGER, key="fields:larger-side")
        seconds = side**2 * min(height, width) / max(height, width) / POINTS_PER_SECOND
        st.button(
            f"Render at {side}",
            on_click=lambda: st.session_state.update({"fields:larger": side}),
            help="Moving the slider goes back.",
        )
        st.caption(f"About {max(1, round(seconds))} s on one core. Up to {LARGEST:,} points, in a terminal:")
        words = ["fields", "render", run_id, "--input", "PICTURE", "--size", str(LARGEST)]
        st.code(terminal(*words, "--output", output, "--out", "large.png"), language="bash", wrap_lines=True)


def _result(found: Rendered, output: Output, run_id: str) -> None:
    height, width = found.made.shape[1:]
    given = found.given.shape[1:]
    st.markdown(plain(f"{given[1]}×{given[0]} → {width}×{height} points") + f", {output}")
    if found.truth is not None:
        st.markdown(
            plain(compared(output, found.made, found.bicubic, found.truth)),
            help="One picture decides nothing: Train, under Results, says how a run does on many.",
        )
    elif not found.enlarged:
        st.caption("No larger than what the model was given: it has nothing to add. Move the slider further.")
    else:
        st.caption("There is no truth to hold this against: what lies between the points is a guess, of both.")
    _pictures(found, output)
    _differences(found, output)
    st.download_button(
        "Download as PNG",
        encode(found.made),
        file_name=f"{output}-{width}x{height}.png",
        mime="image/png",
        on_click="ignore",
        icon=":material/download:",
    )


def _pictures(found: Rendered, output: Output) -> None:
    shown = {"original": found.truth} if found.truth is not None else {}
    shown |= {"bicubic": found.bicubic, output: found.made}
    with st.container(horizontal=True):
        look = st.segmented_control(
            "Shown with", [DIVIDED, BESIDE], default=DIVIDED, required=True, key="fields:look", persist_state="session"
        )
        if look == DIVIDED and len(shown) > 2:
            left = st.segmented_control(
                "Left of the divider", ["bicubic", "original"], default="bicubic", required=True, key="fields:left"
            )
            shown = {left: shown[left], output: found.made}
    compare(shown, "fields:pictures", divided=look == DIVIDED)


def _differences(found: Rendered, output: Output) -> None:
    """Where they are off; without a truth, where they differ. Two maps share one scale."""
    if found.truth is None:
        maps = {f"{output} against bicubic": difference(found.made, found.bicubic)}
    else:
        maps = {
            f"error of the {output}": difference(found.made, found.truth),
            "error of bicubic": difference(found.bicubic, found.truth),
        }
    most = max(float(one.quantile(MOSTLY)) for one in maps.values())
    tabs = st.tabs([f"{name[0].upper()}{name[1:]}" for name in maps])
    for (name, values), tab in zip(maps.items(), tabs, strict=True):
        with tab:
            mean = float(values.mean())
            st.caption(
                plain(f"Absolute, mean over colours: {mean:.1f} of 255 levels on average, {values.max():.0f} at most.")
            )
            draw(difference_map(values, most), f"Map of the {name}: {mean:.1f} of 255 levels on average", f"map:{name}")


LEVELS = 255
MAP_SIDE = 192
"""Pixels of a map's longer side; finer ones are averaged: a browser draws every one."""


def compared(name: str, made: Tensor, bicubic: Tensor, truth: Tensor) -> str:
    """Which of two is closer to the original, of this one image."""
    mine, other = quality(made[None], truth[None]), quality(bicubic[None], truth[None])
    gap = mine.psnr - other.psnr
    if abs(gap) < PSNR.tie_margin:
        verdict = f"Within {PSNR.margin} of each other"
    else:
        verdict = f"{f'The {name}' if gap > 0 else 'Bicubic'} is closer to the original, by {abs(gap):.2f} dB"
    return f"{verdict}. {_quality_text(name, mine)}; {_quality_text('bicubic', other)}."


def _quality_text(name: str, quality: MethodQuality) -> str:
    return f"{name} {quality.psnr:.2f} dB PSNR" + ("" if quality.ssim is None else f", {quality.ssim:.3f} SSIM")


def difference(one: Tensor, other: Tensor) -> Tensor:
    """(height, width): absolute, mean over colours, in levels of 255; no larger than a map is drawn."""
    levels = LEVELS * (one - other).abs().mean(0, keepdim=True)
    height, width = levels.shape[1:]
    scale = min(1.0, MAP_SIDE / max(height, width))
    return resize(levels[None], (max(1, round(height * scale)), max(1, round(width * scale))), "area")[0, 0]


def difference_map(levels: Tensor, most: float) -> go.Figure:
    """most: where the colour scale ends, so that two maps can have the same one."""
    figure = go.Figure()
    figure.add_heatmap(
        z=[[round(value, 1) for value in row] for row in levels.tolist()],
        zmin=0,
        zmax=max(most, 1),
        colorscale="Cividis",
        colorbar={"title": {"text": "levels of 255", "side": "top"}, "thickness": 14, "orientation": "h", "y": -0.28},
        hovertemplate="%{z:.1f} levels of 255<extra></extra>",
    )
    invisible = {"visible": False, "constrain": "domain"}
    figure.update_layout(
        xaxis=invisible,
        yaxis={**invisible, "autorange": "reversed", "scaleanchor": "x"},
        height=420,
        margin={"l": 0, "r": 0, "t": 10, "b": 80},
    )
    return figure
