"""The factorial HMM's word model: M layers of K states that choose a word together.

    p(y | s) = exp(Σ_m θ_{y,m,s_m}) / Z(s),   s = (s_1, …, s_M) one of K^M joint states

Only differences of θ matter, so it is split (`Emission`) into a weight of each word, B_y = exp Σ_m max_k θ_ymk, and
factors E_ymk = exp(θ_ymk − max_k θ_ymk) in (0, 1]; p(y | s) = B_y Π_m E_{y,m,s_m} / Z(s) with Z from the
same parts. `bounded` keeps every factor above e^{−80/M}, so a product of M of them stays within float32 whatever the
data say.

Joint states are numbered with the last layer fastest, as NumPy reshapes (K,)*M. Sums over the vocabulary go in blocks
of words: the layers are cut into two groups, and Z is a product of a (words × K^a) with a (words × K^b) matrix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from undertow.errors import InputError
from undertow.kernels.chain.smoothing import check_rows
from undertow.kernels.types import F64

LOG_RANGE = 80.0  # nats between a word's best and worst joint state, at most
LARGEST_THETA = 1e6  # far above the logarithm of any ratio of counts
BLOCK_NUMBERS = 1 << 21  # words × half-tensor held at once: 16 MB of float64


class FactorialParams(NamedTuple):
    """M hidden chains move independently of each other; together they choose each word.

    s^m_1 ~ initial[m];  s^m_t ~ transition[m, s^m_{t−1}, :];  y_t ~ exp(Σ_m theta[y, m, s^m_t]) / Z(s_t).
    """

    initial: F64  # (M, K)
    transition: F64  # (M, K, K), rows sum to 1
    theta: F64  # (V, M, K)

    @property
    def n_layers(self) -> int:
        return int(self.theta.shape[1])

    @property
    def n_states(self) -> int:
        return int(self.theta.shape[2])

    @property
    def n_joint(self) -> int:
        return int(self.n_states**self.n_layers)


def check_params(p: FactorialParams) -> None:
    """Raise InputError unless initial and transition are distributions and theta is within the range of `bounded`."""
    check_rows(p.initial, "initial distribution of the layers")
    check_rows(p.transition.reshape(-1, p.n_states), "transition of the layers")
    if (
        not np.abs(p.theta).max() <= LARGEST_THETA
        or not np.ptp(p.theta, axis=2).max() <= 1.001 * LOG_RANGE / p.n_layers
    ):
        raise InputError("the word weights theta are outside the range that a fit can produce.")


class FactorialStats(NamedTuple):
    """Expected counts of some text; those of two texts are added with `plus`."""

    log_likelihood: float  # or the bound on it
    n_tokens: float
    words: F64  # (V, M, K) observed tokens of a word in a state of a layer
    visits: F64  # (K^M,) observed tokens in a joint state: exact inference; else (0,)
    bound_counts: F64  # (V, M, K) tokens expected by the bound, divided by e^θ: variational; else (0, 0, 0)
    first: F64  # (M, K) sentences that begin in a state
    pairs: F64  # (M, K, K) steps from a state to a state

    def plus(self, other: FactorialStats) -> FactorialStats:
        return FactorialStats._make(a + b for a, b in zip(_parts(self), _parts(other), strict=True))

    def scaled(self, factor: float) -> FactorialStats:
        return FactorialStats._make(factor * a for a in _parts(self))


def _parts(stats: FactorialStats) -> tuple[Any, ...]:
    return tuple(stats)


class Emission(NamedTuple):
    """θ split into word weights and factors; see the module's docstring."""

    log_base: F64  # (V,) log B_y, the largest being 0
    factors: F64  # (V, M, K) E_ymk


def bounded(theta: F64) -> F64:
    """θ with mean 0 over the words, and a word's values within a layer at most LOG_RANGE / M below its largest."""
    theta = theta - theta.mean(axis=0)
    out: F64 = np.maximum(theta, theta.max(axis=2, keepdims=True) - LOG_RANGE / theta.shape[1])
    return out


def emission(theta: F64) -> Emission:
    """Split θ; constants that all words share are dropped, as Z(s) would cancel them."""
    best = theta.max(axis=2)
    log_base = best.sum(axis=1)
    return Emission(log_base - log_base.max(), np.exp(theta - best[:, :, None]))


def joint_factors(factors: F64) -> F64:
    """Outer products of the layers of each word: (n, m, K) → (n, K^m), the last layer fastest; (n, 1) for no layer."""
    out = np.ones((len(factors), 1))
    for m in range(factors.shape[1]):
        out = (out[:, :, None] * factors[:, m, None, :]).reshape(len(factors), -1)
    return out


def _blocks(n_words: int, width: int, block_numbers: int) -> list[slice]:
    step = max(1, block_numbers // width)
    return [slice(a, min(a + step, n_words)) for a in range(0, n_words, step)]


def log_normalizer(e: Emission, block_numbers: int = BLOCK_NUMBERS) -> F64:
    """(K^M,) log Z(s). Equivalent to `log(Σ_y B_y Π_m E[y, m, s_m])`, in V K^M multiply-adds and no such array."""
    V, M, K = e.factors.shape
    a = M // 2
    Z = np.zeros((K**a, K ** (M - a)))
    for block in _blocks(V, K ** (M - a), block_numbers):
        left = joint_factors(e.factors[block, :a]) * np.exp(e.log_base[block])[:, None]
        Z += left.T @ joint_factors(e.factors[block, a:])
    return np.log(Z).reshape(-1)


def expected_words(e: Emission, visits: F64, log_norm: F64, layer: int, block_numbers: int = BLOCK_NUMBERS) -> F64:
    """(V, K) expected tokens of each word in each state of a layer, given the visits of the joint states.

    Equivalent to `Σ_{s: s_m = k} visits[s] p(y | s)`.
    """
    V, M, K = e.factors.shape
    weight = np.divide(visits, np.exp(log_norm)).reshape((K,) * M)
    weight = np.moveaxis(weight, layer, 0)
    others = [m for m in range(M) if m != layer]
    a = (M - 1) // 2  # the others in two groups, the larger one contracted by a matrix product
    weight = weight.reshape(K * K**a, K ** (M - 1 - a))
    out = np.empty((V, K))
    for block in _blocks(V, max(K * K**a, K ** (M - 1 - a)), block_numbers):
        small = joint_factors(e.factors[block][:, others[:a]])
        large = joint_factors(e.factors[block][:, others[a:]])
        mixed = (large @ weight.T).reshape(len(large), K, K**a)
        out[block] = np.einsum("vka,va->vk", mixed, small) * e.factors[block, layer]
        out[block] *= np.exp(e.log_base[block])[:, None]
    return out
