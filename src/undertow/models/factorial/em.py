"""EM for the factorial HMM: expected counts of a shard of sentences, and the parameters that fit counts best.

θ's update is closed for one layer at a time. In every joint state just one state of a layer is active, so iterative
scaling makes a whole step, θ_ymk += log(observed_ymk / expected_ymk), and never lowers the expected log-likelihood.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.factorial.exact import exact_posterior
from undertow.kernels.factorial.mean_field import joint_visits
from undertow.kernels.factorial.variational import (
    VariationalPosterior,
    WordTable,
    expected_by_bound,
    variational_posterior,
)
from undertow.kernels.factorial.words import (
    Emission,
    FactorialParams,
    FactorialStats,
    Floats,
    bounded,
    emission,
    expected_words,
    log_normaliser,
)

FLOOR = 1e-10  # tokens: what a word without any is taken for where nothing smooths
LEAST = 1e-8  # no transition or initial probability falls below this, so that none is lost for good

Shard = tuple[NDArray[Any], NDArray[np.int64]]  # flat ids, offsets


class InferenceSettings(NamedTuple):
    """How posteriors are found."""

    exact: bool
    bound: str = "tilted"
    max_sweeps: int = 10
    tol: float = 1e-3

    @property
    def tabulates(self) -> bool:
        """Whether it needs log Z of all joint states; otherwise it sums over the words."""
        return self.exact or self.bound == "mean_field"


class FactorialInference:
    """Parameters with the tables that inference reads. It travels to workers as its parameters alone."""

    def __init__(self, params: FactorialParams, settings: InferenceSettings, log_norm: Floats | None = None) -> None:
        self.params, self.settings = params, settings
        self.emission: Emission = emission(params.theta)
        self.table: WordTable | None = None
        self.log_norm = log_norm
        if settings.tabulates and log_norm is None:
            self.log_norm = log_normaliser(self.emission)
        if not settings.tabulates:
            self.table = WordTable.of(self.emission)

    def __reduce__(self) -> Any:
        return FactorialInference, (self.params, self.settings, self.log_norm)

    def __call__(self, shard: Shard) -> FactorialStats:
        """Expected counts of a shard, every word observed."""
        ids, offsets = shard
        V = len(self.params.theta)
        if self.settings.exact:
            found = self.exact(ids, offsets)
            words = count_words(ids, found.gamma, V)
            return FactorialStats(
                float(found.log_likelihood.sum()), float(len(ids)), words, found.visits, np.empty((0, 0, 0)),
                found.first, found.pairs,
            )  # fmt: skip
        chains = self.chains(ids, offsets)
        gamma = np.ascontiguousarray(chains.gamma.transpose(1, 0, 2), dtype=np.float32)
        visits, rest = np.empty(0), np.empty((0, 0, 0))
        if self.settings.bound == "mean_field":
            visits = joint_visits(gamma)
        else:
            assert self.table is not None
            seen = np.ones(len(ids), dtype=bool)
            # over e^θ: so the counts of mini-batches, expected under different θ, can be averaged
            rest = expected_by_bound(chains, seen, self.table, V) * np.exp(-self.params.theta)
        return FactorialStats(
            float(chains.bound.sum()),
            float(len(ids)),
            count_words(ids, gamma, V),
            visits,
            rest,
            chains.first,
            chains.pairs,
        )

    def exact(self, ids: Any, offsets: Any, missing: Any = None, *, backward: bool = True) -> Any:
        assert self.log_norm is not None
        return exact_posterior(ids, offsets, missing, self.params, self.emission, self.log_norm, backward=backward)

    def chains(self, ids: Any, offsets: Any, missing: Any = None) -> VariationalPosterior:
        return variational_posterior(
            ids, offsets, missing, self.params, self.emission, self.table, self.log_norm,
            bound=self.settings.bound, max_sweeps=self.settings.max_sweeps, tol=self.settings.tol,
        )  # fmt: skip


def count_words(ids: NDArray[Any], gamma: NDArray[Any], n_words: int) -> Floats:
    """(V, M, K) sums of the posteriors (N, M, K) of each word's tokens. Equivalent to `np.add.at(out, ids, gamma)`."""
    _, M, K = gamma.shape
    out = np.zeros((n_words, M * K))
    order = np.argsort(ids, kind="stable")
    sorted_ids = np.asarray(ids)[order]
    if len(ids):
        starts = np.flatnonzero(np.concatenate(([True], sorted_ids[1:] != sorted_ids[:-1])))
        out[sorted_ids[starts]] = np.add.reduceat(gamma.reshape(len(ids), -1)[order], starts, axis=0, dtype=np.float64)
    return out.reshape(n_words, M, K)


# --- M-step ---------------------------------------------------------------------------------------------


def m_step(
    stats: FactorialStats, params: FactorialParams, *, smoothing: float = 0.0, n_passes: int = 2
) -> FactorialParams:
    """Parameters from expected counts: the chains in closed form, θ by iterative scaling."""
    initial, transition = _normalised(stats.first), _normalised(stats.pairs)
    if not len(stats.visits):
        theta = scale_by_bound(stats, params.theta, smoothing)
    else:
        theta = scale_layers(stats.words, stats.visits, params.theta, smoothing, n_passes)
    return FactorialParams(initial, transition, theta)


def _normalised(counts: Floats) -> Floats:
    """Rows as probabilities, none below LEAST; a row without counts is uniform."""
    total = counts.sum(axis=-1, keepdims=True)
    p = np.divide(counts, total, out=np.full_like(counts, 1.0 / counts.shape[-1]), where=total > 0)
    p = np.maximum(p, LEAST)
    out: Floats = p / p.sum(axis=-1, keepdims=True)
    return out


def smoothed(words: Floats, visits: Floats, smoothing: float) -> tuple[Floats, Floats]:
    """Counts with every word seen `smoothing` more times, in all joint states alike: a prior on p(y | s)."""
    V, _, K = words.shape
    return words + smoothing / K, visits + smoothing * V / len(visits)


def scale_layers(words: Floats, visits: Floats, theta: Floats, smoothing: float, n_passes: int) -> Floats:
    """Iterative scaling, a whole step for one layer after the other; the smoothed objective never falls."""
    words, visits = smoothed(words, visits, smoothing)
    theta = theta.copy()
    for _ in range(n_passes):
        for m in range(theta.shape[1]):
            e = emission(theta)
            expected = expected_words(e, visits, log_normaliser(e), m)
            theta[:, m] += np.log(np.maximum(words[:, m], FLOOR)) - np.log(np.maximum(expected, FLOOR * 1e-10))
            theta = bounded(theta)
    return theta


def scale_by_bound(stats: FactorialStats, theta: Floats, smoothing: float) -> Floats:
    """Iterative scaling of all layers at once by 1/M of a step, against what the bound expects; it never falls.

    Another layer's step would need the text again: the bound has no table of joint states to ask instead.
    """
    M, K = theta.shape[1:]
    expected = np.exp(theta) * stats.rest
    extra = max(smoothing / K, FLOOR)
    return bounded(theta + (np.log(stats.words + extra) - np.log(expected + extra)) / M)
