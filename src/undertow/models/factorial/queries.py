"""Queries on a fitted factorial HMM, as functions of its inference and arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.chain.small import viterbi_logs
from undertow.kernels.factorial.viterbi import codes_to_states, joint_viterbi
from undertow.kernels.factorial.words import Emission, FactorialParams
from undertow.kernels.types import F32, F64, I64
from undertow.models.factorial.params import FactorialInference
from undertow.tables import Table
from undertow.text.vocabulary import Vocabulary

BATCH_TOKENS = 1 << 16  # queries process a text in batches of about this many tokens


class WordWeight(NamedTuple):
    """A word that is typical of a state."""

    word: str
    lift: float  # log p(state | word) / p(state), over the training text
    tokens: float  # expected tokens of the word in the state


def batches(sentences: Sequence[NDArray[Any]]) -> Iterator[tuple[NDArray[Any], I64]]:
    """Sentences as flat ids and offsets, in batches of about BATCH_TOKENS tokens."""
    lengths = np.array([len(s) for s in sentences], dtype=np.int64)
    ends = np.cumsum(lengths)
    first = 0
    while first < len(sentences):
        begun = ends[first] - lengths[first]
        stop = max(first + 1, int(np.searchsorted(ends, begun + BATCH_TOKENS, side="right")))
        offsets = np.concatenate(([0], np.cumsum(lengths[first:stop]))).astype(np.int64)
        yield np.concatenate(sentences[first:stop]), offsets
        first = stop


def posterior(inference: FactorialInference, ids: NDArray[Any], offsets: I64, missing: NDArray[np.bool_]) -> F32:
    """(n_tokens, M, K) probabilities of the layers' states; 0 for the states that a smaller layer lacks."""
    if inference.settings.exact:
        return np.asarray(inference.exact(ids, offsets, missing).gamma, dtype=np.float32)
    chains = inference.chains(ids, offsets, missing)
    return np.ascontiguousarray(chains.gamma.transpose(1, 0, 2), dtype=np.float32)


def best_paths(inference: FactorialInference, ids: NDArray[Any], offsets: I64, missing: NDArray[np.bool_]) -> I64:
    """(n_tokens, M) states: of the best joint path if inference is exact, else of each layer's own chain."""
    p = inference.params
    if inference.settings.exact:
        assert inference.log_norm is not None
        codes, _ = joint_viterbi(ids, offsets, missing, p, inference.emission, inference.log_norm)
        return codes_to_states(codes, p.sizes)
    scores = inference.chains(ids, offsets, missing).scores
    paths = [viterbi_logs(scores[m, :, :k], offsets, *p.layer(m)[:2])[0] for m, k in enumerate(p.sizes)]
    return np.stack(paths, axis=1).astype(np.int64)


def draw_states(
    scorer: FactorialInference,
    inference: FactorialInference,
    ids: NDArray[np.uint32],
    missing: NDArray[np.bool_],
    rng: np.random.Generator,
) -> list[int]:
    """Draw the states of the last token given all tokens: jointly if scoring is exact, else layer by layer."""
    p = scorer.params
    if scorer.settings.exact:
        assert scorer.log_norm is not None
        joint = filtered_joint(ids, missing, p, scorer.emission, scorer.log_norm)
        code = np.array([rng.choice(len(joint), p=joint)])
        return [int(s) for s in codes_to_states(code, p.sizes)[0]]
    gamma = posterior(inference, ids, np.array([0, len(ids)]), missing)[-1].astype(np.float64)
    return [int(rng.choice(k, p=g[:k] / g[:k].sum())) for g, k in zip(gamma, p.sizes, strict=True)]


def words_of_state(theta: F64, state: int, words: Vocabulary, n: int, min_count: int) -> Table[WordWeight]:
    """The n words with the highest lift in a state, from the layer's scores θ (V, K)."""
    share = state_shares(theta, words.counts)
    tokens = words.counts * share[:, state]
    overall = tokens.sum() / words.counts.sum()
    lift = np.log(np.maximum(share[:, state], 1e-300)) - np.log(max(overall, 1e-300))
    allowed = words.counts >= min(min_count, int(words.counts.max()))
    allowed[: words.n_special] = False
    order = np.argsort(np.where(allowed, -lift, np.inf), kind="stable")[: min(n, int(allowed.sum()))]
    return Table(WordWeight, (WordWeight(words.words[i], float(lift[i]), float(tokens[i])) for i in order))


def state_shares(theta: F64, counts: I64) -> F64:
    """(V, K) p(state | word) of one layer, from its scores θ (V, K) alone.

    The frequencies of the states come from 20 steps of EM for a mixture with fixed components.
    """
    scores = np.exp(theta - theta.max(axis=0))
    likelihood = scores / scores.sum(axis=0)  # p(word | state), without the other layers
    weight = np.full(theta.shape[1], 1.0 / theta.shape[1])
    share: F64 = np.empty_like(likelihood)
    for _ in range(20):
        share = likelihood * weight
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-300)
        total = counts @ share
        weight = total / total.sum()
    return share


def filtered_joint(
    ids: NDArray[Any], missing: NDArray[np.bool_], params: FactorialParams, e: Emission, log_norm: F64
) -> F64:
    """(∏ K_m,) filtered distribution of the last token's joint state."""
    layers, sizes = [params.layer(m) for m in range(params.n_layers)], params.sizes
    joint = np.ones(())
    for initial, _, _ in layers:
        joint = np.multiply.outer(joint, initial)
    for t, word in enumerate(ids.tolist()):
        if t:
            for m, (_, transition, _) in enumerate(layers):
                joint = np.moveaxis(np.tensordot(joint, transition, axes=(m, 0)), -1, m)
        if not missing[t]:
            score = -log_norm.reshape(sizes)
            for m, k in enumerate(sizes):
                score = score + np.log(e.factors[word, m, :k]).reshape((k,) + (1,) * (len(sizes) - 1 - m))
            joint = joint * np.exp(score - score.max())
        joint = joint / joint.sum()
    return joint.reshape(-1)


def draw_words(
    params: FactorialParams, n: int, states: list[int] | None, boundary: int | None, rng: np.random.Generator
) -> list[int]:
    """Draw n words; `states` are those of the token before, None at the start of a sentence."""
    sizes = params.sizes
    out: list[int] = []
    for _ in range(n):
        rows = params.initial if states is None else [params.transition[m, s] for m, s in enumerate(states)]
        states = [int(rng.choice(k, p=row[:k])) for k, row in zip(sizes, rows, strict=True)]
        scores = params.theta[:, np.arange(params.n_layers), states].sum(axis=1)
        weights = np.exp(scores - scores.max())
        out.append(int(rng.choice(len(weights), p=weights / weights.sum())))
        if out[-1] == boundary:
            states = None
    return out
