"""All kinds of faults, by family."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.faults import in_process, power, stored
from tests.faults.calls import CHANGING
from tests.faults.trial import Trial

Family = Literal["write calls", "stored files", "power cuts", "processes"]
ALL = ("arena", "leak", "features", "fields", "collection", "audit", "job")


@dataclass(frozen=True)
class Kind:
    name: str
    family: Family
    run: Callable[[Trial, int], None]
    subjects: Mapping[str, int]
    """How many trials with each"""
    calls: Sequence[str] = ()
    """One trial for every call of these names instead"""


def failing(name: str, error: int, calls: Sequence[str], *, lasting: bool = False) -> Kind:
    run = in_process.fails(error, calls, lasting=lasting)
    return Kind(name, "write calls", run, dict.fromkeys(ALL, 0), calls)


def of_files(name: str, damage: stored.Damage, *, replaces: bool = False, seen: bool = True) -> Kind:
    return Kind(name, "stored files", stored.damaged(damage, replaces=replaces, seen=seen), dict.fromkeys(ALL, 6))


KINDS = [
    failing("disk full from a call on (ENOSPC)", errno.ENOSPC, in_process.NEED_ROOM, lasting=True),
    failing("read-only from a call on (EROFS)", errno.EROFS, in_process.CHANGE, lasting=True),
    failing("one call fails (EIO)", errno.EIO, CHANGING),
    failing("one write is too large (EFBIG)", errno.EFBIG, ("write",)),
    Kind("killed before a call", "write calls", in_process.ends, dict.fromkeys(ALL, 0), CHANGING),
    Kind("short writes", "write calls", in_process.writes_less, dict.fromkeys(ALL, 6)),
    Kind("power cut", "power cuts", power.cut, dict.fromkeys(ALL, 60)),
    of_files("bits flipped", stored.flip),
    of_files("truncated", stored.truncate),
    of_files("extended", stored.extend),
    of_files("zeros", stored.zero),
    of_files("emptied", stored.empty),
    of_files("deleted", stored.delete, seen=False),
    of_files("1 TiB long", stored.huge),
    of_files("nested brackets", stored.nest),
    of_files("hard link to a user's file", stored.hard_link, replaces=True),
    of_files("directory in place of a file", stored.directory, replaces=True),
    of_files("named pipe in place of a file", stored.pipe, replaces=True),
    of_files("socket in place of a file", stored.listening, replaces=True),
    of_files("link in place of a file", stored.link, replaces=True),
    Kind("sealed documents with wrong values", "stored files", stored.hostile, dict.fromkeys(ALL, 20)),
    Kind("files or runs exchanged, or of another seed", "stored files", stored.exchanged, dict.fromkeys(ALL, 12)),
    Kind("something else in place of a run", "stored files", stored.run_replaced, dict.fromkeys(ALL, 6)),
    Kind("link in place of a part of the store", "stored files", stored.place_linked, dict.fromkeys(ALL, 7)),
]
