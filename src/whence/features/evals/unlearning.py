"""Can a dictionary's features take one kind of text out of a language model, and leave the rest?

The rule is SAEBench's: of the features that hardly ever fire on text to be retained, those that fire most often on
text to be forgotten are clamped to a negative value wherever they fire; what the dictionary does not reconstruct stays
in the state, so that with nothing clamped the model is itself. A setting counts if 99 % of what the model got right on
text to be retained stays right.

What differs: SAEBench asks multiple-choice questions, which small models cannot answer; here every next token that the
clean model gets right is a question. Features are selected on one half of the documents, the setting on a quarter, and
the score comes from the last quarter. Clamped values are measured in typical state lengths, since a dictionary may
scale its codes as it likes. Without an eligible feature or setting there is no score, where SAEBench says 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from whence.config import Config
from whence.errors import UserError
from whence.features.activations.passages import passages
from whence.features.evals.splice import Halves, Text, check_fits
from whence.features.sae.dictionary import Dictionary
from whence.random import generator

CHUNK = 1024
"""States that are encoded at once."""
SCORED, NO_FEATURE, NO_SETTING = "scored", "no eligible feature", "no setting retains"


class Unlearning(Config):
    """What is to be forgotten, what retained, and which settings are tried."""

    forget: tuple[str, ...] = Field(
        default=("158_code_C=1", "159_code_Python=1", "160_code_HTML=1"),
        min_length=1,
        description="packaged sets, a label of one (set=label), or text files",
    )
    retain: tuple[str, ...] = Field(
        default=("100_news_fake", "101_disease_class", "111_yelp_data"),
        min_length=1,
        description="likewise; documents of both are forgotten",
    )
    sequences: int = Field(default=32, ge=1, description="a quarter: features are selected on two, the rest is scored")
    length: int = Field(default=64, ge=4, le=8192, description="tokens per sequence, special ones included")
    thresholds: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        default=(0.001, 0.01), min_length=1, description="a feature fires on less than this share of retained tokens"
    )
    counts: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(5, 20), min_length=1, description="features to clamp, at most"
    )
    multipliers: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        default=(0.0, 0.25, 0.5, 1.0), min_length=1, description="clamped to minus this, in typical lengths of a state"
    )
    keep: float = Field(default=0.99, gt=0, le=1, description="share of retained tokens that must stay right")
    seed: int = Field(default=0, ge=0, description="of the random features")


@dataclass(frozen=True)
class Scored:
    """Text with what the clean model says of it."""

    text: Text
    right: Tensor
    """bool (sequences, length - 1): the next token is predicted; only these count."""
    entropy: float
    """Cross-entropy per token, over all."""

    @classmethod
    def of(cls, halves: Halves, text: Text) -> Scored:
        right, loss = halves.predict(text)
        if not right.any():
            raise UserError("model: it predicts no token of a text, so that there is nothing to forget.", field="model")
        places = text.targets.clone()
        places[text.targets] = right
        return cls(text, places, float(loss.mean()))


@dataclass(frozen=True)
class Side:
    """One kind of text in three parts that share no document."""

    select: Text
    validate: Scored
    test: Scored


@dataclass(frozen=True)
class Corpora:
    """Both kinds, read once for all dictionaries of a layer."""

    forget: Side
    retain: Side

    @classmethod
    def read(cls, halves: Halves, spec: Unlearning) -> Corpora:
        return cls(_side(halves, spec, spec.forget, ()), _side(halves, spec, spec.retain, spec.forget))


def _side(halves: Halves, spec: Unlearning, corpus: tuple[str, ...], without: tuple[str, ...]) -> Side:
    quarter = spec.sequences
    ids, special = passages(halves.tokenizer, corpus, 4 * quarter, spec.length, without)
    text = halves.read(ids, special)
    validate, test = text[2 * quarter : 3 * quarter], text[3 * quarter :]
    return Side(text[: 2 * quarter], Scored.of(halves, validate), Scored.of(halves, test))


@torch.no_grad()
def unlearning(halves: Halves, corpora: Corpora, dictionary: Dictionary, spec: Unlearning) -> dict[str, Any]:
    """The score with how it came about; `outcome` says whether there is one.

    score: share of right predictions on text to be forgotten that clamping makes wrong, on the test part.
    """
    forget, retain = corpora.forget, corpora.retain
    check_fits(dictionary, forget.select)
    often = frequencies(dictionary, forget.select), frequencies(dictionary, retain.select)
    clamp = Clamp.of(halves, dictionary, forget.select)
    found: dict[str, Any] = {
        "outcome": NO_FEATURE,
        "reason": f"every feature that fires on text to be forgotten fires on {max(spec.thresholds):g} of the tokens "
        "to be retained, or more",
        "score": None,
        "eligible": {str(threshold): len(eligible(*often, threshold)) for threshold in spec.thresholds},
        "settings": [],
    }
    tried: list[tuple[dict[str, Any], Tensor]] = []
    for setting, features in _settings(spec, *often):
        kept = clamp.still_right(retain.validate, features, setting["multiplier"])
        lost = None  # not worth knowing where too little is kept
        if kept >= spec.keep:
            lost = 1 - clamp.still_right(forget.validate, features, setting["multiplier"])
        tried.append(({**setting, "retained": kept, "forgotten": lost}, features))
    if not tried:
        return found
    found["settings"] = [setting for setting, _ in tried]
    allowed = [pair for pair in tried if pair[0]["forgotten"] is not None]
    if not allowed:
        most = max(setting["retained"] for setting in found["settings"])
        reason = f"the gentlest of {len(tried)} settings leaves {most:.3f} of retained tokens right"
        return {**found, "outcome": NO_SETTING, "reason": f"{reason}, and {spec.keep:g} must stay"}
    best, features = max(allowed, key=lambda pair: pair[0]["forgotten"])
    random = _others((often[0] + often[1] > 0).nonzero().flatten(), features, spec.seed)
    after, control = (_tested(clamp, corpora, some, best["multiplier"]) for some in (features, random))
    return {
        **found,
        "outcome": SCORED,
        "reason": "",
        "score": after["forgotten"],
        "kept": after["retained"] >= spec.keep,
        "test": after,
        "validation": {key: best[key] for key in ("forgotten", "retained")},
        "random": control,
        "setting": {key: best[key] for key in ("threshold", "multiplier")} | {"features": features.tolist()},
        "clean": {"forget_entropy": forget.test.entropy, "retain_entropy": retain.test.entropy},
        "tokens": {"forget": int(forget.test.right.sum()), "retain": int(retain.test.right.sum())},
    }


def frequencies(dictionary: Dictionary, text: Text) -> Tensor:
    """(size,): share of tokens that each feature fires on."""
    states, positions = text.flat()
    fired = torch.zeros(dictionary.size)
    for some, where in zip(states.split(CHUNK), positions.split(CHUNK), strict=True):
        fired += (dictionary.codes(some, where) > 0).sum(0)
    return fired / len(states)


def eligible(forget: Tensor, retain: Tensor, threshold: float) -> Tensor:
    """Features below the threshold on text to be retained that fire on text to be forgotten, most often first."""
    order = forget.argsort(descending=True, stable=True)
    return order[(retain[order] < threshold) & (forget[order] > 0)]


def _settings(spec: Unlearning, forget: Tensor, retain: Tensor) -> list[tuple[dict[str, Any], Tensor]]:
    """Every setting that clamps something; one that clamps the same features as another is not tried again."""
    chosen: dict[tuple[int, ...], tuple[dict[str, Any], Tensor]] = {}
    for threshold in sorted(spec.thresholds):
        order = eligible(forget, retain, threshold)
        for count in sorted(spec.counts):
            features = order[:count]
            if len(features):
                chosen.setdefault(
                    tuple(features.tolist()), ({"threshold": threshold, "count": len(features)}, features)
                )
    return [
        ({**setting, "multiplier": multiplier}, features)
        for setting, features in chosen.values()
        for multiplier in spec.multipliers
    ]


def _others(alive: Tensor, features: Tensor, seed: int) -> Tensor:
    """As many features that fire somewhere, at random, none of them chosen."""
    pool = alive[~torch.isin(alive, features)]
    return pool[torch.randperm(len(pool), generator=generator(seed, "random features"))[: len(features)]]


def _tested(clamp: Clamp, corpora: Corpora, features: Tensor, multiplier: float) -> dict[str, float]:
    found: dict[str, float] = {"features": len(features)}
    for kind, part in (("forget", corpora.forget.test), ("retain", corpora.retain.test)):
        right, loss = clamp.halves.predict(clamp.text(part.text, features, multiplier))
        found[f"{kind}_entropy"] = float(loss.mean())
        still = float(right[part.right[part.text.targets]].float().mean())
        found |= {"forgotten": 1 - still} if kind == "forget" else {"retained": still}
    return found


@dataclass(frozen=True)
class Clamp:
    """Features of a dictionary held at a negative value on every token that they fire on."""

    halves: Halves
    dictionary: Dictionary
    unit: Tensor
    """(size,): code by which a feature moves a state as far as a typical state is long."""

    @classmethod
    def of(cls, halves: Halves, dictionary: Dictionary, text: Text) -> Clamp:
        """The median is typical: some tokens besides the first have states a hundred times longer than others."""
        typical = text.flat()[0].norm(dim=-1).median()
        return cls(halves, dictionary, typical / dictionary.directions.norm(dim=1).clamp(min=1e-12))

    def text(self, text: Text, features: Tensor, multiplier: float) -> Text:
        """What the dictionary leaves out of a state stays in it; tokens on which nothing fires stay as they are."""

        def edit(states: Tensor, positions: Tensor) -> Tensor:
            flat, where = states.flatten(0, 1), positions.flatten()
            codes = self.dictionary.codes(flat, where)
            touched = (codes[:, features] > 0).any(1)
            before, where = codes[touched], where[touched]
            after = before.clone()
            after[:, features] = torch.where(
                before[:, features] > 0, -multiplier * self.unit[features], before[:, features]
            )
            new = flat.clone()
            new[touched] += self.dictionary.decode(after, where) - self.dictionary.decode(before, where)
            return new.view_as(states)

        return text.edited(edit)

    def still_right(self, scored: Scored, features: Tensor, multiplier: float) -> float:
        """Share of right predictions that stay right. Sequences that nothing fires in are not run again."""
        new = self.text(scored.text, features, multiplier)
        changed = (new.states != scored.text.states).flatten(1).any(1)
        right, _ = self.halves.predict(new[changed], scored.right[changed])
        return 1 - float((~right).sum() / scored.right.sum())
