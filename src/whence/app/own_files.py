"""A page opens no file that somebody names in a form: it offers data that come with whence, others take a terminal."""

from __future__ import annotations

from typing import Any

from whence.app.forms import Offered
from whence.errors import UserError
from whence.registry import Registry, parse_choice


def packaged(registry: Registry[Any]) -> list[str]:
    return [name for name, choice in registry.choices.items() if "path" not in choice.model_fields]


def offered(registry: Registry[Any]) -> Offered:
    return {"data": {name: name for name in packaged(registry)}}


def without_files(document: dict[str, Any], registry: Registry[Any], words: str) -> dict[str, Any]:
    """What a form holds, unless its data name a file. words: the command that may."""
    try:
        asked = parse_choice(document.get("data", packaged(registry)[0]))
    except ValueError as error:
        raise UserError(f"data: {error}", field="data") from None
    known = isinstance(asked, dict) and asked.get("name") in packaged(registry)
    if not known or any(_is_text(registry, asked["name"], option) and given for option, given in asked.items()):
        raise UserError(
            f"data: the app opens no files that a form names. Allowed: {', '.join(packaged(registry))}, with numbers "
            f"as options. Files of your own can be named in a terminal: {words}",
            field="data",
        )
    return document


def _is_text(registry: Registry[Any], name: str, option: str) -> bool:
    """Options that are text are names of files; all others are numbers or words of a list."""
    fields = registry.choices[name].model_fields
    return option != "name" and option in fields and fields[option].annotation is str
