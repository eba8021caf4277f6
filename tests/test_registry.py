"""A folder is a registry: adding a file adds a variant everywhere, deleting it removes it everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from tests.calls import python
from tests.conftest import TINY_FLAGS
from whence.encodings import ENCODINGS
from whence.registry import Registry, Variant, parse_choice, structural_parameters

PAGE = Path(__file__).parents[1] / "docs" / "add-an-encoding.md"
NEW_ENCODING = PAGE.read_text().split("```python\n")[1].split("```")[0]  # what a newcomer would paste


def test_adding_and_deleting_one_file(project_copy: Path) -> None:
    folder = project_copy / "src" / "whence" / "encodings"
    (folder / "slope.py").write_text(NEW_ENCODING)
    (folder / "kerple.py").unlink()

    listed = json.loads(python(project_copy, "-m", "whence", "encodings", "--json").stdout)["encodings"]
    names = {encoding["name"] for encoding in listed}
    assert "slope" in names
    assert "kerple" not in names
    assert names - {"slope"} == set(ENCODINGS.names()) - {"kerple"}

    trained = python(
        project_copy, "-m", "whence", "train", *TINY_FLAGS, "--encoding", "slope:start=0.5", "--steps", "2", "--json"
    )
    assert json.loads(trained.stdout)["state"] == "finished", trained.stderr
    refused = python(project_copy, "-m", "whence", "train", *TINY_FLAGS, "--encoding", "kerple")
    assert refused.returncode == 2
    assert "'kerple' is not known" in refused.stderr
    assert "slope" in refused.stderr

    api = python(
        project_copy, "-c", "import whence.encodings as e; print(e.Slope(heads=2, start=1).start, hasattr(e, 'KERPLE'))"
    )
    assert api.stdout == "1.0 False\n", api.stderr

    suite = python(
        project_copy,
        "-m",
        "pytest",
        "-vv",
        "-p",
        "no:cacheprovider",
        "tests/encodings/test_conformance.py",
        "-k",
        "slope or kerple",
    )
    assert suite.returncode == 0, suite.stdout
    assert "failed" not in suite.stdout
    assert "[slope]" in suite.stdout
    assert "[kerple]" not in suite.stdout


@pytest.mark.parametrize(
    "files", [("encodings/rope.py", "encodings/none.py"), ("tasks/k_back_recall.py", "tasks/modular_sum.py")]
)
def test_even_a_default_can_be_deleted(project_copy: Path, files: tuple[str, ...]) -> None:
    for file in files:
        (project_copy / "src" / "whence" / file).unlink()
    for verb in ("train", "arena"):
        shown = python(project_copy, "-m", "whence", verb, "--print-spec")
        assert shown.returncode == 0, shown.stderr
        assert not any(f'"{Path(file).stem}"' in shown.stdout.replace('"scaling": "none"', "") for file in files)


def test_a_file_must_hold_exactly_one_variant(project_copy: Path) -> None:
    (project_copy / "src" / "whence" / "encodings" / "empty.py").write_text('"""Nothing."""\n')
    broken = python(project_copy, "-c", "from whence.encodings import ENCODINGS; list(ENCODINGS)")
    assert "expected exactly one Encoding, found 0" in broken.stderr
    assert "empty.py" in broken.stderr


class Example(Variant):
    """An example."""

    def __init__(self, width: int, *, size: Annotated[int, Field(ge=1)] = 3, fast: bool = False) -> None:
        self.width, self.size, self.fast = width, size, fast


def test_constructors_are_validated_when_called_directly() -> None:
    assert Example(2, size="4").size == 4  # type: ignore[arg-type]
    for wrong in ({"size": 0}, {"size": "x"}, {"sise": 3}):
        with pytest.raises(ValidationError, match=next(iter(wrong))):
            Example(2, **wrong)
    assert structural_parameters(Example) == ["width"]


def test_choices_read_and_print_as_text() -> None:
    choice = ENCODINGS.choose("rope:scaling=yarn,factor=4")
    assert str(choice) == "rope:scaling=yarn,factor=4"
    assert ENCODINGS.choose(str(choice)) == choice == ENCODINGS.choose(choice.model_dump())
    assert str(ENCODINGS.choose("rope:base=10000")) == "rope"
    assert parse_choice("a:b=1,c=x=y") == {"name": "a", "b": "1", "c": "x=y"}
    with pytest.raises(ValidationError):
        choice.factor = 3  # type: ignore[attr-defined]


def test_names_come_from_files_alone() -> None:
    assert Registry("whence.encodings", ENCODINGS._base).names() == sorted(ENCODINGS.names())
    assert "base" not in ENCODINGS.names()
    assert not any(name.startswith("_") for name in ENCODINGS.names())


def test_public_names() -> None:
    import whence.encodings

    assert whence.encodings.RoPE(head_dim=64, scaling="yarn", factor=4).factor == 4
    with pytest.raises(AttributeError, match="it has"):
        _ = whence.encodings.Nonsense
