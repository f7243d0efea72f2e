"""Variational inference in a factorial HMM: one chain per layer, coupled through E log Z.

The posterior is approximated by independent layers; E log Z(s_t), which couples them, is bounded from above.

tilted   E log Z ≤ −Σ_mk γ_mk a_mk + log Σ_Y Π_m Σ_k γ_mk e^{θ_Ymk + a_mk}. The best a_m is −log c_m,
         c_mk = Σ_Y e^{θ_Ymk} Π_{n≠m} Σ_k' γ_nk' e^{θ_Ynk' + a_nk'}; the logarithm is then 0. Exact for one layer.
jensen   E log Z ≤ log E Z: the paper's bound, corrected; the tilted one at a = 0.
mean_field   no bound: E log Z itself, c_mk = E[log Z | s_m = k] from a table of ∏ K_m numbers (`mean_field.py`).

A layer's chain gets the scores φ_tmk = θ_{y_t,mk} − log c_tmk (tilted), θ − c/Σγc (jensen) or θ − c (mean_field), and
is solved before the next layer is updated: then the bound never falls. The scores of a missing word are 0. Right after
the update of a layer the tilted bound of a sentence is the sum of its chains' log-likelihoods (plus the word weights
log B); see `_bounds`.

The sums over the vocabulary are fused (`_expect`): for one tile of tokens × words at a time, the product over the
layers stays in cache, and no array of tokens × words exists. The products of the other layers are computed again for
each layer: M² K multiply-adds per token and word instead of 2MK, but no memory traffic.

Where layers have different sizes, arrays are as wide as the largest, and all numbers of missing states are 0.
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
from undertow.kernels.factorial.words import Emission, FactorialParams, existing, log_normalizer
from undertow.kernels.types import F32, F64, I64

BOUNDS = ("tilted", "jensen", "mean_field")
TILE_TOKENS = 24
TILE_WORDS = 512  # 48 kB of products beside 20 kB of one layer's factors at K = 10


class WordTable(NamedTuple):
    """The emission in float32 in tiles of words, the last padded with words of weight 0."""

    base: F32  # (n_tiles, TILE_WORDS) B_y
    factors: F32  # (n_tiles, M, K, TILE_WORDS) E_ymk
    sizes: I64  # (M,) states of each layer

    @classmethod
    def of(cls, e: Emission) -> WordTable:
        V, M, K = e.factors.shape
        width = min(TILE_WORDS, -(-V // 16) * 16)
        n_tiles = -(-V // width)
        base, factors = np.zeros(n_tiles * width, dtype=np.float32), np.zeros((n_tiles * width, M, K), dtype=np.float32)
        base[:V], factors[:V] = np.exp(e.log_base), e.factors
        tiles = factors.reshape(n_tiles, width, M, K).transpose(0, 2, 3, 1)
        return cls(base.reshape(n_tiles, width), np.ascontiguousarray(tiles), np.array(e.sizes, dtype=np.int64))

    def in_order(self, values: F64, n_words: int) -> F64:
        """(n_tiles, M, K, TILE_WORDS) numbers as (V, M, K)."""
        _, M, K, _ = values.shape
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2).reshape(-1, M, K)[:n_words])


class VariationalPosterior(NamedTuple):
    """Approximate posteriors and expected counts of some sentences."""

    bound: F64  # (n_sentences,) at most the log-likelihood
    gamma: F64  # (M, N, K)
    scores: F64  # (M, N, K) φ: scores of each layer's chain
    first: F64  # (M, K)
    pairs: F64  # (M, K, K)
    n_sweeps: I64  # (n_sentences,)
    weights: F32  # (N, M, K) γ e^a over its sum in k
    log_scale: F64  # (N,) −log Σ_Y B_Y Π_m Σ_k weights E; mean_field: −E log Z


@njit(cache=True, nogil=True)
def _other_layers(
    weights: Any, t: Any, n: Any, base: Any, factors: Any, sizes: Any, tile: Any, layer: Any, product: Any
) -> None:
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
                mix_times(flat_w, w0, M * K, flat_f, x0, width, flat_b, tile * width, 0, flat_p, 0, width, n,
                          sizes[m], n_vec)  # fmt: skip
            else:
                mix_times(flat_w, w0, M * K, flat_f, x0, width, flat_p, 0, width, flat_p, 0, width, n,
                          sizes[m], n_vec)  # fmt: skip
            fresh = False
    if fresh:
        for i in range(n):
            product[i] = base[tile]


@njit(cache=True, nogil=True)
def _expect(weights: Any, base: Any, factors: Any, sizes: Any, layer: Any, out: Any) -> None:
    """c of one layer for tokens with these weights (N, M, K).

    Equivalent to `out[t, k] = Σ_Y base[Y] factors[layer, k, Y] Π_{n≠layer} Σ_k' weights[t, n, k'] factors[n, k', Y]`.
    """
    N, M, widest = weights.shape
    K, row = sizes[layer], M * widest
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
            _other_layers(weights, t, n, base, factors, sizes, tile, layer, product)
            sums[:] = 0
            dots(product.reshape(-1), 0, width, flat_f, (tile * row + layer * widest) * width, width,
                 sums.reshape(-1), 0, K, n, K, 1, 0, n_vec)  # fmt: skip
            for i in range(n):
                for k in range(K):
                    out[t + i, k] += sums[i, k]
    set_control_word(before)


@njit(cache=True, nogil=True)
def _count_words(weights: Any, scaled: Any, base: Any, factors: Any, sizes: Any, out: Any) -> None:
    """Add the tokens of every word and state that are expected by the bound to out.

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
                _other_layers(weights, t, n, base, factors, sizes, tile, m, product)
                mix_add(scaled.reshape(-1), (t * M + m) * K, 1, M * K, product.reshape(-1), 0, width, vector,
                        some.reshape(-1), 0, width, vector, sizes[m], n, n_vec)  # fmt: skip
            for k in range(sizes[m]):
                for y in range(width):
                    out[tile, m, k, y] += some[k, y] * factors[tile, m, k, y]
    set_control_word(before)


class _Chains:
    """Scores and posteriors of each layer's chain, updated until the bound converges."""

    def __init__(self, own: F64, offsets: I64, params: FactorialParams) -> None:
        M, N, K = own.shape
        self.own, self.offsets, self.params = own, offsets, params
        self.scores, self.gamma, self.tilt = np.zeros((3, M, N, K))  # φ, γ, a
        self.likelihood = np.zeros((M, len(offsets) - 1))
        self.weights = np.zeros((N, M, K), dtype=np.float32)  # γ e^a over its sum
        self.log_sums = np.zeros((M, N))  # the logarithm of that sum

    def solve(self, m: int, scores: F64, tilt: F64, sentences: I64, tokens: I64) -> None:
        """Update layer m in these sentences (whose tokens are listed): forward–backward with new scores (n, K_m)."""
        bounds = np.concatenate(([0], np.cumsum(np.diff(self.offsets)[sentences])))
        initial, transition, _ = self.params.layer(m)
        found = forward_backward_logs(scores, bounds, initial, transition)
        k = len(initial)
        for all_of_it, new in ((self.scores, scores), (self.tilt, tilt), (self.gamma, found.gamma)):
            all_of_it[m, tokens, :k] = new
        self.likelihood[m, sentences] = found.log_likelihood
        with np.errstate(divide="ignore"):
            logs = np.log(found.gamma) + tilt
        top = logs.max(axis=1, keepdims=True)
        weights = np.exp(logs - top)
        total = weights.sum(axis=1, keepdims=True)
        self.weights[tokens, m, :k] = weights / total
        self.log_sums[m, tokens] = (top + np.log(total))[:, 0]


def variational_posterior(
    ids: NDArray[Any],
    offsets: I64,
    missing: NDArray[np.bool_] | None,
    params: FactorialParams,
    e: Emission,
    table: WordTable | None = None,
    log_norm: F64 | None = None,
    *,
    bound: str = "tilted",
    max_sweeps: int = 10,
    tol: float = 1e-3,
) -> VariationalPosterior:
    """Update all layers of a sentence until its bound rises by less than `tol` per token, at most max_sweeps times.

    Each sentence stops by itself, so its result does not depend on the other sentences. `table` is for the bounds that
    sum over the words, `log_norm` for mean_field; either is computed if it is not given.
    """
    expectation = _Expectation(bound, e, table, log_norm)
    M, K = params.initial.shape
    N, lengths = len(ids), np.diff(offsets)
    seen = np.ones(N, dtype=bool) if missing is None else ~missing
    with np.errstate(divide="ignore"):  # of states that are missing
        logs = np.log(e.factors[ids])
    own = np.where(seen[:, None, None] & existing(e.sizes), logs, 0.0).transpose(1, 0, 2)
    word_weights = _sentence_sums(np.where(seen, e.log_base[ids], 0.0), offsets)
    chains = _Chains(np.ascontiguousarray(own), offsets, params)
    alone = np.einsum("y,ymk->mk", np.exp(e.log_base), e.factors)  # Z of each layer by itself
    non_empty, all_tokens = np.flatnonzero(lengths > 0), np.arange(N)
    for m, k in enumerate(e.sizes):
        a = np.where(seen[:, None], -np.log(alone[m, :k]), 0.0)
        chains.solve(m, own[m, :, :k] + a, a if bound == "tilted" else np.zeros((N, k)), non_empty, all_tokens)
    best = np.full(len(lengths), -np.inf)
    best[lengths == 0] = 0.0
    log_scale, n_sweeps = np.zeros(N), np.zeros(len(lengths), dtype=np.int64)
    active = non_empty
    for _ in range(max_sweeps):
        if not len(active):
            break
        tokens = all_tokens[np.repeat(np.isin(np.arange(len(lengths)), active), lengths)]
        log_scale[tokens] = _sweep(chains, active, tokens, seen[tokens], expectation)
        n_sweeps[active] += 1
        now = word_weights[active] + _bounds(chains, log_scale, bound)[active]
        gain = now - best[active]
        best[active] = now
        active = active[gain > tol * lengths[active]]
    first, pairs = np.zeros((M, K)), np.zeros((M, K, K))
    for m, k in enumerate(e.sizes):
        initial, transition, _ = params.layer(m)
        found = forward_backward_logs(chains.scores[m, :, :k], offsets, initial, transition)
        first[m, :k], pairs[m, :k, :k] = found.first, found.pairs
    return VariationalPosterior(
        best, chains.gamma, chains.scores, first, pairs, n_sweeps, chains.weights, np.where(seen, log_scale, 0.0)
    )


class _Expectation:
    """c of one layer given the others, for the chosen bound."""

    def __init__(self, bound: str, e: Emission, table: WordTable | None, log_norm: F64 | None) -> None:
        self.bound, self.sizes = bound, np.array(e.sizes, dtype=np.int64)
        if bound == "mean_field":
            log_norm = log_normalizer(e) if log_norm is None else log_norm
            self.centre = float(log_norm.mean())  # float32 is more precise near 0
            self.log_norm = (log_norm - self.centre).astype(np.float32)
        else:
            self.table = WordTable.of(e) if table is None else table

    def layer(self, weights: F32, m: int) -> F64:
        """c (N, K_m) of layer m at tokens with these weights (N, M, K)."""
        out = np.empty((len(weights), self.sizes[m]))
        if self.bound == "mean_field":
            expect_log_norm(weights, self.sizes, self.log_norm, m, out)
            return out + self.centre
        _expect(weights, self.table.base, self.table.factors, self.sizes, m, out)
        return out


def _sweep(
    chains: _Chains,
    sentences: I64,
    tokens: I64,
    seen: NDArray[np.bool_],
    expectation: _Expectation,
) -> F64:
    """Update every layer once; returns each token's `log_scale` after the last layer."""
    M = len(chains.own)
    some, scale = tokens[seen], np.zeros(len(tokens))
    for m in range(M):
        c = expectation.layer(chains.weights[some], m)
        k = c.shape[1]
        scores, tilt = np.zeros((2, len(tokens), k))
        own = chains.own[m, some, :k]
        if expectation.bound == "tilted":
            others = chains.log_sums[:, some].sum(axis=0) - chains.log_sums[m, some]
            tilt[seen] = -(np.log(c) + others[:, None])
            scores[seen] = own + tilt[seen]
        elif expectation.bound == "jensen":
            scores[seen] = own - c / (chains.gamma[m, some, :k] * c).sum(axis=1, keepdims=True)
        else:
            scores[seen] = own - c
        chains.solve(m, scores, tilt, sentences, tokens)
    total = (chains.weights[some, M - 1, :k] * c).sum(axis=1)
    scale[seen] = -total if expectation.bound == "mean_field" else -np.log(total)
    return scale


def _bounds(chains: _Chains, log_scale: F64, bound: str) -> F64:
    """The bound of each sentence right after the update of the last layer, without the word weights log B.

    In general Σ_m log Z_Q^m + Σ γ (log E − φ) + Σ γ a − Σ_t log Σ_Y …; for the tilted bound φ = log E + a, and the last
    logarithm is 0 by the choice of the last a, so that only the first sum is left.
    """
    total: F64 = chains.likelihood.sum(axis=0)
    if bound != "tilted":
        slack = (chains.gamma * (chains.own - chains.scores)).sum(axis=(0, 2)) + log_scale
        total = total + _sentence_sums(slack, chains.offsets)
    return total


def _sentence_sums(values: F64, offsets: I64) -> F64:
    sums = np.concatenate(([0.0], np.cumsum(values)))
    out: F64 = sums[offsets[1:]] - sums[offsets[:-1]]
    return out


def expected_by_bound(found: VariationalPosterior, seen: NDArray[np.bool_], table: WordTable, n_words: int) -> F64:
    """(V, M, K) tokens of each word in each state that the bound expects; the M-step fits them to the counts."""
    out = np.zeros(table.factors.shape)
    weights = found.weights[seen]
    scaled = (weights * np.exp(found.log_scale[seen])[:, None, None]).astype(np.float32)
    _count_words(weights, scaled, table.base, table.factors, table.sizes, out)
    return table.in_order(out, n_words)
