"""Questions about a mixture of models: one of them wrote the text, and the evidence says which.

p(text) = Σ_i weight_i p_i(text): the chain that first draws one of the models and then stays with it. Given evidence,
model i weighs weight_i p_i(evidence) over the sum of these, and answers are means of the models' own answers by these
weights. (Left to right, `Interpolation` mixes anew at each token instead, which has no tractable two-sided answer.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from undertow.errors import InputError
from undertow.kernels.types import F64
from undertow.models.answers import Gap, gap_of
from undertow.questions.best_fill import ChainFills, JointFill, check_expansions, joint_fill, search
from undertow.questions.evidence import Evidence, TextChain, observe, read_position, word_id
from undertow.questions.explain import (
    Change,
    Comparison,
    StatesAndLogs,
    Surprise,
    candidates,
    changes,
    comparisons,
    states_and_logs,
    with_word,
)
from undertow.questions.fill import (
    check_number,
    checked_observed,
    log_evidence,
    only_fillers,
    open_positions,
    sample_fill,
    word_distributions,
)
from undertow.tables import Table
from undertow.text.corpus import Corpus


class Mixture(NamedTuple):
    """The chains of the models that have some weight, and the logs of their weights."""

    chains: list[TextChain]
    log_weights: F64

    @property
    def words(self) -> tuple[str, ...]:
        return self.chains[0].vocabulary.words


def mixture_of(models: Sequence[Any], weights: F64, markers: bool = False) -> Mixture:
    """The models as chains; InputError if one has none."""
    for model in models:
        if not hasattr(model, "_chain"):
            raise InputError(
                f"{type(model).__name__} has no probability of a whole text that its two-sided answers belong to: mix "
                "models that are chains of states, such as HMMs."
            )
    used = np.flatnonzero(weights).tolist()
    return Mixture([models[i]._chain()._replace(markers=markers) for i in used], np.log(weights[used]))


def responsibilities(models: Sequence[Any], weights: F64, text: Evidence) -> F64:
    """(n models,) p(model i wrote the text | what is known of it)."""
    mixture, out = mixture_of(models, weights), np.zeros(len(models))
    logs = mixture.log_weights + [log_evidence(chain, text) for chain in mixture.chains]
    _check(logs)
    out[np.flatnonzero(weights)] = _shares(logs)
    return out


def mixed_log_evidence(mixture: Mixture, text: Evidence) -> float:
    """log Σ_i weight_i p_i(evidence)."""
    return float(np.logaddexp.reduce(mixture.log_weights + [log_evidence(chain, text) for chain in mixture.chains]))


def fill(mixture: Mixture, text: Evidence, n: int) -> Table[Gap]:
    """For each open position its n most probable words."""
    check_number(n)
    chain = mixture.chains[0]
    observed = checked_observed(chain, text)
    where = open_positions(observed)
    found = zip(where, _distributions(mixture, text, where), strict=True)
    return Table(
        Gap, (gap_of(chain.vocabulary, t, p, n, chain.markers or observed.piece(t).words is not None) for t, p in found)
    )


def compare(mixture: Mixture, text: Evidence, position: Any, words: Any) -> Table[Comparison]:
    """The probabilities of some words at a position given both sides."""
    position = read_position(position, len(text.tokens))
    words = candidates(words)
    ids = [word_id(mixture.chains[0], word, "The comparison") for word in words]
    [p] = _distributions(mixture, with_word(text, position, None), [position])
    return comparisons(words, p[ids])


def _distributions(mixture: Mixture, text: Evidence, where: list[int]) -> list[F64]:
    """(V,) p(word | evidence) of these positions."""
    observed = [checked_observed(chain, text) for chain in mixture.chains]
    logs = mixture.log_weights + [o.params.filtered(o.ids, o.bounds).log_probabilities.sum() for o in observed]
    _check(logs)
    out = [np.zeros(len(mixture.words)) for _ in where]
    for share, chain, o in zip(_shares(logs), mixture.chains, observed, strict=True):
        if share > 0:
            for i, own in enumerate(word_distributions(chain, o, where, text)):
                out[i] += share * own
    return out


def draw_fills(mixture: Mixture, text: Evidence, n: int, rng: np.random.Generator) -> list[list[str]]:
    """n filled texts: a model drawn by how probably it wrote what is known, then the words by that model."""
    check_number(n)
    logs = np.array([_log_with_fillers(chain, text) for chain in mixture.chains]) + mixture.log_weights
    _check(logs)
    writer = rng.choice(len(mixture.chains), size=n, p=_shares(logs))
    out: list[list[str]] = [[] for _ in range(n)]
    for i, chain in enumerate(mixture.chains):
        mine = np.flatnonzero(writer == i).tolist()
        if mine:
            for place, tokens in zip(mine, sample_fill(chain, text, len(mine), rng), strict=True):
                out[place] = tokens
    return out


def _log_with_fillers(chain: TextChain, text: Evidence) -> float:
    """log p(evidence) where gaps hold words that may fill them."""
    observed, _ = only_fillers(chain, checked_observed(chain, text))
    return float(observed.params.filtered(observed.ids, observed.bounds).log_probabilities.sum())


class MixedFills:
    """The fills of a text under a mixture: a bound on it is the sum of the models' bounds."""

    def __init__(self, parts: list[ChainFills], log_weights: F64) -> None:
        self.parts, self.log_weights, self.where = parts, log_weights, parts[0].where

    def children(self, prefix: tuple[int, ...]) -> F64:
        rows = [w + part.children(prefix) for w, part in zip(self.log_weights, self.parts, strict=True)]
        return np.asarray(np.logaddexp.reduce(rows, axis=0))

    def log_probability(self, words: Sequence[int]) -> float:
        logs = [part.log_probability(words) for part in self.parts]
        return float(np.logaddexp.reduce(self.log_weights + np.array(logs)))


def best_fill(mixture: Mixture, text: Evidence, max_expansions: int) -> JointFill:
    """The most probable words of all open positions together."""
    check_expansions(max_expansions)
    logs = np.array([_log_with_fillers(chain, text) for chain in mixture.chains])
    _check(logs)
    able = np.flatnonzero(logs > -np.inf)
    fills = MixedFills([ChainFills(mixture.chains[i], text) for i in able], mixture.log_weights[able])
    words, value, proven = search(fills, max_expansions)
    evidence = float(np.logaddexp.reduce(logs[able] + mixture.log_weights[able]))
    return joint_fill(fills.parts[0], words, value - evidence, proven)


# --- surprise and changes -------------------------------------------------------------------------------


def masked_log_probabilities(models: Sequence[Any], weights: F64, X: Any) -> list[F64]:
    """log p(token | all other tokens of its sentence) of each sentence.

    p_i(rest) = p_i(sentence) / p_i(token | rest), so both sums over the models come from the sentences' probabilities.
    """
    mixture = mixture_of(models, weights)
    models = [models[i] for i in np.flatnonzero(weights).tolist()]
    texts = _texts(X)
    logs = [[part.sum() for part in model.log_probabilities(X)] for model in models]
    alone = [model.masked_log_probabilities(X) for model in models]
    out = []
    for s, text in enumerate(texts):
        whole = mixture.log_weights + [parts[s] for parts in logs]
        rest = [
            _log_rest(chain, text, total, parts[s])
            for chain, total, parts in zip(mixture.chains, whole - mixture.log_weights, alone, strict=True)
        ]
        out.append(_ratio(whole, mixture.log_weights[:, None] + np.array(rest).reshape(len(whole), -1)))
    return out


def surprises(models: Sequence[Any], weights: F64, X: Any) -> Table[Surprise]:
    """How surprising the tokens are if one of the models wrote each sentence, from the left and from both sides."""
    mixture = mixture_of(models, weights)
    X = X if isinstance(X, Corpus) else list(X)
    both = masked_log_probabilities(models, weights, X)
    logs = [models[i].log_probabilities(X) for i in np.flatnonzero(weights).tolist()]
    out = Table(Surprise)
    for s, text in enumerate(_texts(X)):
        so_far = np.logaddexp.reduce(
            [
                w + np.concatenate(([0.0], np.cumsum(part[s])))
                for w, part in zip(mixture.log_weights, logs, strict=True)
            ],
            axis=0,
        )
        possible = so_far[1:] > -np.inf
        left = np.subtract(so_far[1:], so_far[:-1], out=np.full(len(so_far) - 1, -np.inf), where=possible)
        tokens: Any = list(text.tokens)
        out.append(Surprise(tokens, np.abs(left) / np.log(2), np.abs(both[s]) / np.log(2)))
    return out


def what_if(mixture: Mixture, text: Evidence, position: Any, word: Any) -> Table[Change]:
    """What would change at every other position if this one had another word.

    The hidden state of a mixture is the model that writes and that model's state.
    """
    position = read_position(position, len(text.tokens))
    other = with_word(text, position, mixture.words[word_id(mixture.chains[0], word, "The question")])
    return changes(text, position, *(_mixed_states_and_logs(mixture, t) for t in (text, other)))


def _mixed_states_and_logs(mixture: Mixture, text: Evidence) -> StatesAndLogs:
    """(T, ΣZ) distributions of model and state, and log p(what is known of a position | the others) of each."""
    logs = np.array([log_evidence(chain, text) for chain in mixture.chains])
    whole = mixture.log_weights + logs
    _check(whole)
    states, rest = [], []
    for chain, log_p, share in zip(mixture.chains, logs, _shares(whole), strict=True):
        if share > 0:
            own = states_and_logs(chain, text)
            states.append(share * own.states)
            rest.append(log_p - own.logs)
        else:
            states.append(np.zeros((len(text.tokens), chain.params.n_states)))
            rest.append(_log_rest(chain, text, -np.inf, np.empty(0)))
    return StatesAndLogs(np.concatenate(states, axis=1), _ratio(whole, mixture.log_weights[:, None] + np.array(rest)))


def _log_rest(chain: TextChain, text: Evidence, whole: float, alone: F64) -> F64:
    """(T,) log p(everything but position t), from that of all and of each position given the others."""
    if whole > -np.inf:
        return whole - alone
    gaps = [with_word(text, t, None) for t in range(len(text.tokens))]  # 0/0 says nothing: leave each out
    observed = observe(chain, gaps)
    logs = observed.params.filtered(observed.ids, observed.bounds).log_probabilities
    return np.array([part.sum() for part in np.split(logs, observed.bounds[1:-1])])


def _ratio(whole: F64, rest: F64) -> F64:
    """(T,) log Σ_i p_i(all) / Σ_i p_i(all but t); −inf where all is impossible."""
    total = np.logaddexp.reduce(whole)
    if total == -np.inf:
        return np.full(rest.shape[1], -np.inf)
    return np.asarray(total - np.logaddexp.reduce(rest, axis=0))


def _texts(X: Any) -> list[Evidence]:
    sentences: Iterable[Any] = X.token_lists() if isinstance(X, Corpus) else X
    return [s if isinstance(s, Evidence) else Evidence(list(s)) for s in sentences]


def _shares(logs: F64) -> F64:
    return np.asarray(np.exp(logs - np.logaddexp.reduce(logs)))


def _check(logs: F64) -> None:
    if not (logs > -np.inf).any():
        raise InputError(
            "The evidence contradicts itself: each of the models gives it probability zero; allow more words, or leave "
            "a gap."
        )


__all__ = ["Mixture", "mixture_of"]
