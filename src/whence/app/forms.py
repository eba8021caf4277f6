"""Forms made from configs: a widget per field, with the field's description as help and the config's own validation."""

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
NO_PRESET = "no preset"
Offered = Mapping[str, Mapping[str, str]]
Path = tuple[str, ...]
"""Of a field: the names of the groups around it, and its own"""


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
    """What the form holds now; None if it is not valid, and the form shows why.

    words: the command that takes this config. first: the fields most people set; others are folded away by group.

    start: what it begins with, where that is not the defaults. check: refuses what is valid field by field and
    impossible together. offered: by field, what can be chosen, with a label for each; where a config would take any
    text, nothing else can be. resolve: the document of the config for what the form holds; it refuses what is allowed
    in a terminal but not on a page, such as paths.
    """
    usual = config_class.read(dict(start or {}))
    if f"{key}:made" not in st.session_state:
        st.session_state[f"{key}:made"] = True
        _fill(key, usual)
    if presets:
        st.selectbox(
            "Start from",
            [NO_PRESET, *presets.names()],
            key=f"{key}:preset",
            help="A comparison that comes with whence fills in the form; everything can still be changed.",
            on_change=_take_preset,
            args=(key, config_class, presets, usual),
            persist_state="session",
        )
        if (chosen := st.session_state.get(f"{key}:preset", NO_PRESET)) != NO_PRESET:
            st.caption(plain(presets.about(chosen)))
    shown = [option for option in options_of(config_class()) if not {option.path[0], option.name} & set(left_out)]
    values: dict[Path, Any] = {}
    messages: dict[str, DeltaGenerator] = {}
    in_front = [option for name in first for option in shown if option.name == name]

    def place(members: Sequence[Option], across: int) -> None:
        for row in _rows(members, across):
            wide = isinstance(row[0].value, tuple)
            for option, cell in zip(row, [st.container()] if wide else st.columns(across), strict=False):
                with cell:
                    values[option.path], messages[option.name] = _widget(option, key, offered), st.empty()

    place(in_front, across=3)
    groups: dict[Path, list[Option]] = {}
    for option in shown:
        if option not in in_front:
            groups.setdefault(option.path[:-1], []).append(option)
    for path, members in groups.items():
        with st.expander(_title(config_class, path)):
            place(members, across=2)
    document, config = _document(shown, values), None
    try:
        document = resolve(document)
        read = config_class.read(document)
        check(read)
        config = read
    except UserError as error:  # shown at the field that caused it, else below the form
        fields = [part for part in (error.field or "").split(".") if part in messages]
        place_of_error = messages[fields[-1]] if fields else st
        place_of_error.error(plain(str(error)), icon=":material/error:")
    with st.expander("Copy as a command or as YAML"):
        st.code(command(words, config_class, document, store_flag(the_store())), language="bash", wrap_lines=True)
        text = yaml.safe_dump(document, sort_keys=False) if document else "# all as it is by default\n"
        st.code(text, language="yaml")
    return config


def _rows(members: Sequence[Option], across: int) -> list[list[Option]]:
    """Lists have a line of their own, others share one."""
    rows: list[list[Option]] = []
    for option in members:
        full = not rows or isinstance(rows[-1][0].value, tuple) or len(rows[-1]) == across
        if full or isinstance(option.value, tuple):
            rows.append([])
        rows[-1].append(option)
    return rows


def _widget(option: Option, key: str, offered: Offered) -> Any:
    name, label = _key(key, option), option.name.replace("_", " ")
    common: Any = {"key": name, "help": plain(option.description), "persist_state": "session"}
    if isinstance(option.value, bool):
        return st.checkbox(label, **common)
    names, labels = list(option.variants), offered.get(option.name, {})
    choosing: Any = {
        "accept_new_options": bool(names) or not labels,
        "format_func": lambda value: labels.get(value, value),
    }
    if isinstance(option.value, tuple):
        options = list(dict.fromkeys([*(labels or names), *st.session_state.get(name, ())]))
        placeholder = None if option.value else "as usual"
        return st.multiselect(label, options, placeholder=placeholder, select_all=False, **choosing, **common)
    if option.choices:
        return st.selectbox(label, [*option.choices, *([NONE] if option.optional else [])], **common)
    if known := list(labels) or names:
        options = [*([NONE] if option.optional else []), *known]
        options = list(dict.fromkeys([*options, str(st.session_state.get(name, options[0]))]))
        return st.selectbox(label, options, **choosing, **common)
    if option.whole_number:
        return st.number_input(label, step=1, **common)  # limits are left to the config: Streamlit would clamp silently
    return st.text_input(label, **common)


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
def _title(config_class: type[Config], path: Path) -> str:
    group = config_class
    for part in path:
        group = type(group.model_fields[part].get_default())
    return inspect.cleandoc(group.__doc__ or "").split("\n")[0].rstrip(".") if path else "More"


# --- data: a page offers those that come with whence, and opens no file that a form names


def offered_data(registry: Registry[Any]) -> Offered:
    return {"data": {name: name for name in _without_path(registry)}}


def without_files(document: Document, registry: Registry[Any], words: str) -> Document:
    """The document, unless its data name a file. words: the command that may."""
    names = _without_path(registry)
    try:
        data = parse_choice(document.get("data", names[0]))
    except ValueError as error:
        raise UserError(f"data: {error}") from None
    known = isinstance(data, dict) and data.get("name") in names
    fields = registry.choices[data["name"]].model_fields if known else {}
    # options that are text are names of files; all others are numbers or words of a list
    texts = [name for name, field in fields.items() if field.annotation is str and name != "name"]
    if not known or any(data.get(name) for name in texts):
        raise UserError(
            f"data: the app opens no files that a form names. Allowed: {', '.join(names)}, with numbers "
            f"as options. Files of your own can be named in a terminal: {words}"
        )
    return document


def _without_path(registry: Registry[Any]) -> list[str]:
    return [name for name, choice in registry.choices.items() if "path" not in choice.model_fields]
