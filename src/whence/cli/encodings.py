"""`whence encodings`."""

from __future__ import annotations

from typing import Any

from whence.cli.options import Output, parse_options
from whence.cli.output import print_json, print_table
from whence.registry import Registry

DESCRIPTION = """Positional encodings: where each enters a model, its options, what it does past the training length.

Write one as NAME:OPTION=VALUE,OPTION=VALUE wherever an encoding is asked for, and put a transform of positions
in front with a plus sign:  rope:scaling=yarn,factor=4   randomized:span=512+alibi"""


def main(arguments: list[str]) -> int:
    options, _ = parse_options(Output, arguments, prog="whence encodings", description=DESCRIPTION)
    from whence.encodings import ENCODINGS
    from whence.encodings.transforms import TRANSFORMS

    encodings = [
        {
            "name": encoding.name,
            "class": encoding.__name__,
            "summary": encoding.summary(),
            "enters": list(encoding.hooks()),
            "options": options_of(ENCODINGS, encoding.name),
            "extrapolation": encoding.extrapolation,
            "causal_only": encoding.causal_only,
            "admits_transforms": encoding.admits_transforms,
            "reference": encoding.reference,
        }
        for encoding in ENCODINGS
    ]
    transforms = [
        {
            "name": transform.name,
            "class": transform.__name__,
            "summary": transform.summary(),
            "options": options_of(TRANSFORMS, transform.name),
            "reference": transform.reference,
        }
        for transform in TRANSFORMS
    ]
    if options.json_:
        print_json({"encodings": encodings, "transforms": transforms})
        return 0
    print_table(
        "Encodings",
        ["name", "enters", "options", "past the training length", "reference"],
        [
            [e["name"], ", ".join(e["enters"]) or "—", shown(e["options"]), e["extrapolation"], e["reference"]]
            for e in encodings
        ],
    )
    print()
    print_table(
        "Transforms of positions (TRANSFORM+ENCODING)",
        ["name", "what it does", "options", "reference"],
        [[t["name"], t["summary"], shown(t["options"]), t["reference"]] for t in transforms],
    )
    return 0


def options_of(registry: Registry[Any], name: str) -> dict[str, Any]:
    schema = registry.choices[name].model_json_schema()
    return {key: value for key, value in schema["properties"].items() if key != "name"}


def shown(options: dict[str, Any]) -> str:
    """`name=default`, with the other choices behind it where there are only a few."""

    def value(option: dict[str, Any]) -> str:
        default = option.get("default")
        return "|".join([str(default), *(choice for choice in option.get("enum", []) if choice != default)])

    return " ".join(f"{name}={value(option)}" for name, option in options.items()) or "—"
