"""Inference in a factorial HMM with given parameters: expected counts, posteriors and likelihoods of a shard of text.

The parameters themselves are `kernels.factorial.words.FactorialParams`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.factorial.exact import ExactPosterior, exact_posterior
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
    emission,
    existing,
    log_normalizer,
)
from undertow.kernels.types import F64, I64

Shard = tuple[NDArray[Any], I64]  # flat ids, offsets


class InferenceSettings(NamedTuple):
    """Settings of inference; the fields are those of `FactorialHMM`."""

    exact: bool
    bound: str = "tilted"
    max_sweeps: int = 10
    tol: float = 1e-3

    @property
    def tabulates(self) -> bool:
        """Whether inference needs a table of log Z over the joint states; otherwise it sums over the words."""
        return self.exact or self.bound == "mean_field"


class FactorialInference:
    """Parameters with the tables that inference reads. Only the parameters and log Z are pickled for workers."""

    def __init__(self, params: FactorialParams, settings: InferenceSettings, log_norm: F64 | None = None) -> None:
        self.params, self.settings = params, settings
        self.emission: Emission = emission(params.theta)
        self.table: WordTable | None = None
        self.log_norm = log_norm
        if settings.tabulates and log_norm is None:
            self.log_norm = log_normalizer(self.emission)
        if not settings.tabulates:
            self.table = WordTable.of(self.emission)

    def __reduce__(self) -> Any:
        return FactorialInference, (self.params, self.settings, self.log_norm)

    def __call__(self, shard: Shard) -> FactorialStats:
        """The E-step: expected counts of a shard in which no word is missing."""
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
        visits, bound_counts = np.empty(0), np.empty((0, 0, 0))
        if self.settings.bound == "mean_field":
            visits = joint_visits(gamma, self.emission.sizes)
        else:
            assert self.table is not None
            seen = np.ones(len(ids), dtype=bool)
            # divided by e^θ, so that counts expected under different θ can be added
            theta = np.where(existing(self.emission.sizes), self.params.theta, 0.0)
            bound_counts = expected_by_bound(chains, seen, self.table, V) * np.exp(-theta)
        return FactorialStats(
            float(chains.bound.sum()),
            float(len(ids)),
            count_words(ids, gamma, V),
            visits,
            bound_counts,
            chains.first,
            chains.pairs,
        )

    def exact(
        self, ids: NDArray[Any], offsets: I64, missing: NDArray[np.bool_] | None = None, *, backward: bool = True
    ) -> ExactPosterior:
        """Exact posteriors and expected counts; without `backward` only log-probabilities."""
        assert self.log_norm is not None
        return exact_posterior(ids, offsets, missing, self.params, self.emission, self.log_norm, backward=backward)

    def chains(self, ids: NDArray[Any], offsets: I64, missing: NDArray[np.bool_] | None = None) -> VariationalPosterior:
        """Posteriors and expected counts by the variational bound."""
        return variational_posterior(
            ids, offsets, missing, self.params, self.emission, self.table, self.log_norm,
            bound=self.settings.bound, max_sweeps=self.settings.max_sweeps, tol=self.settings.tol,
        )  # fmt: skip


def count_words(ids: NDArray[Any], gamma: NDArray[Any], n_words: int) -> F64:
    """(V, M, K) posteriors (N, M, K) summed over the tokens of each word: `np.add.at(out, ids, gamma)`."""
    _, M, K = gamma.shape
    out = np.zeros((n_words, M * K))
    order = np.argsort(ids, kind="stable")
    sorted_ids = np.asarray(ids)[order]
    if len(ids):
        starts = np.flatnonzero(np.concatenate(([True], sorted_ids[1:] != sorted_ids[:-1])))
        out[sorted_ids[starts]] = np.add.reduceat(gamma.reshape(len(ids), -1)[order], starts, axis=0, dtype=np.float64)
    return out.reshape(n_words, M, K)
