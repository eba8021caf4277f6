"""What may be said."""

from __future__ import annotations

from collections.abc import Mapping

from whence.stats.cells import SEEDS_TO_DECIDE
from whence.stats.pairs import TIE_MARGIN, Comparison, seeds_needed

PARTS = {"id": "within training", "ood": "beyond training"}


def heading(
    seeds: int, levels: Mapping[str, float] | None = None, *, contenders: int = 2, until_decided: bool = False
) -> str:
    """What a table of this many paired seeds may claim.

    `levels` gives the error of each part that was tested (see `share_alpha`); without it nothing was.
    """
    paired = f"{seeds} paired {'seed' if seeds == 1 else 'seeds'}"
    if seeds < SEEDS_TO_DECIDE:
        more = SEEDS_TO_DECIDE - seeds
        return (
            f"exploratory, fewer than {SEEDS_TO_DECIDE}: {paired}; {more} more {'is' if more == 1 else 'are'} needed "
            "to test differences between encodings, nothing is ranked"
        )
    if not levels:
        return f"{paired}; differences between encodings are not tested, nothing is ranked"
    tied = f"tied means within ±{_points(TIE_MARGIN, 0)} points"
    whole = _percent(sum(levels.values()))
    if until_decided:
        return (
            f"{paired}, added until decided; all pairs tested after every seed by the signs of their differences, the "
            f"chance of any false winner, at any look, is at most {whole}; {tied}"
        )
    shares = ", ".join(f"{_percent(level)} {PARTS[part]}" for part, level in levels.items())
    missing = {part: seeds_needed(level, contenders) - seeds for part, level in levels.items()}
    short = "".join(
        f"; {PARTS[part]}, no winner can be told before {more} more {'seed' if more == 1 else 'seeds'}"
        for part, more in missing.items()
        if more > 0
    )
    return (
        f"{paired}; all pairs tested by exchanging scores within seeds, the chance of any false winner is at most "
        f"{whole}{f' ({shares})' if len(levels) > 1 else ''}; {tied}{short}"
    )


def sentence(comparison: Comparison, part: str) -> str:
    """One comparison in one sentence, without its full stop."""
    c, where = comparison, PARTS[part]
    evidence = _evidence(c)
    if c.winner:
        ahead = c.wins if c.winner == c.a else c.losses
        size = abs(c.difference)
        if c.e is not None:  # decided by signs, and maybe some seeds ago: the mean may say something else by now
            mean = f"mean difference {_points(c.difference if c.winner == c.a else -c.difference)} points"
            return f"{c.winner} beats {c.loser} {where} in {ahead} of {c.n} seeds ({mean}{evidence})"
        return f"{c.winner} beats {c.loser} {where} by {_points(size)} points ({ahead} of {c.n} seeds{evidence})"
    span = f", [{_points(c.interval[0])}, {_points(c.interval[1])}]" if c.interval else ""
    difference = f"difference {_points(c.difference)} points{span}"
    if c.verdict == "tied" and c.decided_at and c.decided_at < c.n:
        return f"{c.a} and {c.b} were found tied {where} at {c.decided_at} seeds (now: {difference})"
    if c.verdict == "tied":
        return f"{c.a} and {c.b} are tied {where} ({difference}, within ±{_points(TIE_MARGIN, 0)})"
    if c.verdict == "exploratory":
        seeds = f"{c.n} {'seed' if c.n == 1 else 'seeds'}, {SEEDS_TO_DECIDE - c.n} more needed"
        return f"{c.a} and {c.b}: exploratory {where} ({difference}, {seeds})"
    return f"{c.a} and {c.b}: undecided {where} ({difference}, {c.n} seeds{evidence})"


def _evidence(c: Comparison) -> str:
    if c.e is not None:
        return f", e = {c.e:.3g}" if c.e < 10_000 else ", e > 10000"
    if c.p is None:
        return ""
    if c.p < 0.001:
        return ", p < .001"
    return f", p = {c.p:.3f}".replace("0.", ".", 1)


def _points(share: float, digits: int = 1) -> str:
    text = f"{100 * share:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + " %"
