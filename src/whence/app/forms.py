"""Forms generated from configs: a widget per field, its description as help, validated by the config."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import streamlit as st
import yaml
from streamlit.delta_generator import DeltaGenerator

from whence.app.components import plain, the_store
from whence.app.jobs import Document
from whence.config import Config
from whence.errors import UserError
from whence.experiments.options import NONE, Option, command, options_of, store_flag
from whence.experiments.saved import Presets
from whence.registry import Registry, parse_choice

C = TypeVar("C", bound=Config)
NO_PRESET = "none (defaults)"
Offered = Mapping[str, Mapping[str, str]]
Path = tuple[str, ...]
"""Of a field: the names of the groups around it, and its own"""
LABELS = {
    "against": "Reference encoding",
    "attention": "Attention mask",
    "axis": "Varied part",
    "clip": "Gradient norm limit",
    "conditional": "Content-dependent position tokens",
    "controls": "Include control variants",
    "crops": "Evaluation signals",
    "d_model": "Model width (d_model)",
    "d_sae": "Number of features (d_sae)",
    "evaluations": "Number of evaluations",
    "family": "Family of comparisons",
    "force": "Measure again",
    "groups": "Groups of position tokens",
    "heads": "Attention heads",
    "l0": "Active features (L0)",
    "layers": "Number of layers",
    "length": "Tokens per example",
    "lps": "Number of position tokens (M)",
    "lr": "Learning rate",
    "matrix_lr": "Learning rate of matrices",
    "max_seeds": "Maximum number of seeds",
    "min_length": "Minimum training length",
    "mlp_ratio": "MLP ratio",
    "order": "Scan order",
    "patch": "Patch size",
    "pixels": "Pixels in the loss",
    "pool": "Pooling",
    "position_lr_multiplier": "Learning-rate multiplier of position parameters",
    "ratios": "Mask ratios",
    "render_layers": "Layers of the residual render",
    "render_width": "Width of the residual render",
    "rows": "Number of examples",
    "seeds": "Number of seeds",
    "spatial": "Channel encoding",
    "steps": "Training steps",
    "temporal": "Temporal encoding",
    "test_lengths": "Test lengths (OOD)",
    "test_rows": "Evaluation examples",
    "test_sequences": "Test sequences per length",
    "tokens": "Number of tokens",
    "tune": "Tuning grid",
    "tune_seeds": "Seeds for tuning",
    "until_decided": "Add seeds until decided",
    "warmup": "Warm-up steps",
}
"""By field, where the name of the field is not readable as a label"""


def form(
    config_class: type[C],
    key: str,
    words: Sequence[str],
    *,
    first: Sequence[str] = (),
    left_out: Sequence[str] = (),
    presets: Presets[Any] | None = None,
    start: Mapping[str, object] | None = None,
    check: Callable[[C], object] = lambda config: None,
    offered: Offered = MappingProxyType({}),
    resolve: Callable[[Document], Document] = lambda document: document,
) -> C | None:
    """The current config of the form; None if it is invalid, with an error at the field that caused it.

    words: the command that takes this config. first: fields at the top; others are in expanders, one per group.

    start: initial values that differ from the defaults. check: raises `UserError` for impossible combinations.
    offered: by field, the choices with a label for each; a field that takes any text is then limited to them.
    resolve: returns the document of the config for that of the form; raises `UserError` for values that the command
    line accepts and the app does not, such as paths.
    """
    usual = config_class.read(dict(start or {}))
    if f"{key}:made" not in st.session_state:
        st.session_state[f"{key}:made"] = True
        _fill(key, usual)
    if presets:
        st.selectbox(
            "Preset",
            [NO_PRESET, *presets.names()],
            key=f"{key}:preset",
            help="A packaged comparison. It fills in the form; every field can still be changed.",
            on_change=_take_preset,
            args=(key, config_class, presets, usual),
            persist_state="session",
        )
        if (chosen := st.session_state.get(f"{key}:preset", NO_PRESET)) != NO_PRESET:
            st.caption(plain(presets.about(chosen)))
    shown = [option for option in options_of(config_class()) if not {option.path[0], option.name} & set(left_out)]
    values: dict[Path, Any] = {}
    defaults = config_class()
    messages: dict[str, DeltaGenerator] = {}
    in_front = [option for name in first for option in shown if option.name == name]

    def place(members: Sequence[Option], across: int) -> None:
        for row in _rows(members, across):
            wide = isinstance(row[0].value, tuple)
            for option, cell in zip(row, [st.container()] if wide else st.columns(across), strict=False):
                with cell:
                    widget = _widget(option, key, offered, defaults)
                    values[option.path], messages[option.name] = widget, st.empty()

    place(in_front, across=3)
    groups: dict[Path, list[Option]] = {}
    for option in shown:
        if option not in in_front:
            groups.setdefault(option.path[:-1], []).append(option)
    for path, members in groups.items():
        title, about = _group(config_class, path)
        with st.expander(title):
            if about:
                st.caption(plain(about))
            place(members, across=2)
    document, config = _document(shown, values), None
    try:
        document = resolve(document)
        read = config_class.read(document)
        check(read)
        config = read
    except UserError as error:  # shown at the field that caused it, or below the form
        fields = [part for part in (error.field or "").split(".") if part in messages]
        place_of_error = messages[fields[-1]] if fields else st
        place_of_error.error(plain(str(error)), icon=":material/error:")
    with st.expander("Copy as a command or as YAML"):
        st.code(command(words, config_class, document, store_flag(the_store())), language="bash", wrap_lines=True)
        text = yaml.safe_dump(document, sort_keys=False) if document else "# all defaults\n"
        st.code(text, language="yaml")
    return config


def _rows(members: Sequence[Option], across: int) -> list[list[Option]]:
    """Lists have a row of their own, other fields share rows."""
    rows: list[list[Option]] = []
    for option in members:
        full = not rows or isinstance(rows[-1][0].value, tuple) or len(rows[-1]) == across
        if full or isinstance(option.value, tuple):
            rows.append([])
        rows[-1].append(option)
    return rows


def _widget(option: Option, key: str, offered: Offered, defaults: Config) -> Any:
    name, label = _key(key, option), LABELS.get(option.name) or option.name.replace("_", " ").capitalize()
    about = f"{option.description}. Flag: {option.flag}"
    common: Any = {"key": name, "help": plain(about), "persist_state": "session"}
    if isinstance(option.value, bool):
        return st.checkbox(label, **common)
    names, labels = list(option.variants), offered.get(option.name, {})
    choosing: Any = {
        "accept_new_options": bool(names) or not labels,
        "format_func": lambda value: labels.get(value, value),
    }
    if isinstance(option.value, tuple):
        options = list(dict.fromkeys([*(labels or names), *st.session_state.get(name, ())]))
        return st.multiselect(
            label, options, placeholder=_placeholder(option, defaults), select_all=False, **choosing, **common
        )
    if option.choices:
        return st.selectbox(label, [*option.choices, *([NONE] if option.optional else [])], **common)
    if known := list(labels) or names:
        options = [*([NONE] if option.optional else []), *known]
        options = list(dict.fromkeys([*options, str(st.session_state.get(name, options[0]))]))
        return st.selectbox(label, options, **choosing, **common)
    if option.whole_number:
        return st.number_input(label, step=1, **common)  # the config checks limits: Streamlit would clamp silently
    return st.text_input(label, **common)


def _placeholder(option: Option, defaults: Config) -> str | None:
    """The value that an empty list stands for: as validation fills it in, or as the description of the field says."""
    if option.value:
        return None
    value: Any = functools.reduce(getattr, option.path, defaults)
    return ", ".join(map(str, value)) if value else option.unset or NONE


def _key(key: str, option: Option) -> str:
    return f"{key}:{'.'.join(option.path)}"


def _fill(key: str, config: Config) -> None:
    for option in options_of(config):
        value = list(option.value) if isinstance(option.value, tuple) else option.value
        st.session_state[_key(key, option)] = int(str(value)) if option.whole_number else value


def _take_preset(key: str, config_class: type[Config], presets: Presets[Any], usual: Config) -> None:
    name = st.session_state[f"{key}:preset"]
    _fill(key, usual if name == NO_PRESET else config_class.read(presets.read(name)))


def _document(options: Sequence[Option], values: Mapping[Path, Any]) -> Document:
    document: Any = {}
    for option in options:
        value = values[option.path]
        value = tuple(value) if isinstance(value, list) else value
        if (value if isinstance(value, bool | tuple) else str(value)) == option.value:
            continue
        inner = document
        for part in option.path[:-1]:
            inner = inner.setdefault(part, {})
        given = option.parse(value)
        inner[option.path[-1]] = list(given) if isinstance(given, tuple) else given
    return document


@functools.cache
def _group(config_class: type[Config], path: Path) -> tuple[str, str]:
    """Title and description of a group of fields, as in the help of the command line."""
    if not path:
        return "More options", ""
    group = config_class
    for part in path:
        group = type(group.model_fields[part].get_default())
    return path[-1].replace("_", " ").capitalize(), inspect.cleandoc(group.__doc__ or "").split("\n")[0]


# --- data: a form offers packaged data and opens no file that it names


def offered_data(registry: Registry[Any]) -> Offered:
    return {"data": {name: name for name in _without_path(registry)}}


def without_files(document: Document, registry: Registry[Any], words: str) -> Document:
    """The document. Raises `UserError` if its data name a file. words: a command that accepts files."""
    names = _without_path(registry)
    try:
        data = parse_choice(document.get("data", names[0]))
    except ValueError as error:
        raise UserError(f"data: {error}") from None
    known = isinstance(data, dict) and data.get("name") in names
    fields = registry.choices[data["name"]].model_fields if known else {}
    # text options are names of files; all others are numbers or choices
    texts = [name for name, field in fields.items() if field.annotation is str and name != "name"]
    if not known or any(data.get(name) for name in texts):
        raise UserError(
            f"data: expected packaged data ({', '.join(names)}), with numbers as options. The app opens no files by "
            f"name; use the command line for your own files: {words}"
        )
    return document


def _without_path(registry: Registry[Any]) -> list[str]:
    return [name for name, choice in registry.choices.items() if "path" not in choice.model_fields]
