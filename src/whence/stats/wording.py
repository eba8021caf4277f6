"""Verdicts as sentences. No other module writes them."""

from __future__ import annotations

from collections.abc import Sequence

from whence.stats.cells import ALPHA
from whence.stats.evidence import SEEDS_TO_DECIDE
from whence.stats.metric import Metric
from whence.stats.pairs import Comparison, TestDesign, seeds_needed

TOO_FEW = "Too few seeds for a verdict"
PARTS = {"id": "in distribution", "ood": "out of distribution"}
CLAIM = (
    '"Beats": better more often than worse on new seeds{data}, and better on average over the observed seeds (the 95 % '
    "interval of the mean difference excludes 0)"
)


def plan_note(seeds: int, comparisons: int, *, family: str = "table", design: TestDesign = "fixed") -> str:
    """The number of seeds that a verdict needs, and whether as many are planned. Shown before anything runs."""
    if comparisons < 1:
        return f"{count(seeds, 'seed')}; one variant, so nothing is compared."
    needed = seeds_needed(comparisons, design=design)
    need = "needs" if comparisons == 1 else "need"
    note = f"{count(comparisons, 'comparison')} in one {family} {need} at least {needed} paired seeds for a verdict"
    if design == "sequential":
        return f"{note}; seeds are added until every comparison is decided."
    if seeds < needed:
        return f"{note}; {seeds} planned, so the results will be exploratory."
    return f"{note}; {seeds} planned."


def heading(
    seeds: int,
    comparisons: int,
    metrics: Sequence[Metric],
    *,
    design: TestDesign = "fixed",
    family: str = "table",
    earlier: int = 0,
    fewest: int | None = None,
    on: str = "",
    untested: str = "",
) -> str:
    """The statistics of a table: seeds, family, test and error, and the definition of the verdicts.

    Args:
        earlier: number of seeds whose results were shown before.
        fewest: number of paired seeds of the pair that has the fewest.
        on: data that all seeds share.
        untested: why the table is not tested.
    """
    few = f"{fewest} to " if fewest is not None and fewest < seeds else ""
    paired = f"{few}{count(seeds, 'paired seed')}"
    if untested:
        return f"{paired}. {untested}"
    if not comparisons:
        return f"{paired}; nothing is compared"
    needed = seeds_needed(comparisons, design=design)
    tested = f"{count(comparisons, 'comparison')} in one {family}"
    if seeds < SEEDS_TO_DECIDE:
        return f"exploratory: {paired}, {needed} are needed for a verdict on {tested}; nothing is ranked"
    margins = " and ".join(dict.fromkeys(metric.margin for metric in metrics))
    how = (
        "signs of paired differences, Holm-corrected"
        if design == "fixed"
        else "e-values of the signs of paired differences, valid after every seed"
    )
    short = f"; no winner is possible below {needed} seeds" if seeds < needed else ""
    if earlier:
        short += f"; results of {earlier} seeds were shown before, so the sequential test applies"
    claim = CLAIM.format(data=f" on {on}" if on else " with new data")
    return (
        f"{paired}. {tested}: the probability of any winner that is not better more often than worse is at most "
        f'{100 * ALPHA:g} % ({how}){short}. {claim}. "Tied": the interval of the mean difference is within {margins}'
    )


def sentence(c: Comparison) -> str:
    """One comparison as a sentence without its full stop."""
    where = f" {_where(c)}".rstrip()
    difference = f"difference {_amount(c.metric, c.difference)}"
    difference += f" {c.metric.interval(*c.interval)}" if c.interval else ""
    evidence = f"{_seeds(c)}{_evidence(c)}"
    if c.winner:
        sign = 1 if c.winner == c.a else -1
        low, high = sorted(sign * end for end in c.interval or (c.difference, c.difference))
        size = f"{_amount(c.metric, sign * c.difference)} {c.metric.interval(low, high)}"
        return f"{c.winner} beats {c.loser}{where} by {size} ({evidence})"
    if c.verdict == "tied":
        return f"{c.a} and {c.b} are tied{where} ({difference}, within {c.metric.margin})"
    details = {
        "mixed": f"{evidence}, but {_contradiction(c)}",
        "exploratory": f"{difference}, {count(c.n, 'seed')}, {SEEDS_TO_DECIDE - c.n} more needed",
        "undecided": f"{difference}; {evidence}",
    }
    return f"{c.a} and {c.b}: {c.verdict}{where} ({details[c.verdict]})"


def conclusion(comparisons: Sequence[Comparison], *, design: TestDesign = "fixed") -> str:
    """The result of a table in one sentence, without its full stop; empty if nothing was compared.

    Below the number of seeds that a verdict needs, it names the best observed mean and says that it is exploratory.
    """
    by_part: dict[str, list[Comparison]] = {}
    for c in comparisons:
        by_part.setdefault(_place(c), []).append(c)
    exploratory = all(c.verdict == "exploratory" for c in comparisons)
    clauses = [f"{part}, {(_observed if exploratory else _decisions)(of)}" for part, of in by_part.items()]
    text = "; ".join(clauses[:MOST_CLAUSES])
    if len(clauses) > MOST_CLAUSES:
        text += f"; {count(len(clauses) - MOST_CLAUSES, 'further result')} below"
    if comparisons and exploratory:
        seeds, needed = max(c.n for c in comparisons), seeds_needed(comparisons[0].family, design=design)
        return f"Exploratory, {count(seeds, 'paired seed')} (a verdict needs at least {needed}): {text}"
    return text[:1].upper() + text[1:]


MOST_NAMES = 4
"""Names that a conclusion lists; it counts longer lists."""
MOST_CLAUSES = 3
"""Statements of a conclusion."""


def _where(c: Comparison) -> str:
    """The scores and data of a comparison: `in distribution`, `at ×1 on these held-out signals`."""
    return " ".join(filter(None, (PARTS.get(c.part, c.part), f"on {c.on}" if c.on else "")))


def _place(c: Comparison) -> str:
    """The same with the metric where the part does not imply it: `by PSNR at ×1`."""
    return _where(c) if c.part in PARTS else f"by {c.metric.name} {_where(c)}".strip()


def _decisions(comparisons: Sequence[Comparison]) -> str:
    """The verdicts of one part: winners with the most wins first, then how many pairs have no winner."""
    losers: dict[str, list[str]] = {}
    for c in comparisons:
        if c.winner and c.loser:
            losers.setdefault(c.winner, []).append(c.loser)
    winners: dict[tuple[str, ...], list[str]] = {}
    for name, of in sorted(losers.items(), key=lambda item: -len(item[1])):
        winners.setdefault(tuple(of), []).append(name)
    groups = list(winners.items())
    phrases = [
        f"{_several(names)} {'beats' if len(names) == 1 else 'beat'} {_several(of)}"
        for of, names in groups[:MOST_CLAUSES]
    ]
    if rest := sum(len(of) * len(names) for of, names in groups[MOST_CLAUSES:]):
        phrases.append(f"{count(rest, 'further pair')} {'has' if rest == 1 else 'have'} a winner")
    for verdict in ("tied", "mixed", "undecided", "exploratory"):
        pairs = [f"{c.a} and {c.b}" for c in comparisons if c.verdict == verdict]
        if len(pairs) == 1:
            phrases.append(
                f"{pairs[0]} are tied" if verdict == "tied" else f"the comparison of {pairs[0]} is {verdict}"
            )
        elif pairs:
            phrases.append(f"{len(pairs)} {'pairs' if verdict == 'tied' else 'comparisons'} are {verdict}")
    return ", ".join(phrases)


def _observed(comparisons: Sequence[Comparison]) -> str:
    """The best mean where it was compared with all others; otherwise the largest difference.

    Means over the seeds on which neither failed say nothing about which of two is better: such pairs are left out.
    """
    if failed := [c for c in comparisons if c.failures]:
        whole = [c for c in comparisons if not c.failures]
        left_out = f"{count(len(failed), 'pair')} with diverged runs {'is' if len(failed) == 1 else 'are'} left out"
        return f"{_observed(whole)} ({left_out})" if whole else left_out
    ahead: dict[str, dict[str, float]] = {}
    for c in comparisons:
        ahead.setdefault(c.a, {})[c.b] = c.difference
        ahead.setdefault(c.b, {})[c.a] = -c.difference
    metric = comparisons[0].metric
    best = [name for name, of in ahead.items() if len(of) == len(ahead) - 1 and min(of.values()) >= 0]
    if best:
        rival = min(ahead[best[0]], key=ahead[best[0]].__getitem__)
        if ahead[best[0]][rival] == 0:
            level = [name for name, difference in ahead[best[0]].items() if difference == 0]
            return f"{listed([best[0], *level])} have the best observed mean"
        return f"{best[0]} has the best observed mean, {_amount(metric, ahead[best[0]][rival])} ahead of {rival}"
    name, rival = max(((a, b) for a in ahead for b in ahead[a]), key=lambda pair: ahead[pair[0]][pair[1]])
    return f"the largest observed difference is {_amount(metric, ahead[name][rival])} ({name} ahead of {rival})"


def _several(names: Sequence[str]) -> str:
    return listed(names) if len(names) <= MOST_NAMES else f"{len(names)} others"


def listed(names: Sequence[str]) -> str:
    """`["a", "b", "c"]` → `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def report(comparisons: Sequence[Comparison]) -> list[str]:
    """Sentences on all comparisons of a table, decided ones first."""
    open_ones = [c for c in comparisons if not c.decided]
    return [*(sentence(c) + "." for c in comparisons if c.decided), *open_pairs(open_ones)]


def open_pairs(comparisons: Sequence[Comparison]) -> list[str]:
    """Pairs without a decision, one sentence for each part and verdict."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for c in comparisons:
        grouped.setdefault((c.verdict, _where(c)), []).append(f"{c.a} and {c.b}")
    return [
        f"{TOO_FEW if verdict == 'exploratory' else verdict.capitalize()} {where}".rstrip() + f": {'; '.join(names)}."
        for (verdict, where), names in grouped.items()
    ]


def short(c: Comparison) -> str:
    """The verdict for a cell of a table: `rope better`, `tied`, `mixed`, `undecided` or `exploratory`."""
    return f"{c.winner} better" if c.winner else c.verdict


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


RARE = 0.25
"""Largest fraction of seeds for which failures are called rare."""


def _contradiction(c: Comparison) -> str:
    """The reason why the method that is better on most seeds does not win."""
    sign = 1 if c.leader == c.a else -1
    if sign * c.difference > 0:
        return f"one of the two failed on {count(c.failures, 'seed')}"
    worse = _amount(c.metric, abs(c.difference))
    average = f"worse on average by {worse}" if c.difference else "equal on average"
    rare = not c.failures and min(c.wins, c.losses) <= RARE * c.n
    return f"{average}: rare failures" if rare else average


def _seeds(c: Comparison) -> str:
    leader = "" if c.winner or c.leader is None else f"{c.leader} "
    equal, most = c.n - c.wins - c.losses, max(c.wins, c.losses)
    ties = f" and equal in {equal}" if equal else ""
    failed = (
        f", with {count(c.failures, 'failed run')} counted as {'a loss' if c.failures == 1 else 'losses'}"
        if c.failures
        else ""
    )
    return f"{leader}better in {most}{ties} of {count(c.n, 'seed')}{failed}"


def _evidence(c: Comparison) -> str:
    if c.e is not None:
        return f", e = {c.e:.3g}" if c.e < 10_000 else ", e > 10000"
    if c.p is None:
        return ""
    if c.p < 0.001:
        return ", p < .001"
    return f", p = {c.p:.3f}".replace("0.", ".", 1)


def _amount(metric: Metric, advantage: float) -> str:
    return f"{metric.display(advantage)} {metric.unit}".rstrip()
