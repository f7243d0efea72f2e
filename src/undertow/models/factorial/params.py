"""Inference in a factorial HMM with given parameters: expected counts, posteriors and likelihoods of a shard of text.

The parameters themselves are `kernels.factorial.words.FactorialParams`.
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
    emission,
    log_normaliser,
)

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
