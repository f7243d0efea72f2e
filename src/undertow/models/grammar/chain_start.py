"""A start from a hidden Markov model, which is a grammar whose trees all branch to the right.

The chain has Z states and a last one that only ends a sentence; it is fitted by EM. State z becomes a preterminal T_z,
which emits as z does, a nonterminal A_z for what z and all after it emit, if that is two words or more, and a feature:
A_z → T_z A_z' or T_z T_z'. Sentences have the same probability under both, so that EM of the grammar begins where that
of the chain ended. A small share of general rules lets EM move away from the chain.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.chain.inference import ChainParams, Stats, e_step
from undertow.kernels.chain.operators import Dense
from undertow.kernels.chain.smoothing import smoothed_emission, smoothed_rows
from undertow.kernels.chart.grammar import GrammarParams
from undertow.kernels.types import F64, I64
from undertow.models.fitting import LOGGER
from undertow.models.grammar.em import Fitted, MStep
from undertow.models.grammar.init import (
    Sizes,
    random_children,
    random_emission,
    random_rules,
    sentence_lengths,
    with_unseen,
    word_classes,
)
from undertow.models.incremental import IncrementalStats
from undertow.text.corpus import Corpus

PASSES = 3  # of EM of the chain; the grammar goes on from there
N_CHUNKS = 8  # after which its parameters are renewed
GENERAL = 0.002  # share of general rules in the grammar
OTHER_WORDS = 0.8  # share of a state's words that are not of its class, to begin with
CLASS_STRENGTH = 5.0  # pseudo-counts of the next class of a class, towards the frequencies of all
CHAIN_STRENGTH = 300.0  # of the next states of a state by EM, beside the counts of the classes
WORD_STRENGTH = 20.0  # of a state's words, towards the word frequencies
STATE_STRENGTH = 0.5  # of its next states and of the first one, towards uniform


def chain_start(text: Corpus, sizes: Sizes, m_step: MStep, rng: np.random.Generator, n_threads: int) -> Fitted:
    """A grammar that is nearly a chain of min(sizes) states, and no counts yet."""
    n, m, r = sizes
    classes = word_classes(text, min(sizes), rng, n_threads)
    small = right_linear(class_chain(text, min(sizes), classes, m_step, rng, n_threads))
    general = GrammarParams(
        np.full(n + m, 1 / (n + m)),
        random_rules(n, r, rng),
        random_children(r, n, m, 0.5, rng),
        random_children(r, n, m, 0.5, rng),
        random_emission(m, m_step, rng, classes),
    )
    params = mixed(general, small)
    return Fitted(params, np.zeros(n + m), 0)


def class_chain(
    text: Corpus, Z: int, classes: I64 | None, m_step: MStep, rng: np.random.Generator, n_threads: int
) -> ChainParams:
    """A chain whose states are classes of words to begin with; at the end its transitions are smoothed with theirs.

    EM alone overfits the transitions of a short text: the counts of the classes, which see each word in one class
    whatever stands beside it, are the better part of them.
    """
    if classes is None or int(classes.max()) + 1 < Z:
        T = rng.dirichlet(np.full(Z + 1, 10.0), Z + 1).astype(np.float32)
        return fit_chain(text, random_emission(Z, m_step, rng, classes), T, m_step, n_threads)
    pairs = class_pairs(text, classes, Z)
    T = np.full((Z + 1, Z + 1), 1 / (Z + 1), dtype=np.float32)
    T[:Z] = smoothed_rows(pairs, CLASS_STRENGTH, pairs.sum(axis=0, keepdims=True) / pairs.sum())
    chain = fit_chain(text, class_emission(classes, Z, m_step), T, m_step, n_threads)
    T[:Z] = smoothed_rows(pairs, CHAIN_STRENGTH, chain.transition.dense()[:Z].astype(np.float64))
    return chain._replace(transition=Dense(T))


def class_pairs(text: Corpus, classes: I64, Z: int) -> F64:
    """(Z, Z + 1) how often a word of each class comes after one of each; the end of a sentence comes last."""
    lengths = sentence_lengths(text)
    lengths = lengths[lengths > 0]
    after = np.insert(classes[np.asarray(text.ids)], np.cumsum(lengths), Z)
    inner = after[:-1] < Z
    flat = np.bincount(after[:-1][inner] * (Z + 1) + after[1:][inner], minlength=Z * (Z + 1))
    return flat.reshape(Z, Z + 1).astype(np.float64)


def class_emission(classes: I64, Z: int, m_step: MStep) -> NDArray[np.float32]:
    """(V, Z) the words of each class by their frequency, with the share OTHER_WORDS of all words."""
    counts = m_step.word_counts
    own = np.zeros((len(counts), Z))
    own[np.arange(len(counts)), classes] = counts
    total = own.sum(axis=0)
    own /= np.where(total > 0, total, 1.0)
    emission = (1 - OTHER_WORDS) * own + OTHER_WORDS * (counts / counts.sum())[:, None]
    return with_unseen(emission, m_step)


def fit_chain(
    text: Corpus, emission: NDArray[np.float32], T: NDArray[np.float32], m_step: MStep, n_threads: int
) -> ChainParams:
    """A chain of Z states and an end state, from emissions (V, Z) and transitions (Z + 1, Z + 1) to begin with.

    The last word and the last state are the end.
    """
    V, Z = emission.shape
    smoothing = m_step.smoothing
    params = _with_end(np.full(Z, 1 / Z), T, emission)
    lengths = sentence_lengths(text)
    lengths = lengths[lengths > 0]
    ids = np.insert(np.asarray(text.ids, dtype=np.int64), np.cumsum(lengths), V)
    edges = np.concatenate(([0], np.cumsum(lengths + 1)))
    cuts = np.unique(np.linspace(0, len(lengths), min(N_CHUNKS, len(lengths)) + 1).astype(np.int64))
    running: IncrementalStats[Stats] = IncrementalStats(len(cuts) - 1)
    for number in range(PASSES):
        log_likelihood = 0.0
        for c, (first, last) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
            part = ids[edges[first] : edges[last]]
            stats = e_step(part, edges[first : last + 1] - edges[first], params, n_threads=n_threads)
            log_likelihood += stats.log_likelihood
            total = running.replace(c, stats._replace(impossible=np.empty(0, dtype=np.int64)))
            params = _with_end(
                smoothed_rows(total.initial[None, :Z], smoothing * STATE_STRENGTH)[0],
                smoothed_rows(total.transition.pairs, smoothing * STATE_STRENGTH),
                smoothed_emission(total.emission[:V, :Z], smoothing * WORD_STRENGTH, m_step.word_counts, m_step.unseen),
            )
        LOGGER.info(
            "chain, pass %d of %d: perplexity %.2f", number + 1, PASSES, np.exp(-log_likelihood / len(text.ids))
        )
    return params


def _with_end(initial: NDArray[np.float32] | F64, T: NDArray[np.float32], emission: NDArray[np.float32]) -> ChainParams:
    """The parameters with an end state, which emits only the end, and which no other state emits."""
    V, Z = emission.shape
    words = np.zeros((V + 1, Z + 1), dtype=np.float32)
    words[:V, :Z], words[V, Z] = emission, 1
    return ChainParams(np.append(initial, 0).astype(np.float32), Dense(T), words)


def right_linear(chain: ChainParams) -> GrammarParams:
    """The grammar of Z nonterminals, preterminals and features with the same sentences as a chain with an end state."""
    Z = len(chain.initial) - 1
    T = chain.transition.dense().astype(np.float64)[:Z]
    going_on = 1 - T[:, Z]
    ways = T[:, :Z] / np.where(going_on > 0, going_on, 1.0)[:, None]  # A_z has two words or more, so z is not the last
    ways[going_on <= 0] = 1 / Z  # such an A_z is never used
    initial = chain.initial[:Z].astype(np.float64)
    return GrammarParams(
        np.concatenate([initial * going_on, initial * (1 - going_on)]),
        np.eye(Z),
        np.hstack([np.zeros((Z, Z)), np.eye(Z)]),
        np.hstack([ways * going_on, ways * (1 - going_on)]),
        chain.emission[:-1, :Z],
    )


def mixed(general: GrammarParams, small: GrammarParams) -> GrammarParams:
    """A small grammar inside a general one: all but the share GENERAL for its own symbols, the rest as it is."""
    n, r, Z = general.n_nonterminals, general.rank, small.rank
    symbols = np.concatenate([np.arange(Z), n + np.arange(Z)])
    start, rules, left, right = (GENERAL * np.asarray(x, dtype=np.float64) for x in general[:4])
    start[symbols] += (1 - GENERAL) * small.start
    rules[:Z, :Z] += (1 - GENERAL) * small.rules
    states = np.arange(Z)
    left[np.ix_(states, symbols)] += (1 - GENERAL) * small.left
    right[np.ix_(states, symbols)] += (1 - GENERAL) * small.right
    for table, k in ((rules, n), (left, r), (right, r)):
        table[Z:k] /= GENERAL  # rows that the small grammar lacks
    emission = general.emission.copy()
    emission[:, :Z] = small.emission
    single = [x.astype(np.float32) for x in (start, rules, left, right, emission)]
    return GrammarParams(*single)


__all__ = ["chain_start", "fit_chain", "mixed", "right_linear"]
