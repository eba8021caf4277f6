"""Whatever is handed in as YAML or JSON is read, or refused in words, at once and in little memory."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.formatting import as_csv, visible
from whence.parsing import DEEPEST, MOST_VALUES, ParseError, check_depth, parse_config

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text()
DOCUMENTS = st.dictionaries(
    st.text(),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    ),
    max_size=5,
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, f"more than {MOST_VALUES:,} values"),
        (f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]", "more than"),
        ("a: &a [*a]", "has no anchor before it"),
        ("a: {b: 1, b: 2}", "'b' is given twice"),
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ("a: " + "[" * 100_000, f"more than {DEEPEST} deep"),
        ("- " * 100_000, f"more than {DEEPEST} deep"),
        ('{"a":' * 100_000, "deep"),
        ("a: " + "9" * 10**6, "got one of 1000000"),
        ("a: 0x" + "f" * 10**6, "got one of 1000002"),
        ("a: " + ":".join(["1"] * 10**5), "got one of"),
        ("a: .inf", "expected a finite number"),
        ("a: .nan", "expected a finite number"),
        ("a: 2001-01-01", "Write it in quotes"),
        ("a: 2001-99-99", "not valid"),
        ("1: a", "expected names of fields"),
        ("a: !!set {b}", "Write it in quotes"),
        ("a: !!int ''", "not valid"),
        ("a: !!python/object/apply:os.system ['true']", "not valid"),
        ("- a", "not a list"),
        ("\n".join(f"k{number}: 1" for number in range(50_000)), "values"),
    ],
)
def test_what_is_refused_is_refused_at_once(text: str, reason: str) -> None:
    started = time.process_time()
    with pytest.raises(ParseError, match=reason):
        parse_config(text.encode(), json_only=False)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "raw",
    [b"\xff\xfe", b'{"a": "\\ud800"}', b'{"a": 1e999}', b'{"a": NaN}', b'{"a": ' + b"9" * 5000 + b"}", b"{", b"["],
)
def test_json_that_is_refused(raw: bytes) -> None:
    with pytest.raises(ParseError):
        parse_config(raw, json_only=True)


def test_anchors_and_merged_groups_can_be_used() -> None:
    assert parse_config(b"a: &a {x: 1}\nb: {<<: *a, y: [*a, 2]}", json_only=False) == {
        "a": {"x": 1},
        "b": {"x": 1, "y": [{"x": 1}, 2]},
    }
    assert parse_config(b"", json_only=False) == parse_config(b"null", json_only=True) == {}


def test_strings_that_never_end_take_linear_time() -> None:
    started = time.process_time()
    for end in (b"", b"\\"):
        with pytest.raises(ParseError):
            check_depth(b'{"' + b'\\"' * 1_000_000 + end)
    assert time.process_time() - started < 2


@given(DOCUMENTS)
@settings(max_examples=50, deadline=None)
def test_all_other_json_is_read_as_it_is(document: dict[str, Any]) -> None:
    raw = json.dumps(document, allow_nan=True).encode()
    try:
        expected = json.loads(json.dumps(document, allow_nan=False))
    except ValueError:
        with pytest.raises(ParseError):
            parse_config(raw, json_only=True)
    else:
        assert parse_config(raw, json_only=True) == expected


@given(st.text(st.characters(codec="utf-8"), max_size=60) | st.text("[]{}:,-&*!<>|'\"\\ \n%?#ax1.e", max_size=60))
@settings(max_examples=400, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    for json_only in (True, False):
        with suppress(ParseError):
            parse_config(text.encode(), json_only=json_only)


def test_what_is_not_seen_as_it_is_written_is_escaped() -> None:
    assert visible("\x1b[31m \u202e \x9b \r \ud800 é 漢 👩‍🔬") == "\\x1b[31m \\u202e \\x9b \\r \\ud800 é 漢 👩‍🔬"
    rows = [{"a": text, "=b": 1.5} for text in ("=1+1", "+1", "-1", "@x", "x\x1b", "x")]
    assert as_csv(rows).splitlines() == ["a,'=b", "'=1+1,1.5", "'+1,1.5", "'-1,1.5", "'@x,1.5", "x\\x1b,1.5", "x,1.5"]
    assert as_csv([{"a": -1.5}]).splitlines() == ["a", "-1.5"]
