"""All kinds of faults, by family."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from signal import SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM
from typing import Literal

from tests.faults import in_process, power, processes, stored
from tests.faults.calls import CHANGING
from tests.faults.subjects import LONG, SHORT
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
    """If there are any: one trial for every so-many-th call of these names instead"""
    steps: int = SHORT
    quick: int = 1
    """Trials in the short form, of the first subject"""


EVERY = {**dict.fromkeys(ALL, 1), "fields": 3}
"""Of calls; a comparison of fields is of four runs that make the same"""


def failing(name: str, error: int, calls: Sequence[str], *, lasting: bool = False) -> Kind:
    run = in_process.fails(error, calls, lasting=lasting)
    # from one call on or from the next differs little
    return Kind(name, "write calls", run, {**EVERY, **dict.fromkeys(ALL[1:], 3)} if lasting else EVERY, calls)


def of_files(name: str, damage: stored.Damage, *, replaces: bool = False, seen: bool = True) -> Kind:
    return Kind(name, "stored files", stored.damaged(damage, replaces=replaces, seen=seen), dict.fromkeys(ALL, 4))


def of_processes(
    name: str, run: Callable[[Trial, int], None], subjects: Mapping[str, int], *, steps: int = LONG
) -> Kind:
    quick = int(steps == SHORT or name in ("kill -9 of the driver", "two drivers"))
    return Kind(name, "processes", run, subjects, steps=steps, quick=quick)


COMPARED = ("arena", "leak", "features")
RUNS = {"arena": 5, "leak": 3, "features": 3, "collection": 3, "audit": 2}
KINDS = [
    failing("disk full from a call on (ENOSPC)", errno.ENOSPC, in_process.NEED_ROOM, lasting=True),
    failing("read-only from a call on (EROFS)", errno.EROFS, in_process.CHANGE, lasting=True),
    failing("one call fails (EIO)", errno.EIO, CHANGING),
    failing("one write is too large (EFBIG)", errno.EFBIG, ("write",)),
    Kind(
        "killed before a call",
        "write calls",
        in_process.ends,
        {**dict.fromkeys(ALL, 2), "arena": 1, "fields": 4},
        CHANGING,
    ),
    Kind("short writes", "write calls", in_process.writes_less, dict.fromkeys(ALL, 6)),
    Kind("power cut", "power cuts", power.cut, dict.fromkeys(ALL, 40)),
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
    Kind("sealed documents with wrong values", "stored files", stored.hostile, dict.fromkeys(ALL, 15)),
    Kind("files or runs exchanged, or of another seed", "stored files", stored.exchanged, dict.fromkeys(ALL, 10)),
    Kind("something else in place of a run", "stored files", stored.run_replaced, dict.fromkeys(ALL, 6)),
    Kind("link in place of a part of the store", "stored files", stored.place_linked, dict.fromkeys(ALL, 7)),
    of_processes("kill -9 of the driver", processes.signalled("driver", SIGKILL), RUNS),
    of_processes("kill -9 of a worker", processes.signalled("worker", SIGKILL), RUNS),
    of_processes("kill -9 of a job", processes.signalled("job", SIGKILL), {"job": 12}),
    of_processes("SIGTERM to the driver", processes.signalled("driver", SIGTERM), RUNS),
    of_processes("SIGTERM to a worker", processes.signalled("worker", SIGTERM), RUNS),
    of_processes("SIGTERM to a job", processes.signalled("job", SIGTERM), {"job": 6}),
    of_processes("Ctrl-C", processes.signalled("driver", SIGINT), RUNS),
    of_processes("Ctrl-C twice", processes.signalled("driver", SIGINT, SIGINT, pause=1.0), RUNS),
    of_processes("stop of a job", processes.signalled("job", SIGINT), {"job": 12}),
    of_processes("pause of the driver", processes.signalled("driver", SIGSTOP, SIGCONT, pause=1.5), RUNS),
    of_processes("pause of a worker", processes.signalled("worker", SIGSTOP, SIGCONT, pause=1.5), RUNS),
    of_processes("paused worker without a driver", processes.orphaned, {"arena": 4, "features": 4}),
    of_processes("end of the app", processes.app_ends(SIGKILL, SIGTERM, SIGINT), {"job": 6}),
    of_processes("two drivers", processes.together(2), RUNS),
    of_processes("three drivers", processes.together(3), {"arena": 6, "collection": 4, "job": 4}),
    of_processes(
        "drivers with overlapping seeds", processes.together(3, overlapping=True), {"arena": 6, "features": 4}
    ),
    of_processes("store, run or file taken away", processes.taken_away, dict.fromkeys(COMPARED, 6)),
    of_processes("full disk", processes.fills_up, RUNS),
    of_processes("closed streams", processes.closed, {"arena": 10, "audit": 5}),
    of_processes("limits of files (size, number)", processes.limited, dict.fromkeys(COMPARED, 4)),
    of_processes("read-only disk", processes.read_only, dict.fromkeys(ALL, 2), steps=SHORT),
    of_processes("no permission", processes.forbidden, dict.fromkeys(ALL, 2), steps=SHORT),
    of_processes("interrupted system calls", processes.interrupted_calls, dict.fromkeys(ALL, 2), steps=SHORT),
    of_processes("clock", processes.clock, dict.fromkeys(ALL, 2), steps=SHORT),
]
