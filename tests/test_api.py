"""The public API: its names, their documentation, and the examples in it, each of which is executed."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from operator import attrgetter
from types import ModuleType
from typing import Any

import pytest
import torch

import whence

EXPECTED = [
    "arena",
    "audit",
    "capture",
    "compare",
    "encodings",
    "features",
    "fields",
    "kernels",
    "leak",
    "mixers",
    "models",
    "tasks",
]


def public_names(module: ModuleType) -> dict[str, Any]:
    """By dotted name, everything that is not a package, in packages too."""
    names: dict[str, Any] = {}
    for name in dir(module):
        item = getattr(module, name)
        names |= public_names(item) if isinstance(item, ModuleType) else {f"{module.__name__}.{name}": item}
    return names


PUBLIC = public_names(whence)
EXAMPLES = {
    name: doctest.DocTestParser().get_doctest(inspect.getdoc(item) or "", {}, name, None, None)
    for name, item in PUBLIC.items()
}


def trains(example: doctest.DocTest) -> bool:
    return any("whence.compare(" in line.source or "fields.train(" in line.source for line in example.examples)


def test_what_the_tab_key_shows() -> None:
    assert dir(whence) == whence.__all__ == EXPECTED
    assert set(dir(whence.kernels)) == {"causal_conv", "selective_scan"}
    assert {"RoPE", "ALiBi", "Encoding", "ENCODINGS", "transforms"} <= set(dir(whence.encodings))
    assert set(dir(whence.leak)) == set(whence.leak.__all__)
    assert not [name for name in PUBLIC if name.rpartition(".")[2].startswith("_")]


@pytest.mark.parametrize("package", ["encodings", "encodings.transforms", "features", "mixers", "models", "tasks"])
def test_packages_name_what_they_have(package: str) -> None:
    with pytest.raises(AttributeError, match=f"whence.{package} has no 'nothing'; it has"):
        attrgetter(f"{package}.nothing")(whence)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented_and_typed(name: str) -> None:
    item = PUBLIC[name]
    text = inspect.getdoc(item) or ""
    assert "\nExample:" in text, f"{name} has no example"
    assert EXAMPLES[name].examples
    if not callable(item):
        return
    signature = inspect.signature(item)
    untyped = [p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name != "self"]
    assert not untyped
    if inspect.isfunction(item):
        assert signature.return_annotation is not signature.empty
        for section in ("Args:", "Returns:", "Raises:"):
            assert f"\n{section}\n" in text, f"{name} has no section {section}"
        described = text.split("Args:\n")[1].split("\n\n")[0]
        for parameter in signature.parameters:
            assert re.search(rf"^    {parameter}: ", described, re.MULTILINE), f"{name}: {parameter} is not described"


@pytest.mark.usefixtures("here", "in_process")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if trains(EXAMPLES[name]) else ()) for name in PUBLIC]
)
def test_examples_run(name: str) -> None:
    example = EXAMPLES[name]
    example.globs = {"torch": torch, "whence": whence}
    torch.manual_seed(0)
    lines: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(example, out=lines.append)
    assert not runner.failures, "".join(lines)


def test_importing_whence_imports_nothing_heavy() -> None:
    heavy = {"torch", "numpy", "pydantic", "jinja2"}
    code = f"import sys, whence\ndir(whence), whence.__version__\nassert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
