"""What may be asked of the fields from a form: no file that somebody names there is opened."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, Union

from pydantic import BeforeValidator, Field, create_model

from whence.fields.ablation import Ablation
from whence.fields.data import DATA
from whence.fields.run import Run
from whence.registry import Choice, parse_choice
from whence.spec import Spec

S = TypeVar("S", bound=Spec)
PACKAGED = [name for name, choice in DATA.choices.items() if "path" not in choice.model_fields]


def only_packaged(value: Any) -> Any:
    asked = {"name": value.name, **value.options()} if isinstance(value, Choice) else parse_choice(value)
    known = isinstance(asked, dict) and asked.get("name") in PACKAGED
    if not known or any(_names_a_file(asked["name"], option) and given for option, given in asked.items()):
        raise ValueError(
            f"the app opens no files that a form names. Allowed: {', '.join(PACKAGED)}, with numbers as options. "
            "Your own folder or .npy file can be named in a terminal: whence fields train --data DIR"
        )
    return asked


def _names_a_file(name: str, option: str) -> bool:
    """Options that are text are names of files; all others are numbers."""
    fields = DATA.choices[name].model_fields
    return option != "name" and option in fields and fields[option].annotation is str


def _without_files(spec: type[S]) -> type[S]:
    usual = spec.model_fields["data"]
    members: Any = Union[tuple(DATA.choices[name] for name in PACKAGED)]
    kind = Annotated[members, Field(discriminator="name"), BeforeValidator(only_packaged)]
    data = (kind, Field(default=usual.default, description=usual.description))
    return create_model(spec.__name__, __base__=spec, __doc__=spec.__doc__, data=data)  # pyright: ignore


FormRun = _without_files(Run)
FormAblation = _without_files(Ablation)
