"""Small random chains for the tests of everything that has to do with hidden Markov models."""

from __future__ import annotations

import numpy as np

from undertow.kernels.discrete_chain import ChainParams
from undertow.kernels.transitions import Dense, LowRank
from undertow.kernels.transitions_band import BandComplement, BandLowRank, dense_to_band

OPERATORS = ("dense", "low rank", "band", "complement")


def random_operator(kind, Z, F, rng, dtype=np.float64, half_width=2):
    rows = lambda n, m: rng.dirichlet(np.full(m, 0.7), size=n)  # noqa: E731
    if kind == "dense":
        return Dense(rows(Z, Z).astype(dtype))
    if kind == "low rank":
        return LowRank(rows(Z, F).astype(dtype), rows(F, Z).astype(dtype))
    if kind == "band":
        both = rng.random(Z)[:, None]
        band = dense_to_band(rng.random((Z, Z)), half_width)
        band *= (1 - both[:, 0]) / band.sum(axis=0)
        return BandLowRank((both * rows(Z, F)).astype(dtype), rows(F, Z).astype(dtype), band.astype(dtype))
    phi_u, phi_v = rng.gamma(0.7, size=(Z, F)), rng.gamma(0.7, size=(Z, F))
    theta = dense_to_band(rng.gamma(1.0, size=(Z, Z)), half_width)
    return BandComplement.from_features(phi_u.astype(dtype), phi_v.astype(dtype), theta.astype(dtype))


def random_params(kind, Z, F, V, seed, dtype=np.float64, half_width=2):
    rng = np.random.default_rng(seed)
    emission = np.ascontiguousarray(rng.dirichlet(np.full(V, 0.5), size=Z).T)
    initial = rng.dirichlet(np.ones(Z))
    operator = random_operator(kind, Z, F, rng, dtype, half_width)
    return ChainParams(initial.astype(dtype), operator, emission.astype(dtype))


def bounds(lengths):
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


def observations(params, ids):
    """(T, Z) likelihoods; a missing token (−1) is a row of ones."""
    rows = np.ones((len(ids), params.emission.shape[1]))
    seen = np.asarray(ids) >= 0
    rows[seen] = params.emission[np.asarray(ids)[seen]]
    return rows
