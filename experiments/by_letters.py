"""Words that a model's text does not have, by their letters: what tagging_representations.py tried for unseen words.

The library's regression from letters, which `ContextVectors` have (`undertow.results.letters`), gives unseen words a
vector of an LDS, or an emission of an HMM, in the place of the class of unknown words. The figures of before it was in
the library are of one with casings, 2^17 places and other weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.kernels.chain import inference
from undertow.kernels.gaussian.smoother import whiten_and_normalize
from undertow.models.lds.queries import token_vectors
from undertow.results.letters import learn_letters
from undertow.text.letters import has_letter


class LDSByLetters:
    """An LDS in which words outside the vocabulary are observed as what their letters say.

    With `rare`, the same stands in for the share of a rare word's tokens that word dropout replaced by its class.
    """

    kind = "lds"

    def __init__(self, model: Any, rare: bool = False) -> None:
        self.model, self.vocabulary_, self.tokenizer_ = model, model.vocabulary_, model.tokenizer_
        params, vocabulary, n = model.params_, model.vocabulary_, model.vocabulary_.n_special
        scale = np.divide(1.0, np.sqrt(params.mu), out=np.zeros_like(params.mu), where=params.mu > 0)
        learned = (scale[:, None] * params.C).astype(np.float32)[n:]  # without the share of the class
        counts = vocabulary.counts[n:]
        words = vocabulary.words[n:]
        self.letters = learn_letters(words, learned, counts)
        self.rows = model._tables.rows.copy()
        if rare:
            share = model.dropped_[n:, None].astype(np.float32)
            self.rows[n:] = (1 - share) * learned + share * self.letters.of(words)

    def transform(self, X: Any, view: str = "features") -> list[Any]:
        ids, bounds, unseen = with_unseen(self.vocabulary_, X)
        rows = np.concatenate([self.rows, self.letters.of(unseen)]) if unseen else self.rows
        params, tables = self.model.params_, self.model._tables
        tables = tables._replace(
            rows=rows,
            inputs=rows @ tables.steady.K_c.T.astype(np.float32),
            word_vectors=whiten_and_normalize(rows @ params.M.T.astype(np.float32), tables.whiten),
        )
        missing = ids == self.vocabulary_.unknown_id
        return sentences(token_vectors(params, tables, ids.astype(np.uint32), bounds, missing, view), bounds)


class HMMByLetters:
    """An HMM in which words outside the vocabulary are emitted as their letters say: p(state | word) by regression."""

    kind = "hmm"
    floor = 0.05  # of the mean distribution of states, so that no state is impossible

    def __init__(self, model: Any) -> None:
        self.chain, self.vocabulary_, self.tokenizer_ = model.params_.chain, model.vocabulary_, model.tokenizer_
        emission, counts, n = self.chain.emission, self.vocabulary_.counts, self.vocabulary_.n_special
        of_states = np.full(emission.shape[1], 1 / emission.shape[1])
        for _ in range(5):  # p(state) and p(state | word), until they agree
            of_word = emission * of_states
            of_word /= np.maximum(of_word.sum(1, keepdims=True), 1e-30)
            of_states = (counts[:, None] * of_word).sum(0) / counts.sum()
        self.of_states = of_states.astype(np.float32)
        self.letters = learn_letters(self.vocabulary_.words[n:], of_word[n:].astype(np.float32), counts[n:])

    def posterior(self, X: Any) -> list[Any]:
        ids, bounds, unseen = with_unseen(self.vocabulary_, X)
        chain = self.chain
        if unseen:
            p = np.maximum(self.letters.of(unseen), 0) + self.floor * self.of_states
            rows = 1e-6 * p / p.sum(1, keepdims=True) / self.of_states
            chain = chain._replace(emission=np.concatenate([chain.emission, rows.astype(chain.emission.dtype)]))
        return sentences(inference.posterior(ids, bounds, chain), bounds)


def with_unseen(vocabulary: Any, X: Any) -> tuple[Any, Any, list[str]]:
    """Ids of all tokens, the bounds of sentences, and the unseen words with letters, whose ids follow the others."""
    X = [list(s) for s in X]
    known = np.concatenate([vocabulary.encode(s) for s in X]).astype(np.int64)
    words = [w for s in X for w in s]
    unseen = list(dict.fromkeys(w for w in words if w not in vocabulary and has_letter(w)))
    place = {w: len(vocabulary) + i for i, w in enumerate(unseen)}
    ids = np.array([place.get(w, i) for w, i in zip(words, known.tolist(), strict=True)], dtype=np.int64)
    return ids, np.concatenate(([0], np.cumsum([len(s) for s in X]))).astype(np.int64), unseen


def sentences(rows: Any, bounds: Any) -> list[Any]:
    return [rows[a:b] for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
