"""docs/api.md from docstrings and docs/configuration.md from the configuration classes: `make docs`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from pydantic import BaseModel

import whence
from tests.docs.pages import PROJECT
from whence.config import Config
from whence.experiments.options import options_of
from whence.instruments import instruments
from whence.registry import Registry

API, CONFIGURATION = PROJECT / "docs" / "api.md", PROJECT / "docs" / "configuration.md"
SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Example|Examples|Attributes|Note|Notes):\s*$")
WIDEST = 88


def api() -> str:
    """Every name of `whence.__all__`; of a module, its public names or its registry."""
    lines = ["# Python API", "", "Generated from docstrings by `make docs`. Every name is an attribute of `whence`."]
    names = sorted(whence.__all__, key=lambda name: (isinstance(getattr(whence, name), ModuleType), name.lower()))
    for name in names:
        value = getattr(whence, name)
        lines += [
            "",
            *(
                _module(f"whence.{name}", value)
                if isinstance(value, ModuleType)
                else _entry(f"whence.{name}", value, "##")
            ),
        ]
    return "\n".join(lines) + "\n"


def _module(path: str, module: ModuleType) -> list[str]:
    lines = [f"## {path}", "", *docstring(inspect.getdoc(module) or "")]
    registries = [value for value in vars(module).values() if isinstance(value, Registry)]
    for registry in registries:
        lines += ["", "| name | class | options | |", "|---|---|---|---|"]
        lines += [_variant(path, registry, name) for name in registry.names()]
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            lines += ["", *_entry(f"{path}.{name}", value, "###")]
    return lines


def _variant(path: str, registry: Registry[Any], name: str) -> str:
    variant = registry[name]
    keywords = [p for p in inspect.signature(variant).parameters.values() if p.kind is p.KEYWORD_ONLY]
    options = ", ".join(f"`{p.name}={_default(p.default)}`" for p in keywords)
    return f"| `{name}` | `{path}.{variant.__name__}` | {options} | {_cell(variant.summary())} |"


def _entry(path: str, value: Any, level: str) -> list[str]:
    lines = [f"{level} {path}", ""]
    lines += [*_fields_of_result(value)] if _is_result(value) else ["```python", *_signature(path, value), "```", ""]
    lines += docstring(inspect.getdoc(value) or "")
    if inspect.isclass(value):
        kinds = inspect.isfunction, inspect.isdatadescriptor, lambda member: isinstance(member, classmethod)
        members = {name: member for name, member in vars(value).items() if any(kind(member) for kind in kinds)}
        texts = {name: (inspect.getdoc(member) or "").split("\n")[0] for name, member in members.items()}
        listed = [f"- `{name}`: {_cell(text)}" for name, text in texts.items() if text and name[0] != "_"]
        lines += ["", *listed] if listed else []
    return lines


def _is_result(value: Any) -> bool:
    """What functions return: its fields matter, and nobody calls its constructor."""
    return inspect.isclass(value) and issubclass(value, BaseModel)


def _fields_of_result(value: type[BaseModel]) -> list[str]:
    kinds = {name: kind for base in value.__mro__ for name, kind in vars(base).get("__annotations__", {}).items()}
    return ["Fields: " + ", ".join(f"`{name}: {kinds[name]}`" for name in value.model_fields) + ".", ""]


def _signature(path: str, value: Any) -> list[str]:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return [path]
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(part[0] == "*" for part in parts):
            parts.append("*")
        parts.append(_parameter(parameter))
    returns = signature.return_annotation
    end = f" -> {_annotation(returns)}" if returns not in (inspect.Signature.empty, None, "None") else ""
    one = f"{path}({', '.join(parts)}){end}"
    return [one] if len(one) <= WIDEST else [f"{path}(", *(f"    {part}," for part in parts), f"){end}"]


def _parameter(parameter: inspect.Parameter) -> str:
    text = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return text
    default = repr(parameter.default)
    return f"{text} = {'…' if default.startswith('<') else default}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def docstring(text: str) -> list[str]:
    """Markdown of a docstring with Google's sections; indented blocks and `>>>` become code."""
    lines: list[str] = []
    for kind, body in _sections(text):
        if kind:
            lines += ["", f"**{kind}**", ""]
        if kind in ("Args", "Raises", "Attributes"):
            lines += _items(body)
        elif kind.startswith("Example"):
            lines += ["```text", *body, "```"]
        else:
            lines += _paragraphs(body)
    return lines


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    kind, body = "", []
    for line in text.split("\n"):
        if match := SECTION.match(line):
            yield kind, _stripped(body)
            kind, body = match[1], []
        else:
            body.append(line)
    yield kind, _stripped(body)


def _stripped(body: list[str]) -> list[str]:
    return inspect.cleandoc("\n" + "\n".join(body)).split("\n") if any(body) else []


def _items(body: list[str]) -> list[str]:
    items: list[str] = []
    for line in body:
        if line.startswith(" ") and items:
            items[-1] += " " + line.strip()
        elif line:
            name, _, text = line.partition(": ")
            items.append(f"- `{name}`: {text}")
    return items


def _paragraphs(body: list[str]) -> list[str]:
    lines: list[str] = []
    for line in body:
        code = line.startswith(("    ", ">>>"))
        inside = bool(lines) and lines.count("```text") > lines.count("```")
        if code and not inside:
            lines += [*([""] if lines and lines[-1] else []), "```text"]
        elif inside and not code and line:
            lines += ["```", ""]
        lines.append(line.removeprefix("    ") if code else line)
    return [*lines, "```"] if lines.count("```text") > lines.count("```") else lines


def configuration() -> str:
    """Fields of every comparison and run, as `--print-config` shows them."""
    lines = [
        "# Configuration",
        "",
        "Generated from the configuration classes by `make docs`. A field is, for example,",
        "",
        "- a flag on the command line: `--batch-size 64`,",
        "- a key in a `--config` file: `training: {batch_size: 64}`,",
        '- a keyword in Python: `whence.compare("arena", training={"batch_size": 64})`,',
        "- an entry of a form in the app.",
        "",
        "`--print-config` prints the complete configuration of a command and stops.",
    ]
    for instrument in instruments().values():
        for title, config in (
            (f"{instrument.name}: comparison", instrument.config),
            (f"{instrument.name}: run", instrument.run),
        ):
            lines += ["", f"## {title}", "", *_fields(config)]
    return "\n".join(lines) + "\n"


def _fields(config: type[Config]) -> list[str]:
    lines = ["| field | default | |", "|---|---|---|"]
    for option in options_of(config):
        value = " ".join(option.value) if isinstance(option.value, tuple) else option.value
        shown = {True: "on", False: "off", "": "none"}.get(value, value)
        lines.append(f"| `{'.'.join(option.path)}` | {_cell(str(shown))} | {_cell(option.description)} |")
    return lines


def _default(value: Any) -> str:
    return "none" if value is None else f"{value}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    API.write_text(api())
    CONFIGURATION.write_text(configuration())


if __name__ == "__main__":
    main()
