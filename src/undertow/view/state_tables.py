"""The hidden states of a model for a page: how frequent they are, their words, and which follow which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from undertow.kernels.types import F64, I64
from undertow.models.answers import WordProbability
from undertow.models.factorial.model import FactorialHMM
from undertow.models.factorial.queries import state_shares
from undertow.models.hmm import queries as hmm_queries
from undertow.models.hmm.model import HMM
from undertow.results.word_clusters import WordClusters
from undertow.text.vocabulary import Vocabulary
from undertow.view.document import clean, digits

STATE_WORDS = 10  # words of a state
NEIGHBORS = 6  # states shown before and after a state
STEPS = 40  # strongest steps of a model
WORDS = 6000  # most frequent words whose states can be searched
WORD_STATES = 6  # states of a word
DESCRIBED = 8192  # states with words, at most
LEAST = 1e-3  # share of a state's tokens that a word needs to stand for it: relevance alone ranks very rare words high
WORK = 50_000_000  # states × words of a state that are ranked, at most: a few seconds


class State(NamedTuple):
    """A state; steps are (index of the other state in the table, probability)."""

    name: str
    share: float  # of the tokens of a long text
    words: list[WordProbability]  # the most typical first
    before: list[tuple[int, float]]  # with p(before | state)
    after: list[tuple[int, float]]  # with p(after | state)


class StateTable(NamedTuple):
    """The states of a model, most frequent first, the states of each word, and the most informative steps."""

    n_states: int  # of the model; the table may have fewer
    states: list[State]
    word_states: dict[str, list[tuple[int, float]]]  # word → (index, p(state | word)), most probable first
    steps: list[tuple[float, int, int]]  # probability, from, to
    groups: list[str]  # layers; empty if there are none
    group: list[int]  # of each state


def hmm_states(model: HMM, n_words: int = STATE_WORDS) -> StateTable:
    """The states of an HMM; of very many, those that come most often in text."""
    derived, vocabulary = hmm_queries.Derived(model.params_), model.vocabulary_
    Z = model.params_.n_states
    per_state = max(1, len(model.params_.emission_of(0)[0]))
    kept = min(Z, DESCRIBED, max(400, WORK // per_state))
    order = np.argsort(-derived.state_shares, kind="stable")[:kept].astype(np.int64)
    index = np.full(Z, -1)
    index[order] = np.arange(kept)
    after, p_after, before, p_before = hmm_queries.strongest_neighbors(derived, order, NEIGHBORS)
    states = [
        State(
            str(z),
            float(derived.state_shares[z]),
            typical_words(model.top_words(z, 5 * n_words), n_words),
            _steps(index[before[i]], p_before[i]),
            _steps(index[after[i]], p_after[i]),
        )
        for i, z in enumerate(order.tolist())
    ]
    words = frequent(vocabulary)
    found: dict[str, list[tuple[int, float]]] = {}
    for start in range(0, len(words), 500):
        ids = words[start : start + 500]
        posterior, first = hmm_queries.states_of_words(derived, ids), model.params_.first_live(ids)
        for k, word in enumerate(ids.tolist()):
            p = posterior.values[posterior.at[k] : posterior.at[k + 1]]
            best = np.argsort(-p, kind="stable")[:WORD_STATES]
            found[vocabulary.words[word]] = _steps(index[first[k] + best], p[best])
    steps = [
        (p, int(index[z]), int(index[z_next]))
        for p, z, z_next in hmm_queries.typical_transitions(derived, STEPS)
        if index[z] >= 0 and index[z_next] >= 0
    ]
    return StateTable(Z, states, found, steps, [], [0] * kept)


def fhmm_states(model: FactorialHMM, n_words: int = STATE_WORDS) -> StateTable:
    """The states of all layers of a factorial HMM, layer by layer."""
    params, vocabulary = model.params_, model.vocabulary_
    words, counts = frequent(vocabulary), vocabulary.counts
    states: list[State] = []
    steps: list[tuple[float, float, int, int]] = []
    found: dict[str, list[tuple[int, float]]] = {vocabulary.words[w]: [] for w in words.tolist()}
    for layer, K in enumerate(params.sizes):
        _, A, theta = params.layer(layer)
        of_word = state_shares(theta, counts)  # (V, K)
        share = counts @ of_word / counts.sum()
        order = np.argsort(-share, kind="stable")
        index = np.empty(K, dtype=np.int64)
        index[order] = len(states) + np.arange(K)
        rest = stationary(A)
        back = (rest[:, None] * A / np.maximum(rest, 1e-300)).T  # (after, before)
        for z in order.tolist():
            typical = layer_words(model, layer, z, n_words, share[z] * counts.sum())
            sides = [_steps(index[np.argsort(-p)[:NEIGHBORS]], np.sort(p)[::-1][:NEIGHBORS]) for p in (back[z], A[z])]
            states.append(State(f"{layer + 1}.{z}", float(share[z]), typical, *sides))
        with np.errstate(divide="ignore", invalid="ignore"):
            information = np.nan_to_num(rest[:, None] * A * np.log(A / rest))
        for z, z_next in np.argwhere(information > 0).tolist():
            steps.append((-information[z, z_next], A[z, z_next], int(index[z]), int(index[z_next])))
        for word in words.tolist():
            best = np.argsort(-of_word[word], kind="stable")[:2]
            found[vocabulary.words[word]] += _steps(index[best], of_word[word, best])
    strongest = [(float(p), i, j) for _, p, i, j in sorted(steps)[:STEPS]]
    group = np.repeat(np.arange(params.n_layers), params.sizes).tolist()
    names = [f"Layer {m + 1}" for m in range(params.n_layers)]
    return StateTable(len(states), states, found, strongest, names, group)


def cluster_states(model: WordClusters, n_words: int = STATE_WORDS) -> StateTable:
    """Word clusters as states: each word has one, and no steps are known."""
    vocabulary, total = model.vocabulary_, model.vocabulary_.counts.sum()
    seen = model.clusters_ >= 0
    size = np.bincount(model.clusters_[seen], weights=vocabulary.counts[seen], minlength=len(model.paths_))
    order = np.argsort(-size, kind="stable")[:DESCRIBED]
    index = np.full(len(model.paths_), -1)
    index[order] = np.arange(len(order))
    states = []
    for c in order.tolist():
        typical = [
            WordProbability(w, float(vocabulary.counts[vocabulary.id(w)] / size[c])) for w in model.words(c, n_words)
        ]
        states.append(State(model.paths_[c], float(size[c] / total), typical, [], []))
    found = {
        vocabulary.words[w]: _steps(index[[model.clusters_[w]]], np.ones(1))
        for w in frequent(vocabulary).tolist()
        if seen[w]
    }
    return StateTable(len(model.paths_), states, found, [], [], [0] * len(states))


def payload(table: StateTable) -> dict[str, Any]:
    """The table for page/states.js: words are places in a list of strings."""
    at: dict[str, int] = {}

    def place(word: str) -> int:
        return at.setdefault(word, len(at))

    def flat(steps: Sequence[tuple[int, float]]) -> list[list[float]]:
        return [[i for i, _ in steps], digits([p for _, p in steps], 2)]

    lookup = [[place(word), *flat(states)] for word, states in table.word_states.items()]
    states = [
        {
            "name": s.name,
            "share": digits([s.share], 2)[0],
            "words": [[place(w.word) for w in s.words], digits([w.probability for w in s.words], 2)],
            "before": flat(s.before),
            "after": flat(s.after),
        }
        for s in table.states
    ]
    return {
        "strings": [clean(word) for word in at],
        "states": states,
        "lookup": lookup,
        "steps": [[digits([p], 2)[0], i, j] for p, i, j in table.steps],
        "groups": table.groups,
        "group": table.group,
    }


def layer_words(model: FactorialHMM, layer: int, state: int, n: int, tokens: float) -> list[WordProbability]:
    """The most typical words of a state of a layer, with their share of the state's expected tokens."""
    ranked = [WordProbability(w.word, w.tokens / max(tokens, 1e-300)) for w in model.top_words(layer, state, 20 * n)]
    return typical_words(ranked, n)


def layer_tokens(model: FactorialHMM, layer: int) -> F64:
    """(K,) expected tokens of the training text in each state of a layer."""
    counts = model.vocabulary_.counts
    return np.asarray(counts @ state_shares(model.params_.layer(layer)[2], counts))


def typical_words(ranked: Sequence[WordProbability], n: int) -> list[WordProbability]:
    """The first n of ranked words that are more than a trace of the state's tokens; at least the first."""
    kept = [w for w in ranked if w.probability >= LEAST]
    return (kept or list(ranked[:1]))[:n]


def frequent(vocabulary: Vocabulary) -> I64:
    """The most frequent words that can be searched, most frequent first; special words are left out."""
    counts = vocabulary.counts.copy()
    counts[: vocabulary.n_special] = 0
    order = np.argsort(-counts, kind="stable")[:WORDS]
    return order[counts[order] > 0].astype(np.int64)


def stationary(A: F64) -> F64:
    """The stationary distribution of a small transition matrix, as the least-squares solution of p A = p, Σp = 1."""
    K = len(A)
    system = np.concatenate([A.T - np.eye(K), np.ones((1, K))])
    p = np.linalg.lstsq(system, np.r_[np.zeros(K), 1.0], rcond=None)[0].clip(min=0)
    return np.asarray(p / p.sum())


def _steps(index: Any, probabilities: Any) -> list[tuple[int, float]]:
    """Pairs of index and probability, without states outside the table and without impossible ones."""
    pairs = zip(np.asarray(index).tolist(), np.asarray(probabilities).tolist(), strict=True)
    return [(i, p) for i, p in pairs if i >= 0 and p > 0]
