"""The feature classes that the search tries, by the names that tasks use in `expressed_by`.

A class whose use *is* the skill of a task expresses it. Such a class is searched and shown, but does not count for the
baseline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from whence.shortcuts import columns, keys
from whence.shortcuts.columns import Columns
from whence.shortcuts.keys import Keys


@dataclass(frozen=True)
class FeatureClass:
    """Features of one kind, in all the forms in which a predictor may use them."""

    columns: Mapping[str, Columns] = field(default_factory=dict)
    """For linear models, by name."""
    keys: tuple[Keys, ...] = ()
    """For lookup tables."""
    places: tuple[Keys, ...] = ()
    """For tasks that ask where something is."""
    summary: bool = False
    """Few numbers: a small perceptron is tried as well, and the class is part of `all summaries`."""
    perceptron: bool = False
    """A small perceptron is tried as well."""


CLASSES: dict[str, FeatureClass] = {
    "majority": FeatureClass(keys=(keys.no_keys,)),
    "position": FeatureClass({"the position": columns.position}, (keys.position_keys,), (keys.place_position,)),
    "one-hots": FeatureClass({"one-hot tokens by position": columns.one_hots}),
    "counts": FeatureClass(
        {"symbol counts": columns.symbol_counts}, (keys.count_keys,), (keys.place_symbol,), summary=True
    ),
    "bigrams": FeatureClass(
        {
            "bigram counts": columns.bigram_counts,
            "counts of the last symbol's neighbours": columns.beside_last(1),
        },
        (keys.beside_last_keys(1),),
        (keys.place_neighbours(0, 1),),
        perceptron=True,
    ),
    "trigrams": FeatureClass({"trigram counts": columns.trigram_counts}, (), (keys.place_neighbours(0, 1, 2),)),
    "skip-pairs": FeatureClass(
        {
            "skip-pair counts": columns.skip_pair_counts,
            "counts of symbols two places from the last symbol": columns.beside_last(2),
        },
        (keys.beside_last_keys(2),),
        (keys.place_neighbours(0, 2), keys.place_neighbours(0, 3)),
        perceptron=True,
    ),
    "centroids": FeatureClass({"sums of positions per symbol": columns.centroids}, (keys.centroid_keys,), summary=True),
    "order": FeatureClass({"pairwise order of symbols": columns.pairwise_order}, perceptron=True),
    "regions": FeatureClass({"symbol counts per quarter": columns.region_counts}, summary=True),
    "last symbol": FeatureClass(
        {"earlier occurrences of the last symbol": columns.last_symbol}, (keys.last_symbol_keys,), summary=True
    ),
    "variety": FeatureClass(
        {"distinct symbols and highest counts so far": columns.variety}, (keys.variety_keys,), summary=True
    ),
    "first tokens": FeatureClass({"the first tokens": columns.first_tokens}, (keys.first_token_keys,), perceptron=True),
    "last tokens": FeatureClass({"the last tokens": columns.last_tokens}, (keys.last_token_keys,), perceptron=True),
    "long window": FeatureClass({"a longer window of last tokens": columns.tokens_beyond_window}, perceptron=True),
    "ends": FeatureClass({"the first two and the last two tokens": columns.both_ends}, perceptron=True),
    "window sums": FeatureClass(keys=(keys.window_sum_keys,)),
    "repeats": FeatureClass(places=(keys.place_repeats,)),
    "suffix": FeatureClass(keys=(keys.suffix_keys,)),
    "declared": FeatureClass(keys=(keys.declared_keys,)),
}
