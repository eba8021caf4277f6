"""Valid inputs, spoiled: bytes, documents, words. Everything is drawn from the `Random` of a case."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Json = Any
TEXTS = (
    "",
    " ",
    "\n",
    "none",
    "null",
    "true",
    "-",
    "--",
    "=",
    "x" * 70_000,
    "\x1b]0;title\x07\x1b[2J\x1b[31mred",
    "\x9b31m\x85\x7f\x00",
    "\u202eevil\u2066",
    "\ud800",
    "\N{PILE OF POO}",
    "<script>alert(1)</script>",
    "{{ 7 * 7 }}",
    "[red]bold[/nothing]",
    "%s%n{0}{x}",
    "../../../../etc/passwd",
    "/dev/zero",
    "/proc/self/mem",
    "file.py:function",
    "a:b=c,d=e",
    "1e999",
    "nan",
    "9" * 5000,
    "٣",
)
NUMBERS = (
    *(
        0,
        -1,
        1,
        2,
        3,
        7,
        255,
        65_536,
        2**31 - 1,
        2**31,
        2**53,
        2**63 - 1,
        2**63,
        2**64,
        10**18,
        10**30,
        -(2**63),
        10**400,
    ),
    *(0.5, -0.0, 1e-320, 1e-9, 1e9, 1e18, 1e300, -1e308, 1.7976931348623157e308),
    *(float("nan"), float("inf"), float("-inf")),
)
DEEP, TWICE = "@deep@", "@twice@"
"""Stand for what no encoder writes: see `dumps`"""
BYTES = (
    b"\0",
    b"\xff",
    b"\n",
    b"\r\n",
    b'"',
    b"{",
    b"[",
    b"\x1b[2J",
    b"\xc3\x28",
    b"\xef\xbb\xbf",
    b"\0" * 64,
    b"9" * 300,
)


def bits(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 8, 64))):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def truncated(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def block_copied(random: Random, data: bytes) -> bytes:
    start, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
    at = random.randrange(len(data) + 1)
    return data[:at] + data[start:end] * random.choice((1, 1, 2, 9)) + data[at:]


def block_removed(random: Random, data: bytes) -> bytes:
    start, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[end:]


def inserted(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice((*BYTES, random.randbytes(8))) + data[at + random.choice((0, 0, 1, 4)) :]


def number_changed(random: Random, data: bytes) -> bytes:
    """A whole number of 1 to 8 bytes becomes an extreme one, as in headers."""
    size = random.choice((1, 2, 4, 8))
    if len(data) < size:
        return data
    # headers are at the beginning
    at = random.randrange(min(random.choice((64, 512, len(data))), len(data)) - size + 1)
    value = random.choice(
        (0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), 2 ** (4 * size), random.getrandbits(8 * size))
    )
    order = random.choice(("little", "big"))
    return data[:at] + (value % 2 ** (8 * size)).to_bytes(size, order) + data[at + size :]


CHANGES: tuple[Callable[[Random, bytes], bytes], ...] = (
    *(bits, bits, number_changed, number_changed, truncated, block_copied, block_removed, inserted),
)


def spoil(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Bytes with one to four changes, or the beginning of these with the end of others."""
    if others and random.random() < 0.1:
        data = truncated(random, data) + random.choice(others)[random.randrange(64) :]
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        data = random.choice(CHANGES)(random, data)
    return data


# --- documents


def value(random: Random) -> Json:
    """Any value of JSON, as a rule an extreme one."""
    kind = random.randrange(12)
    if kind < 4:
        return random.choice(NUMBERS)
    if kind < 8:
        return random.choice(TEXTS)
    if kind < 10:
        return random.choice((None, True, False, [], {}))
    nested = {"a": [{"b": [[value(random)]]}]}
    return random.choice((DEEP, nested, [0] * 20_000, [value(random)] * 3, {"": "", "name": "", "kind": ""}, TWICE))


def places(document: Json, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values inside a document, itself included."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [here, *(place for key, item in items for place in places(item, (*here, key)))]


def at(document: Json, place: Sequence[Any]) -> Json:
    for key in place:
        document = document[key]
    return document


def altered(random: Random, old: Json) -> Json:
    """A value that is close to the old one, but for its size or its type."""
    if isinstance(old, bool) or old is None:
        return random.choice((not old, str(old).lower(), int(bool(old))))
    if isinstance(old, int | float):
        near = (
            old + 1,
            -old,
            old * 10**6,
            old * 10**12,
            old / 3,
            str(old),
            [old],
            float(old) if abs(old) < 1e300 else 0,
        )
        return random.choice(near)
    if isinstance(old, str):
        some = spoil(random, old.encode(errors="replace")).decode(errors="replace")
        return random.choice((some, some, old + random.choice(TEXTS), old * 3, [old], {old: old}, old.encode().hex()))
    if isinstance(old, list):
        return random.choice(
            (old * 2, old[:-1], old[::-1], [old], dict.fromkeys(map(str, range(len(old))), 0), [*old, None])
        )
    return random.choice(([old], list(old), {**old, random.choice(TEXTS): value(random)}, {}, {"body": old}))


def spoil_document(random: Random, document: Json, others: Sequence[Json] = ()) -> Json:
    """A document with one to four changes that leave it readable as JSON."""
    document = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        every = places(document)
        place = random.choice(every)
        if not place:
            if random.random() < 0.1:
                document = value(random)
            continue
        parent, key, kind = at(document, place[:-1]), place[-1], random.randrange(10)
        if kind < 3:
            parent[key] = value(random)
        elif kind < 6:
            parent[key] = altered(random, parent[key])
        elif kind == 6:
            del parent[key]
        elif kind == 7:  # also part of another document
            source = random.choice((document, *others))
            parent[key] = copy.deepcopy(at(source, random.choice(places(source))))
        elif isinstance(parent, dict):
            parent[random.choice((*TEXTS, "name", "kind", f"{key}_", str(key).upper()))] = parent[key]
        else:
            parent.insert(random.randrange(len(parent) + 1), value(random))
        if not isinstance(document, dict | list):
            break
    return document


def dumps(random: Random, document: Json) -> str:
    """As JSON, or what looks like it: numbers that are none, deep nesting, keys that are given twice."""
    try:
        text = json.dumps(document, ensure_ascii=random.random() < 0.8, allow_nan=True)
    except (ValueError, RecursionError):  # a part that holds itself, or a number of too many digits
        text = json.dumps(repr(type(document)))
    deep = random.choice((10, 63, 64, 65, 200, 5_000, 200_000))
    opened, closed = random.choice((("[", "]"), ('{"a":', "}")))
    text = text.replace(f'"{DEEP}"', opened * deep + "0" + closed * random.choice((deep, deep, 0)))
    return text.replace(f'"{TWICE}"', '{"a":1,"a":[2],"a":1' + "0" * random.choice((1, 5_000)) + "}")


def encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def spoil_text(random: Random, document: Json, others: Sequence[Json] = ()) -> bytes:
    """A JSON document as bytes, spoiled as a document or as bytes."""
    if random.random() < 0.7:
        return encoded(dumps(random, spoil_document(random, document, others)))
    return spoil(random, encoded(json.dumps(document)), [encoded(json.dumps(other)) for other in others[:3]])
