"""A factorial HMM as the chain of its joint states, where these are few enough to write down."""

from __future__ import annotations

import numpy as np

from undertow.errors import InputError
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.operators import Dense
from undertow.kernels.factorial.words import FactorialParams, emission, joint_factors
from undertow.models.hmm.params import PlainParams
from undertow.questions.lookahead import SMALL_NUMBERS, SMALL_STATES

MOST_STATES = 4096  # their transition takes 64 MB
MOST_NUMBERS = 1 << 25  # and their emission 128 MB


def joint_chain(params: FactorialParams) -> PlainParams:
    """The product of the layers: K^M states numbered with the last layer fastest, any of which emits any word."""
    Z, V = params.n_joint, len(params.theta)
    if Z > MOST_STATES or Z * V > MOST_NUMBERS:
        raise InputError(
            f"FactorialHMM: the exact answer needs a table of {Z:,} joint states by {V:,} words, more than "
            f"{MOST_STATES:,} states or {MOST_NUMBERS:,} numbers: take fewer layers, states or words, or an HMM."
        )
    dtype = np.float64 if Z <= SMALL_STATES and Z * V <= SMALL_NUMBERS else np.float32
    initial, transition = np.ones(1), np.ones((1, 1))
    for first, step in zip(params.initial, params.transition, strict=True):
        initial, transition = np.kron(initial, first), np.kron(transition, step)
    log_base, factors = emission(params.theta)
    words = np.empty((V, Z), dtype=dtype)
    total = np.zeros(Z)
    for some in (slice(a, a + 1024) for a in range(0, V, 1024)):
        rows = joint_factors(factors[some]) * np.exp(log_base[some])[:, None]
        words[some] = rows
        total += rows.sum(axis=0)
    words /= total.astype(dtype)
    return PlainParams(ChainParams(initial.astype(dtype), Dense(transition.astype(dtype)), words))
