"""Photographs that come with scikit-image and scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from whence.fields.data.base import ImageData, Split
from whence.system import packaged_file

IMAGE, LEARN = ("scikit-image", "skimage/data"), ("scikit-learn", "sklearn/datasets/images")
FILES: dict[Split, tuple[tuple[tuple[str, str], str], ...]] = {
    "train": (
        (IMAGE, "astronaut.png"),
        (IMAGE, "coffee.png"),
        (IMAGE, "hubble_deep_field.jpg"),
        (IMAGE, "ihc.png"),
        (IMAGE, "motorcycle_left.png"),
        (LEARN, "china.jpg"),
    ),
    "validation": ((IMAGE, "retina.jpg"), (IMAGE, "rocket.jpg")),
    "test": ((IMAGE, "chelsea.png"), (LEARN, "flower.jpg")),
}


class Photos(ImageData):
    """Ten colour photographs: six to train on, two to choose designs by, two to report."""

    def __init__(
        self,
        *,
        size: Annotated[int, Field(ge=8, le=64, description="pixels per side of the input")] = 32,
        factor: Annotated[int, Field(ge=1, le=8, description="how much finer the true signal is")] = 4,
    ) -> None:
        super().__init__(size, factor)

    def files(self, split: Split) -> list[Path]:
        return [
            packaged_file(package, f"{folder}/{name}", field="data", what=name)
            for (package, folder), name in FILES[split]
        ]
