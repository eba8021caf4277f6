"""What a form holds is what the command line would have said: the copied command and the form give the same spec."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from whence.app.views.arena import COMPARISONS
from whence.arena.config import ArenaConfig
from whence.arena.instrument import PRESETS as ARENA
from whence.cli.options import EngineOptions, Invocation
from whence.config import Config
from whence.encodings import ENCODINGS
from whence.experiments.comparison import planned_runs
from whence.experiments.options import command, options_of
from whence.features.config import FeaturesConfig
from whence.features.run import FeaturesRun
from whence.fields.config import FieldsConfig
from whence.fields.run import FieldsRun
from whence.leak.config import LeakConfig
from whence.store.runs import Store
from whence.tasks import TASKS

SPECS: list[type[Config]] = [ArenaConfig, LeakConfig, FeaturesConfig, FeaturesRun, FieldsConfig, FieldsRun]


def read_back(spec_class: type[Config], document: dict[str, Any]) -> Config:
    line = shlex.split(command(["x"], spec_class, document))
    assert line[:2] == ["whence", "x"]
    return Invocation(("x",), "x", line[2:]).parse(spec_class, EngineOptions)[0]


@pytest.mark.parametrize("spec_class", SPECS)
def test_a_command_without_changes_has_no_flags(spec_class: type[Config]) -> None:
    assert command(["x"], spec_class, {}) == "whence x"
    assert read_back(spec_class, {}) == spec_class()


@pytest.mark.parametrize("spec_class", SPECS)
def test_every_field_reaches_the_command_line(spec_class: type[Config]) -> None:
    """One field after the other, with a value that is not its default where one is easily found."""
    tried = 0
    for option in options_of(spec_class()):
        value: Any
        if isinstance(option.value, bool):
            value = not option.value
        elif option.choices:
            value = next((word for word in option.choices if word != option.value), option.value)
        elif option.whole_number:
            value = int(option.value) + 1
        else:
            continue
        document: dict[str, Any] = {option.path[-1]: value}
        for part in reversed(option.path[:-1]):
            document = {part: document}
        try:
            expected = spec_class.read(document)
        except Exception:  # impossible together with the other defaults
            continue
        assert read_back(spec_class, document) == expected, option.path
        tried += 1
    assert tried >= 4


@pytest.mark.parametrize("name", ARENA.names())
def test_presets_survive_the_way_through_a_command(name: str) -> None:
    document = ARENA.read(name)
    assert read_back(ArenaConfig, document).model_dump() == ArenaConfig.read(document).model_dump()


def test_choices_come_from_the_registries() -> None:
    fields = {option.name: option for option in options_of(ArenaConfig())}
    assert list(fields["tasks"].variants) == TASKS.names()
    assert list(fields["encodings"].variants) == ENCODINGS.names()
    assert "bimamba" in fields["mixer"].variants
    assert fields["attention"].choices is not None
    assert "causal" in fields["attention"].choices
    assert fields["test_lengths"].parse([]) is None
    assert fields["test_lengths"].parse(["64"]) == ("64",)


def test_the_runs_of_tuning_are_among_those_that_are_counted(store: Store) -> None:
    config = ArenaConfig.read({"tasks": ["copy"], "encodings": ["rope", "t5"], "seeds": 1, "tune": "lr=0.001,0.003"})
    tuning = {run.id for run in config.tuning_runs()}
    assert len(tuning) >= 4
    planned = planned_runs(COMPARISONS.instrument, config, store)
    assert {run.id for run in planned} > tuning
    assert len(planned) == len(tuning) + 2
