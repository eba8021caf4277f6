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
from typing import Literal

import torch
from torch import Tensor

from whence.config import Config
from whence.errors import UserError
from whence.features.activations.text import passages
from whence.features.evals.splice import SplitModel, SplitText
from whence.features.sae.dictionary import Dictionary, check_fits
from whence.random import generator

CHUNK = 1024
"""States that are encoded at once."""


@dataclass(frozen=True)
class UnlearningSettings:
    """What is to be forgotten, what retained, and which settings are tried."""

    forget: tuple[str, ...] = ("158_code_C=1", "159_code_Python=1", "160_code_HTML=1")
    """Packaged sets, a label of one (set=label), or text files"""
    retain: tuple[str, ...] = ("100_news_fake", "101_disease_class", "111_yelp_data")
    """Likewise; documents of both are forgotten"""
    sequences: int = 32
    """A quarter: features are selected on two, the rest is scored"""
    length: int = 64
    """Tokens per sequence, special ones included"""
    thresholds: tuple[float, ...] = (0.001, 0.01)
    """A feature fires on less than this share of retained tokens"""
    counts: tuple[int, ...] = (5, 20)
    """Features to clamp, at most"""
    multipliers: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0)
    """Clamped to minus this, in typical lengths"""
    keep: float = 0.99
    """Share of retained tokens that must stay right"""
    seed: int = 0
    """Of the random features"""


class ClampSetting(Config):
    """Which features are clamped, how far, and what it does to the validation part."""

    threshold: float
    count: int
    multiplier: float
    retained: float
    forgotten: float | None
    """None: too little is retained"""


class ClampOutcome(Config):
    """What clamping does to the test part."""

    features: int
    forgotten: float
    """Share of right predictions on text to be forgotten that become wrong"""
    retained: float
    """Share of right predictions on text to be retained that stay right"""
    forget_entropy: float
    retain_entropy: float


class UnlearningScore(Config):
    """Of the best setting that retains enough on the validation part."""

    setting: ClampSetting
    features: tuple[int, ...]
    test: ClampOutcome
    random: ClampOutcome
    """As many random features, clamped as far"""
    retains_enough: bool
    """On the test part, too"""
    clean_forget_entropy: float
    clean_retain_entropy: float
    forget_tokens: int
    retain_tokens: int


class UnlearningResult(Config):
    """Without an eligible feature or setting there is no score."""

    outcome: Literal["scored", "no eligible feature", "no setting retains"]
    reason: str = ""
    """Why there is no score"""
    eligible: dict[str, int]
    """By threshold, how many features"""
    settings: tuple[ClampSetting, ...] = ()
    score: UnlearningScore | None = None


@dataclass(frozen=True)
class Scored:
    """Text with what the clean model says of it."""

    text: SplitText
    right: Tensor
    """bool (sequences, length - 1): the next token is predicted; only these count."""
    entropy: float
    """Cross-entropy per token, over all."""

    @classmethod
    def of(cls, split_model: SplitModel, text: SplitText) -> Scored:
        right, loss = split_model.predict(text)
        if not right.any():
            raise UserError(
                "model: expected correct predictions of some tokens, got none, so that nothing can be forgotten."
            )
        places = text.targets.clone()
        places[text.targets] = right
        return cls(text, places, float(loss.mean()))


@dataclass(frozen=True)
class Side:
    """One kind of text in three parts that share no document."""

    select: SplitText
    validate: Scored
    test: Scored


@dataclass(frozen=True)
class Corpora:
    """Both kinds, read once for all dictionaries of a layer."""

    forget: Side
    retain: Side

    @classmethod
    def read(cls, split_model: SplitModel, config: UnlearningSettings) -> Corpora:
        def side(corpus: tuple[str, ...], without: tuple[str, ...]) -> Side:
            quarter = config.sequences
            ids, special = passages(split_model.tokenizer, corpus, 4 * quarter, config.length, without)
            text = split_model.read(ids, special)
            validate, test = text[2 * quarter : 3 * quarter], text[3 * quarter :]
            return Side(text[: 2 * quarter], Scored.of(split_model, validate), Scored.of(split_model, test))

        return cls(side(config.forget, ()), side(config.retain, config.forget))


@torch.no_grad()
def unlearning(
    split_model: SplitModel, corpora: Corpora, dictionary: Dictionary, config: UnlearningSettings
) -> UnlearningResult:
    """Features are selected on one half of the documents, the setting on a quarter, the score is of the last."""
    forget, retain = corpora.forget, corpora.retain
    check_fits(dictionary, *forget.select.shape)
    often = frequencies(dictionary, forget.select), frequencies(dictionary, retain.select)
    clamp = Clamp.of(split_model, dictionary, forget.select)
    counts = {str(threshold): len(eligible(*often, threshold)) for threshold in config.thresholds}
    tried: list[tuple[ClampSetting, Tensor]] = []
    for threshold, features, multiplier in _settings(config, *often):
        retained = clamp.still_right(retain.validate, features, multiplier)
        forgotten = None  # not worth knowing where too little is retained
        if retained >= config.keep:
            forgotten = 1 - clamp.still_right(forget.validate, features, multiplier)
        clamped = {"threshold": threshold, "count": len(features), "multiplier": multiplier}
        tried.append((ClampSetting(**clamped, retained=retained, forgotten=forgotten), features))
    if not tried:
        limit = f"{100 * max(config.thresholds):g} % or more of the tokens to be retained"
        reason = f"every feature that is active on text to be forgotten is active on {limit}"
        return UnlearningResult(outcome="no eligible feature", reason=reason, eligible=counts)
    settings = tuple(setting for setting, _ in tried)
    allowed = [(setting.forgotten, setting, features) for setting, features in tried if setting.forgotten is not None]
    if not allowed:
        most = max(setting.retained for setting in settings)
        retained = f"keeps {most:.3f} of the correct predictions to be retained, less than {config.keep:g}"
        reason = f"the best of {len(tried)} settings {retained}"
        return UnlearningResult(outcome="no setting retains", reason=reason, eligible=counts, settings=settings)
    _, best, features = max(allowed, key=lambda one: one[0])
    random = _others((often[0] + often[1] > 0).nonzero().flatten(), features, config.seed)
    test, control = (_tested(clamp, corpora, some, best.multiplier) for some in (features, random))
    score = UnlearningScore(
        setting=best,
        features=tuple(features.tolist()),
        test=test,
        random=control,
        retains_enough=test.retained >= config.keep,
        clean_forget_entropy=forget.test.entropy,
        clean_retain_entropy=retain.test.entropy,
        forget_tokens=int(forget.test.right.sum()),
        retain_tokens=int(retain.test.right.sum()),
    )
    return UnlearningResult(outcome="scored", eligible=counts, settings=settings, score=score)


def frequencies(dictionary: Dictionary, text: SplitText) -> Tensor:
    """(d_sae,): share of tokens that each feature fires on."""
    activations, positions = text.flat()
    fired = torch.zeros(dictionary.d_sae)
    for some, where in zip(activations.split(CHUNK), positions.split(CHUNK), strict=True):
        fired += (dictionary.encode(some, where) > 0).sum(0)
    return fired / len(activations)


def eligible(forget: Tensor, retain: Tensor, threshold: float) -> Tensor:
    """Features below the threshold on text to be retained that fire on text to be forgotten, most often first."""
    order = forget.argsort(descending=True, stable=True)
    return order[(retain[order] < threshold) & (forget[order] > 0)]


def _settings(config: UnlearningSettings, forget: Tensor, retain: Tensor) -> list[tuple[float, Tensor, float]]:
    """Threshold, features and multiplier of every setting that clamps something; one that clamps the same features as
    another is not tried again."""
    chosen: dict[tuple[int, ...], tuple[float, Tensor]] = {}
    for threshold in sorted(config.thresholds):
        order = eligible(forget, retain, threshold)
        for count in sorted(config.counts):
            features = order[:count]
            if len(features):
                chosen.setdefault(tuple(features.tolist()), (threshold, features))
    return [(*clamped, multiplier) for clamped in chosen.values() for multiplier in config.multipliers]


def _others(alive: Tensor, features: Tensor, seed: int) -> Tensor:
    """As many features that fire somewhere, at random, none of them chosen."""
    pool = alive[~torch.isin(alive, features)]
    return pool[torch.randperm(len(pool), generator=generator(seed, "random features"))[: len(features)]]


def _tested(clamp: Clamp, corpora: Corpora, features: Tensor, multiplier: float) -> ClampOutcome:
    right, entropy = [], []
    for part in (corpora.forget.test, corpora.retain.test):
        still, loss = clamp.split_model.predict(clamp.text(part.text, features, multiplier))
        entropy.append(float(loss.mean()))
        right.append(float(still[part.right[part.text.targets]].float().mean()))
    return ClampOutcome(
        features=len(features),
        forgotten=1 - right[0],
        retained=right[1],
        forget_entropy=entropy[0],
        retain_entropy=entropy[1],
    )


@dataclass(frozen=True)
class Clamp:
    """Features of a dictionary held at a negative value on every token that they fire on."""

    split_model: SplitModel
    dictionary: Dictionary
    unit: Tensor
    """(d_sae,): code at which the contribution of a feature has the norm of a typical activation"""

    @classmethod
    def of(cls, split_model: SplitModel, dictionary: Dictionary, text: SplitText) -> Clamp:
        """The median norm is typical: a few tokens besides the first have norms a hundred times that of others."""
        typical = text.flat()[0].norm(dim=-1).median()
        return cls(split_model, dictionary, typical / dictionary.directions.norm(dim=1).clamp(min=1e-12))

    def text(self, text: SplitText, features: Tensor, multiplier: float) -> SplitText:
        """Clamp features. The reconstruction error of the dictionary is kept, and tokens without them do not change."""

        def edit(activations: Tensor, positions: Tensor) -> Tensor:
            flat, where = activations.flatten(0, 1), positions.flatten()
            codes = self.dictionary.encode(flat, where)
            touched = (codes[:, features] > 0).any(1)
            before, where = codes[touched], where[touched]
            after, own = before.clone(), before[:, features]
            after[:, features] = torch.where(own > 0, -multiplier * self.unit[features], own)
            new = flat.clone()
            new[touched] += self.dictionary.decode(after, where) - self.dictionary.decode(before, where)
            return new.view_as(activations)

        return text.edited(edit)

    def still_right(self, scored: Scored, features: Tensor, multiplier: float) -> float:
        """Share of correct predictions that stay correct. Sequences in which nothing fires are skipped."""
        new = self.text(scored.text, features, multiplier)
        changed = (new.activations != scored.text.activations).flatten(1).any(1)
        right, _ = self.split_model.predict(new[changed], scored.right[changed])
        return 1 - float((~right).sum() / scored.right.sum())
