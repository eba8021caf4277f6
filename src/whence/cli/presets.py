"""`whence presets`."""

from __future__ import annotations

from whence.cli.options import Output, parse_options
from whence.cli.output import print_json

DESCRIPTION = """Comparisons that come with whence: what each is, what it costs, what to expect.

  whence presets                     all of them
  whence presets source_encodings       one
  whence arena --preset NAME         run it (any flag wins over the preset: --seeds 3)"""


def main(arguments: list[str]) -> int:
    options, words = parse_options(Output, arguments, prog="whence presets NAME…", description=DESCRIPTION, words=True)
    from whence.arena.config import ArenaConfig
    from whence.arena.instrument import PRESETS
    from whence.experiments.saved import read_config

    for word in words:
        PRESETS.path(word)
    names = words or PRESETS.names()
    if options.json_:
        presets = [
            {
                "name": name,
                "about": PRESETS.about(name),
                "config": read_config(PRESETS.path(name), ArenaConfig).model_dump(mode="json"),
            }
            for name in names
        ]
        print_json(presets)
        return 0
    print("\n\n".join(f"{name}\n  {PRESETS.about(name).replace(chr(10), chr(10) + '  ')}" for name in names))
    return 0
