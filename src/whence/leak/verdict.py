"""What an audit may say in words, and the thresholds it goes by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whence.leak.measures import ROUNDING
from whence.leak.words import percent, share

Outcome = Literal["leaky", "traces", "clean"]

MOVED = 0.01
"""Share of the predictions' variance that moving everything may cause before a model is called leaky."""
APART = 1e-4
"""With everything hidden: variance between places, over the targets', from which on a model is called leaky."""
DEAD = 0.99
"""Error, over that of always saying the mean, from which on a model predicts nothing."""
ELSEWHERE = "elsewhere"
"""In the table of entrances: what comes in where whence knows of no entrance."""
LET_IN = 0.2
"""An entrance is named if alone it lets in at least this share of what all let in."""


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    dead: bool
    """It predicts nothing, so that its leak scores mean nothing."""
    sentences: list[str]
    entry: str | None
    """The first layer that holds position"""
    entrances: list[str]
    """Where it comes in, the widest first"""
    thresholds: dict[str, float]

    @property
    def notes(self) -> list[str]:
        """In a word or two."""
        return [self.outcome, *["reconstructs nothing"] * self.dead]


def judge(
    ratios: Mapping[str, Mapping[str, Any]],
    profile: Mapping[str, Mapping[str, Any]],
    sources: Sequence[Mapping[str, Any]],
    *,
    fitted: bool = False,
) -> Verdict:
    outcome = leaks(ratios)
    partly, moved, wholly = _parts(ratios)
    openly = any(found.get("inside") for found in ratios.values())
    most = max(moved, key=lambda r: moved[r], default=None)
    apart = wholly["spread"] if wholly else 0.0
    errors = {r: found["error"] for r, found in (partly if fitted and partly else ratios).items()}
    best = min(errors, key=lambda r: errors[r])
    dead = errors[best] >= DEAD and not fitted
    entry = first_layer_with_position(profile) if outcome != "clean" else None
    named = entrances(sources) if outcome != "clean" else []
    sentences = [_what(outcome, most, moved, wholly, apart)]
    if openly:
        sentences.append("An explicit prior adds position in the open; the verdict is about the model without it.")
    if outcome != "clean":
        sentences += _where(entry, len(profile), named, sources)
    sentences += [] if fitted else _legitimate(partly, most)
    sentences.append(_reconstruction(errors[best], percent(best), fitted))
    thresholds = {"moved": MOVED, "apart": APART, "dead": DEAD, "named": LET_IN}
    return Verdict(outcome, dead, sentences, entry, named, thresholds)


def leaks(ratios: Mapping[str, Mapping[str, Any]]) -> Outcome:
    """By what moving everything changes and, with everything hidden, by how far predictions lie apart."""
    _, moved, wholly = _parts(ratios)
    most = max(moved.values(), default=0.0)
    if most >= MOVED or (wholly and wholly["spread"] >= APART):
        return "leaky"
    return "traces" if most > ROUNDING**2 or (wholly and wholly["spread"] > ROUNDING**2) else "clean"


def _parts(
    ratios: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, float], Mapping[str, Any] | None]:
    """What was found with a part hidden, how far moving changed predictions then, and with everything hidden."""
    partly = {ratio: found for ratio, found in ratios.items() if float(ratio) < 1}
    moved = {ratio: judged(found)["shift"]["of_prediction"] for ratio, found in partly.items()}
    return partly, moved, next((judged(found) for ratio, found in ratios.items() if float(ratio) == 1), None)


def judged(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a verdict is about: position that a prior adds in the open is no leak."""
    return found.get("inside") or found


def entrances(sources: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those that let in a good part of what all let in, by what each lets in alone."""
    widest = max((row["alone"] for row in sources), default=0.0)
    found = [row["name"] for row in sources if row["alone"] > ROUNDING**2 and row["alone"] >= LET_IN * widest]
    return list(dict.fromkeys(found))


def first_layer_with_position(profile: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The first whose states at hidden tokens change when everything is moved."""
    return next((layer for layer, found in profile.items() if found["trained"]["moved"] >= MOVED), None)


def _what(
    outcome: str, most: str | None, moved: Mapping[str, float], wholly: Mapping[str, Any] | None, apart: float
) -> str:
    parts = []
    if most:
        parts.append(
            f"moving content and mask together changes predictions by {share(moved[most])} of their variance "
            f"(in a block with {percent(most)} hidden)"
        )
    if wholly:
        parts.append(
            "with everything hidden all predictions are equal"
            if wholly["identical"]
            else "with everything hidden they do not differ from place to place by more than noise"
            if apart == 0
            else f"with everything hidden they differ by {share(apart)} of the targets' variance"
        )
    words = {
        "leaky": "Leaky: predictions of hidden tokens depend on where they are",
        "traces": "Traces of position, too small to matter",
        "clean": "Clean: predictions of hidden tokens do not depend on where they are",
    }[outcome]
    return f"{words}; {'; '.join(parts)}."


def _where(entry: str | None, layers: int, named: Sequence[str], sources: Sequence[Mapping[str, Any]]) -> list[str]:
    told = []
    if layers:
        unseen = "No layer's states at hidden tokens show it by themselves."
        told.append(f"Position is first found after {entry}." if entry else unseen)
    alone = {row["name"]: row["alone"] for row in reversed(sources)}
    known = [name for name in named if name != ELSEWHERE]
    if known:
        told.append("It comes in through " + ", ".join(f"{name} (alone {share(alone[name])})" for name in known) + ".")
    elif alone.keys() - {ELSEWHERE}:
        told.append("None of the entrances that were found lets it in alone.")
    if ELSEWHERE in alone:
        who = "Some" if known else "Position"
        told.append(f"{who} comes in where whence knows of no entrance ({share(alone[ELSEWHERE])} with all shut).")
    return told


def _legitimate(partly: Mapping[str, Mapping[str, Any]], most: str | None) -> list[str]:
    """Where the data themselves depend on position, so may predictions."""
    own = partly[most]["eta2_target"] if most else None
    if own is None or own < 0.05:
        return []
    return [f"The targets themselves depend on position ({share(own)} of their variance): part of it is legitimate."]


def _reconstruction(error: float, hidden: str, fitted: bool) -> str:
    if fitted:
        told = f"{100 * (1 - error):.0f} %" if error < 1 else "nothing"
        return f"What it says of hidden tokens explains {told} of what it says when they are visible ({hidden} hidden)."
    if error >= DEAD:
        return f"It reconstructs nothing (error {error:.2f} of that of saying the mean): its leak scores mean nothing."
    return f"Its error is {error:.2f} of that of always saying the mean, with {hidden} hidden."
