"""A user's own recordings."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

from pydantic import Field
from torch import Tensor

from whence.errors import UserError
from whence.leak.data.base import RecordingData, Split, cut_in_time, standardised
from whence.recordings import read_npy
from whence.store.files import file_digest


class RecordingFile(RecordingData):
    """A .npy file: one recording (time, channels), or several (recordings, time, channels)."""

    def __init__(
        self,
        *,
        path: Annotated[str, Field(description="the .npy file")] = "",
        steps: Annotated[int, Field(ge=2, description="steps per example")] = 64,
        checksum: Annotated[str, Field(description="of its bytes; filled in: a changed file is other data")] = "",
    ) -> None:
        self.steps, self.path = steps, path
        self.channels = self.recordings("train")[0].shape[1]
        if checksum not in ("", self.checksum_now()):
            raise UserError(f"data: {path!r} has changed since this was asked for. Allowed: the same file.")

    def checksum_now(self) -> str:
        return file_digest(Path(self.path))[:16]

    def recordings(self, split: Split) -> list[Tensor]:
        path = Path(self.path)
        return _read(path, path.stat().st_mtime_ns if path.is_file() else 0, self.steps)[split]


@functools.lru_cache(maxsize=4)
def _read(path: Path, _changed: int, steps: int) -> dict[Split, list[Tensor]]:
    recordings = read_npy(path, {2: "(time, channels)", 3: "(recordings, time, channels)"})
    if recordings.ndim == 2:
        return standardised(cut_in_time(recordings, steps))
    if len(recordings) < 6 or recordings.shape[1] < steps:
        raise UserError(
            f"data: {len(recordings)} recordings of {recordings.shape[1]} steps. Allowed: 6 or more, of {steps} "
            "steps or more."
        )
    split: list[Split] = ["train", "train", "train", "train", "validation", "test"]
    return standardised({name: [r for i, r in enumerate(recordings) if split[i % 6] == name] for name in split})
