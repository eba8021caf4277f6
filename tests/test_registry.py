"""A folder is a registry: adding a file adds a variant everywhere, deleting it removes it everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from tests.calls import python
from tests.conftest import TINY_FLAGS
from whence.config import Config
from whence.encodings import ENCODINGS
from whence.errors import UserError
from whence.experiments.options import options_of
from whence.registry import Choice, Registry, Variant, parse_choice, structural_parameters

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
        project_copy,
        "-m",
        "whence",
        "arena",
        "train",
        *TINY_FLAGS,
        "--encoding",
        "slope:start=0.5",
        "--steps",
        "2",
        "--json",
    )
    assert json.loads(trained.stdout)["state"] == "finished", trained.stderr
    refused = python(project_copy, "-m", "whence", "arena", "train", *TINY_FLAGS, "--encoding", "kerple")
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


class Other(Example):
    """Another one."""

    name = "explicit"


class ALiBiLike(Example):
    """A third."""


class _Shared(Example):
    """For the others: no variant, like all private classes."""


EXAMPLES: Registry[Example] = Registry(__name__, Example)


class Holder(Config):
    one: Annotated[Choice[Example], EXAMPLES] = EXAMPLES.choose("explicit:size=4")
    many: tuple[Annotated[Choice[Example], EXAMPLES], ...] = ()
    none: Annotated[Choice[Example], EXAMPLES] | None = None


def test_a_module_is_a_registry() -> None:
    assert EXAMPLES.names() == ["a_li_bi_like", "explicit"]
    assert [variant.name for variant in EXAMPLES] == EXAMPLES.names()
    built = EXAMPLES.choose("explicit:fast=true").build(width=2, unknown=5)
    assert (type(built), built.fast, built.size) == (Other, True, 3)
    assert EXAMPLES.attribute("Other") is EXAMPLES.choose("explicit").variant is Other


def test_a_field_keeps_the_type_of_what_is_chosen() -> None:
    held = Holder.read({"many": ["a_li_bi_like", {"name": "explicit", "size": 9}], "none": "explicit:size=2"})
    assert (held.one.build(width=1).size, [choice.build(width=1).size for choice in held.many]) == (4, [3, 9])
    assert Holder.read(held.model_dump()) == held == Holder.model_validate_json(held.model_dump_json())
    known = {option.name: list(option.variants) for option in options_of(Holder)}
    assert known["one"] == known["many"] == known["none"] == EXAMPLES.names()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"one": "explicid"},
            "one: 'explicid' is not known. Allowed: a_li_bi_like, explicit. Did you mean 'explicit'?",
        ),
        ({"one": "explicit:sise=3"}, "no such field (value '3'). Allowed: fast, name, size. Did you mean 'size'?"),
        ({"many": ["explicit:size=0"]}, "many.0.explicit.size: expected a value greater than or equal to 1, got '0'."),
        ({"none": "explicit:size"}, "expected name:option=value,option=value, got 'explicit:size'"),
    ],
)
def test_errors_name_the_field(document: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as raised:
        Holder.read(document)
    assert message in str(raised.value)


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
