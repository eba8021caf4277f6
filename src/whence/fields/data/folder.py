"""A user's own images."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

from pydantic import Field

from whence.errors import UserError
from whence.fields.data.base import ImageData, Split, sixths
from whence.fields.images import image_files
from whence.store.files import digest, file_digest


class Folder(ImageData):
    """A folder of images: of every six, by name, four to train on, one to choose designs by, one to report."""

    def __init__(
        self,
        *,
        path: Annotated[str, Field(description="the folder")] = "",
        size: Annotated[int, Field(ge=8, le=64, description="pixels per side of the input")] = 32,
        factor: Annotated[int, Field(ge=1, le=8, description="how much finer the true signal is")] = 4,
        checksum: Annotated[str, Field(description="of the images; filled in: changed ones are other data")] = "",
    ) -> None:
        super().__init__(size, factor)
        self.path, self.checksum = path, checksum

    def checksum_now(self) -> str:
        return _checksum(tuple((path, path.stat().st_mtime_ns) for path in image_files(self.path)))

    def files(self, split: Split) -> list[Path]:
        return sixths(self._files, split)

    @functools.cached_property
    def _files(self) -> list[Path]:
        """Looked for when it is needed: a model that was trained on it needs it no more."""
        files = image_files(self.path)
        if len(files) < 3:
            raise UserError(
                f"data: {self.path!r} holds {len(files)} images. Allowed: 3 or more, so that some can be held out."
            )
        if self.checksum not in ("", self.checksum_now()):
            raise UserError(
                f"data: the images in {self.path!r} have changed since this was requested. Allowed: the same ones."
            )
        return files


@functools.lru_cache(maxsize=4)
def _checksum(files: tuple[tuple[Path, int], ...]) -> str:
    return digest("".join(f"{path.name} {file_digest(path)}\n" for path, _ in files))[:16]
