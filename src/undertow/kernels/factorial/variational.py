"""Variational inference in a factorial HMM: a chain for each layer, tied by what the others expect of the words.

The layers' posteriors are taken to be independent; what ties them is E log Z(s_t), which is bounded from above.

tilted   E log Z ≤ −Σ_mk γ_mk a_mk + log Σ_Y Π_m Σ_k γ_mk e^{θ_Ymk + a_mk}. A layer is best off with a_m = −log c_m,
         c_mk = Σ_Y e^{θ_Ymk} Π_{n≠m} Σ_k' γ_nk' e^{θ_Ynk' + a_nk'}; the logarithm is then 0. Exact for one layer.
jensen   E log Z ≤ log E Z: the paper's bound with its slips corrected; the tilted one at a = 0.
mean_field   no bound: E log Z itself, c_mk = E[log Z | s_m = k] from a table of K^M numbers (`factorial_mean_field`).

A layer's chain gets the scores φ_tmk = θ_{y_t,mk} − log c_tmk (tilted), θ − c/Σγc (jensen) or θ − c (mean_field), and
is solved before the next layer's turn: then the bound never falls. A missing word's scores are 0. Right after a
layer's turn the tilted bound of a sentence is the sum of its chains' log-likelihoods (plus the words' own weights);
see `_bounds`.

The sums over the vocabulary are fused (`_expect`): a tile of tokens × words at a time, the product over the layers in
cache, so nothing of the size tokens × words exists. The products of the other layers are formed anew for each layer:
M² K multiply-adds a token and word instead of the least possible 2MK, and no memory traffic in their place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.small import forward_backward_logs
from undertow.kernels.factorial.mean_field import expect_log_norm
from undertow.kernels.factorial.row_products import (
    VECTOR_BYTES,
    dots,
    flush_tiny,
    mix_add,
    mix_times,
    set_control_word,
)
from undertow.kernels.factorial.words import Emission, FactorialParams, Floats, log_normaliser

BOUNDS = ("tilted", "jensen", "mean_field")
TILE_TOKENS = 24
TILE_WORDS = 512  # 48 kB of products beside 20 kB of one layer's factors at K = 10


class WordTable(NamedTuple):
    """The emission as the fused sums read it: words in tiles, the last filled up with words of weight 0; float32."""

    base: NDArray[np.float32]  # (n_tiles, TILE_WORDS) B_y
    factors: NDArray[np.float32]  # (n_tiles, M, K, TILE_WORDS) E_ymk

    @classmethod
    def of(cls, e: Emission) -> WordTable:
        V, M, K = e.factors.shape
        width = min(TILE_WORDS, -(-V // 16) * 16)
        n_tiles = -(-V // width)
        base, factors = np.zeros(n_tiles * width, dtype=np.float32), np.zeros((n_tiles * width, M, K), dtype=np.float32)
        base[:V], factors[:V] = np.exp(e.log_base), e.factors
        tiles = factors.reshape(n_tiles, width, M, K).transpose(0, 2, 3, 1)
        return cls(base.reshape(n_tiles, width), np.ascontiguousarray(tiles))

    def in_order(self, values: Floats, n_words: int) -> Floats:
        """(n_tiles, M, K, TILE_WORDS) numbers as (V, M, K)."""
        _, M, K, _ = values.shape
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2).reshape(-1, M, K)[:n_words])


class VariationalPosterior(NamedTuple):
    """What the chains say of some sentences."""

    bound: Floats  # (n_sentences,) at most the log-likelihood
    gamma: Floats  # (M, N, K)
    scores: Floats  # (M, N, K) φ: what each layer's chain was given
    first: Floats  # (M, K)
    pairs: Floats  # (M, K, K)
    n_sweeps: NDArray[np.int64]  # (n_sentences,)
    weights: NDArray[np.float32]  # (N, M, K) γ e^a over its sum in k
    log_scale: Floats  # (N,) −log Σ_Y B_Y Π_m Σ_k weights E; mean_field: −E log Z


@njit(cache=True, nogil=True)
def _other_layers(weights: Any, t: Any, n: Any, base: Any, factors: Any, tile: Any, layer: Any, product: Any) -> None:
    """Equivalent to `product[i, Y] = base[Y] Π_{m≠layer} Σ_k weights[t + i, m, k] factors[m, k, Y]` in a tile."""
    _, M, K = weights.shape
    width = base.shape[1]
    flat_w, flat_f, flat_p, flat_b = weights.reshape(-1), factors.reshape(-1), product.reshape(-1), base.reshape(-1)
    n_vec = width * base.itemsize // VECTOR_BYTES
    fresh = True
    for m in range(M):
        if m != layer:
            w0, x0 = (t * M + m) * K, (tile * M + m) * K * width
            if fresh:
                mix_times(flat_w, w0, M * K, flat_f, x0, width, flat_b, tile * width, 0, flat_p, 0, width, n, K, n_vec)
            else:
                mix_times(flat_w, w0, M * K, flat_f, x0, width, flat_p, 0, width, flat_p, 0, width, n, K, n_vec)
            fresh = False
    if fresh:
        for i in range(n):
            product[i] = base[tile]


@njit(cache=True, nogil=True)
def _expect(weights: Any, base: Any, factors: Any, layer: Any, out: Any) -> None:
    """c of one layer for tokens with these weights (N, M, K).

    Equivalent to `out[t, k] = Σ_Y base[Y] factors[layer, k, Y] Π_{n≠layer} Σ_k' weights[t, n, k'] factors[n, k', Y]`.
    """
    N, M, K = weights.shape
    n_tiles, width = base.shape
    n_vec = width * base.itemsize // VECTOR_BYTES
    product = np.empty((TILE_TOKENS, width), dtype=base.dtype)
    sums = np.empty((TILE_TOKENS, K), dtype=base.dtype)
    flat_f = factors.reshape(-1)
    before = flush_tiny()
    out[:] = 0
    for tile in range(n_tiles):
        for t in range(0, N, TILE_TOKENS):
            n = min(TILE_TOKENS, N - t)
            _other_layers(weights, t, n, base, factors, tile, layer, product)
            sums[:] = 0
            dots(product.reshape(-1), 0, width, flat_f, (tile * M + layer) * K * width, width, sums.reshape(-1), 0, K,
                 n, K, 1, 0, n_vec)  # fmt: skip
            for i in range(n):
                for k in range(K):
                    out[t + i, k] += sums[i, k]
    set_control_word(before)


@njit(cache=True, nogil=True)
def _count_words(weights: Any, scaled: Any, base: Any, factors: Any, out: Any) -> None:
    """What the bound expects of every word and state, added to out.

    Equivalent to `out[m, k, Y] += Σ_t scaled[t, m, k] base[Y] factors[m, k, Y] Π_{n≠m} Σ_k' weights[t, n, k']
    factors[n, k', Y]`.
    """
    N, M, K = weights.shape
    n_tiles, width = base.shape
    n_vec = width * base.itemsize // VECTOR_BYTES
    vector = VECTOR_BYTES // base.itemsize
    product = np.empty((TILE_TOKENS, width), dtype=base.dtype)
    some = np.empty((K, width), dtype=base.dtype)
    before = flush_tiny()
    for tile in range(n_tiles):
        for m in range(M):
            some[:] = 0
            for t in range(0, N, TILE_TOKENS):
                n = min(TILE_TOKENS, N - t)
                _other_layers(weights, t, n, base, factors, tile, m, product)
                mix_add(scaled.reshape(-1), (t * M + m) * K, 1, M * K, product.reshape(-1), 0, width, vector,
                        some.reshape(-1), 0, width, vector, K, n, n_vec)  # fmt: skip
            for k in range(K):
                for y in range(width):
                    out[tile, m, k, y] += some[k, y] * factors[tile, m, k, y]
    set_control_word(before)


class _Chains:
    """Sentences on their way to convergence: what each layer's chain was given and what it answered."""

    def __init__(self, own: Floats, offsets: NDArray[np.int64], params: FactorialParams) -> None:
        M, N, K = own.shape
        self.own, self.offsets, self.params = own, offsets, params
        self.scores, self.gamma, self.tilt = np.zeros((3, M, N, K))  # φ, γ, a
        self.likelihood = np.zeros((M, len(offsets) - 1))
        self.weights = np.zeros((N, M, K), dtype=np.float32)  # γ e^a over its sum
        self.log_sums = np.zeros((M, N))  # the logarithm of that sum

    def solve(
        self, m: int, scores: Floats, tilt: Floats, sentences: NDArray[np.int64], tokens: NDArray[np.int64]
    ) -> None:
        """Give layer m's chain new scores in these sentences (whose tokens are listed), and take its answer."""
        bounds = np.concatenate(([0], np.cumsum(np.diff(self.offsets)[sentences])))
        found = forward_backward_logs(scores, bounds, self.params.initial[m], self.params.transition[m])
        self.scores[m, tokens], self.tilt[m, tokens], self.gamma[m, tokens] = scores, tilt, found.gamma
        self.likelihood[m, sentences] = found.log_likelihood
        with np.errstate(divide="ignore"):
            logs = np.log(found.gamma) + tilt
        top = logs.max(axis=1, keepdims=True)
        weights = np.exp(logs - top)
        total = weights.sum(axis=1, keepdims=True)
        self.weights[tokens, m] = weights / total
        self.log_sums[m, tokens] = (top + np.log(total))[:, 0]


def variational_posterior(
    ids: NDArray[Any],
    offsets: NDArray[np.int64],
    missing: NDArray[np.bool_] | None,
    params: FactorialParams,
    e: Emission,
    table: WordTable | None = None,
    log_norm: Floats | None = None,
    *,
    bound: str = "tilted",
    max_sweeps: int = 10,
    tol: float = 1e-3,
) -> VariationalPosterior:
    """Sweep over the layers until a sentence's bound rises by less than `tol` a token, or max_sweeps times.

    Each sentence stops by itself, so what it gets does not depend on those it came with. `table` is for the bounds that
    sum over the words, `log_norm` for mean_field; either is made if it is not given.
    """
    expectation = _Expectation(bound, e, table, log_norm)
    M, K = params.initial.shape
    N, lengths = len(ids), np.diff(offsets)
    seen = np.ones(N, dtype=bool) if missing is None else ~missing
    own = np.where(seen[:, None, None], np.log(e.factors[ids]), 0.0).transpose(1, 0, 2)
    weight_of_words = _sentence_sums(np.where(seen, e.log_base[ids], 0.0), offsets)
    chains = _Chains(np.ascontiguousarray(own), offsets, params)
    alone = -np.log(np.einsum("y,ymk->mk", np.exp(e.log_base), e.factors))  # a layer as if there were no others
    everyone, all_tokens = np.flatnonzero(lengths > 0), np.arange(N)
    for m in range(M):
        a = np.where(seen[:, None], alone[m], 0.0)
        chains.solve(m, own[m] + a, a if bound == "tilted" else np.zeros((N, K)), everyone, all_tokens)
    best = np.full(len(lengths), -np.inf)
    best[lengths == 0] = 0.0
    log_scale, n_sweeps = np.zeros(N), np.zeros(len(lengths), dtype=np.int64)
    open_ = everyone
    for _ in range(max_sweeps):
        if not len(open_):
            break
        tokens = all_tokens[np.repeat(np.isin(np.arange(len(lengths)), open_), lengths)]
        log_scale[tokens] = _sweep(chains, open_, tokens, seen[tokens], expectation)
        n_sweeps[open_] += 1
        now = weight_of_words[open_] + _bounds(chains, log_scale, bound)[open_]
        risen = now - best[open_]
        best[open_] = now
        open_ = open_[risen > tol * lengths[open_]]
    first, pairs = np.empty((M, K)), np.empty((M, K, K))
    for m in range(M):
        found = forward_backward_logs(chains.scores[m], offsets, params.initial[m], params.transition[m])
        first[m], pairs[m] = found.first, found.pairs
    return VariationalPosterior(
        best, chains.gamma, chains.scores, first, pairs, n_sweeps, chains.weights, np.where(seen, log_scale, 0.0)
    )


class _Expectation:
    """What the other layers make of each state of one, by the bound that was asked for."""

    def __init__(self, bound: str, e: Emission, table: WordTable | None, log_norm: Floats | None) -> None:
        self.bound = bound
        if bound == "mean_field":
            log_norm = log_normaliser(e) if log_norm is None else log_norm
            self.centre = float(log_norm.mean())  # float32 holds differences better than values
            self.log_norm = (log_norm - self.centre).astype(np.float32)
        else:
            self.table = WordTable.of(e) if table is None else table

    def layer(self, weights: NDArray[np.float32], m: int) -> Floats:
        """c (N, K) of layer m at tokens with these weights (N, M, K)."""
        out = np.empty((len(weights), weights.shape[2]))
        if self.bound == "mean_field":
            expect_log_norm(weights, self.log_norm, m, out)
            return out + self.centre
        _expect(weights, self.table.base, self.table.factors, m, out)
        return out


def _sweep(
    chains: _Chains,
    sentences: NDArray[np.int64],
    tokens: NDArray[np.int64],
    seen: NDArray[np.bool_],
    expectation: _Expectation,
) -> Floats:
    """One turn of every layer; returns the words' part in each token's bound as the last layer leaves it."""
    M, _, K = chains.own.shape
    some, scale = tokens[seen], np.zeros(len(tokens))
    for m in range(M):
        c = expectation.layer(chains.weights[some], m)
        scores, tilt = np.zeros((2, len(tokens), K))
        own = chains.own[m, some]
        if expectation.bound == "tilted":
            others = chains.log_sums[:, some].sum(axis=0) - chains.log_sums[m, some]
            tilt[seen] = -(np.log(c) + others[:, None])
            scores[seen] = own + tilt[seen]
        elif expectation.bound == "jensen":
            scores[seen] = own - c / (chains.gamma[m, some] * c).sum(axis=1, keepdims=True)
        else:
            scores[seen] = own - c
        chains.solve(m, scores, tilt, sentences, tokens)
    total = (chains.weights[some, M - 1] * c).sum(axis=1)
    scale[seen] = -total if expectation.bound == "mean_field" else -np.log(total)
    return scale


def _bounds(chains: _Chains, log_scale: Floats, bound: str) -> Floats:
    """The bound of each sentence right after the last layer's turn, the words' own weights left out.

    In general Σ_m log Z_Q^m + Σ γ (log E − φ) + Σ γ a − Σ_t log Σ_Y …; when φ = log E + a, and the last logarithm is 0
    by the choice of the last a, nothing but the first sum is left.
    """
    total: Floats = chains.likelihood.sum(axis=0)
    if bound != "tilted":
        slack = (chains.gamma * (chains.own - chains.scores)).sum(axis=(0, 2)) + log_scale
        total = total + _sentence_sums(slack, chains.offsets)
    return total


def _sentence_sums(values: Floats, offsets: NDArray[np.int64]) -> Floats:
    sums = np.concatenate(([0.0], np.cumsum(values)))
    out: Floats = sums[offsets[1:]] - sums[offsets[:-1]]
    return out


def expected_by_bound(found: VariationalPosterior, seen: NDArray[np.bool_], table: WordTable, n_words: int) -> Floats:
    """(V, M, K) tokens of each word in each state that the bound expects, to be matched by the counts in the M-step."""
    out = np.zeros(table.factors.shape)
    weights = found.weights[seen]
    scaled = (weights * np.exp(found.log_scale[seen])[:, None, None]).astype(np.float32)
    _count_words(weights, scaled, table.base, table.factors, out)
    return table.in_order(out, n_words)
