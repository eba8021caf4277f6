"""A user's own pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from whence.errors import UserError
from whence.fields.data.base import Pictures, Split
from whence.fields.pictures import found_in


class Folder(Pictures):
    """A folder of pictures: of every six, by name, four to train on, one to choose designs by, one to report."""

    def __init__(
        self,
        *,
        path: Annotated[str, Field(description="the folder")] = "",
        size: Annotated[int, Field(ge=8, le=64, description="points per side of what the model is shown")] = 32,
        factor: Annotated[int, Field(ge=1, le=8, description="how much finer the true signal is")] = 4,
    ) -> None:
        super().__init__(size, factor)
        self.path = path
        self.found = found_in(path)
        if len(self.found) < 3:
            raise UserError(
                f"data: {path!r} holds {len(self.found)} pictures. Allowed: 3 or more, so that some can be held out.",
                field="data",
            )

    def files(self, split: Split) -> list[Path]:
        count = len(self.found)
        held = {"validation": 1, "test": 2}
        if count < 6:  # the last two are held out
            chosen = {"train": self.found[:-2], "validation": self.found[-2:-1], "test": self.found[-1:]}
            return chosen[split]
        if split == "train":
            return [path for index, path in enumerate(self.found) if index % 6 not in held.values()]
        return self.found[held[split] :: 6]
