"""Forms made from specs: a widget per field, the spec's own words as help, and its own judgement of what was typed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import streamlit as st
import yaml

from whence.app.parts import plain, the_store
from whence.config import Config
from whence.errors import UserError
from whence.experiments.options import NONE, Option, command, options_of, store_flag
from whence.experiments.saved import Presets

S = TypeVar("S", bound=Config)
OWN = "no preset"
Offered = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Filled(Generic[S]):
    """What a form holds now."""

    document: dict[str, Any]
    """What differs from the defaults."""
    spec: S | None
    """None, where the document is not valid; the form has said why."""


def form(
    spec_class: type[S],
    key: str,
    words: Sequence[str],
    *,
    first: Sequence[str] = (),
    left_out: Sequence[str] = (),
    presets: Presets | None = None,
    start: Mapping[str, Any] | None = None,
    check: Callable[[Any], Any] = lambda spec: None,
    config: bool = True,
    offered: Offered = MappingProxyType({}),
    settle: Callable[[dict[str, Any]], dict[str, Any]] = lambda document: document,
) -> Filled[S]:
    """words: the command that takes this spec. first: the fields most people set; others are folded away by group.

    start: what it begins with, where that is not the defaults. check: refuses what is valid field by field and
    impossible together. offered: by field, what can be chosen, with a label for each; where a spec would take any text,
    nothing else can be. settle: what the command is given for what the form holds; it refuses what a terminal may ask
    for and a page may not, as paths. config: the command reads a file of these fields.
    """
    usual = spec_class.read(dict(start or {}))
    if f"{key}:made" not in st.session_state:
        st.session_state[f"{key}:made"] = True
        _fill(key, usual)
    if presets:
        st.selectbox(
            "Start from",
            [OWN, *presets.names()],
            key=f"{key}:preset",
            help="A comparison that comes with whence fills in the form; everything can still be changed.",
            on_change=_take_preset,
            args=(key, spec_class, presets, usual),
            persist_state="session",
        )
        if (chosen := st.session_state.get(f"{key}:preset", OWN)) != OWN:
            st.caption(plain(presets.about(chosen)))
    shown = [
        option for option in options_of(spec_class()) if option.path[0] not in left_out and option.name not in left_out
    ]
    values: dict[tuple[str, ...], Any] = {}
    complaints: dict[str, Any] = {}
    in_front = [option for name in first for option in shown if option.name == name]

    def place(members: Sequence[Option], across: int) -> None:
        for row in _rows(members, across):
            wide = isinstance(row[0].value, tuple)
            for option, cell in zip(row, [st.container()] if wide else st.columns(across), strict=False):
                with cell:
                    values[option.path], complaints[option.name] = _widget(option, key, offered), st.empty()

    place(in_front, across=3)
    groups: dict[tuple[str, ...], list[Option]] = {}
    for option in shown:
        if option not in in_front:
            groups.setdefault(option.path[:-1], []).append(option)
    for path, members in groups.items():
        with st.expander(_title(spec_class, path)):
            place(members, across=2)
    document, spec = _judged(
        spec_class, _document({option.path: option for option in shown}, values), settle, check, complaints
    )
    with st.expander("Copy as a command or as YAML" if config else "Copy as a command"):
        st.code(command(words, spec_class, document, store_flag(the_store())), language="bash", wrap_lines=True)
        if config:
            told = yaml.safe_dump(document, sort_keys=False) if document else "# all as it is by default\n"
            st.code(told, language="yaml")
    return Filled(document, spec)


def _judged(
    spec_class: type[S],
    document: dict[str, Any],
    settle: Callable[[dict[str, Any]], dict[str, Any]],
    check: Callable[[Any], Any],
    complaints: Mapping[str, Any],
) -> tuple[dict[str, Any], S | None]:
    """Said at the field that is to blame, else below the form."""
    try:
        document = settle(document)
        spec = spec_class.read(document)
        check(spec)
        return document, spec
    except UserError as error:
        blamed = [part for part in (error.field or "").split(".") if part in complaints]
        place = complaints[blamed[-1]] if blamed else st
        place.error(plain(str(error)), icon=":material/error:")
        return document, None


def _rows(members: Sequence[Option], across: int) -> list[list[Option]]:
    """Lists have a line of their own, others share one."""
    rows: list[list[Option]] = []
    for option in members:
        if (
            isinstance(option.value, tuple)
            or not rows
            or isinstance(rows[-1][0].value, tuple)
            or len(rows[-1]) == across
        ):
            rows.append([])
        rows[-1].append(option)
    return rows


def _widget(option: Option, key: str, offered: Offered) -> Any:
    name, label = _key(key, option), option.name.replace("_", " ")
    keep: dict[str, Any] = {"key": name, "help": plain(option.description), "persist_state": "session"}
    if isinstance(option.value, bool):
        return st.checkbox(label, **keep)
    names, labels = list(option.variants), offered.get(option.name, {})
    chosen: dict[str, Any] = {
        "accept_new_options": bool(names) or not labels,
        "format_func": lambda value: labels.get(value, value),
    }
    if isinstance(option.value, tuple):
        options = list(dict.fromkeys([*(labels or names), *st.session_state.get(name, ())]))
        placeholder = None if option.value else "as usual"
        return st.multiselect(label, options, placeholder=placeholder, select_all=False, **chosen, **keep)
    if option.choices:
        return st.selectbox(label, [*option.choices, *([NONE] if option.optional else [])], **keep)
    if found := list(labels) or names:
        options = [*([NONE] if option.optional else []), *found]
        options = list(dict.fromkeys([*options, str(st.session_state.get(name, options[0]))]))
        return st.selectbox(label, options, **chosen, **keep)
    if option.whole_number:
        return st.number_input(label, step=1, **keep)  # its limits are the spec's to tell: Streamlit keeps to itself
    return st.text_input(label, **keep)


def _key(key: str, option: Option) -> str:
    return f"{key}:{'.'.join(option.path)}"


def _fill(key: str, spec: Config) -> None:
    for option in options_of(spec):
        value: Any = option.value
        if isinstance(value, tuple):
            value = list(value)
        elif option.whole_number:
            value = int(str(option.value))
        st.session_state[_key(key, option)] = value


def _take_preset(key: str, spec_class: type[Config], presets: Presets, usual: Config) -> None:
    name = st.session_state[f"{key}:preset"]
    _fill(key, usual if name == OWN else spec_class.read(presets.read(name)))


def _document(known: Mapping[tuple[str, ...], Option], values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for path, option in known.items():
        value = values[path]
        value = tuple(value) if isinstance(value, list) else value
        if (value if isinstance(value, bool | tuple) else str(value)) == option.value:
            continue
        inner = document
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        given = option.parse(value)
        inner[path[-1]] = list(given) if isinstance(given, tuple) else given
    return document


@functools.cache
def _title(spec_class: type[Config], path: tuple[str, ...]) -> str:
    found: Any = spec_class
    for part in path:
        found = type(found.model_fields[part].get_default())
    return inspect.cleandoc(found.__doc__ or "").split("\n")[0].rstrip(".") if path else "More"
