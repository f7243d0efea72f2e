"""The factorial HMM's word model: M layers of states that choose a word together.

    p(y | s) = exp(Σ_m θ_{y,m,s_m}) / Z(s),   s = (s_1, …, s_M) one of ∏ K_m joint states

Only differences of θ matter, so it is split (`Emission`) into a weight of each word, B_y = exp Σ_m max_k θ_ymk, and
factors E_ymk = exp(θ_ymk − max_k θ_ymk) in (0, 1]; p(y | s) = B_y Π_m E_{y,m,s_m} / Z(s) with Z from the
same parts. `bounded` keeps every factor above e^{−80/M}, so a product of M of them stays within float32 whatever the
data say.

Layer m has K_m states. Arrays are as wide as the largest layer, K; the states that a smaller layer lacks are its last
ones, with θ = −∞ and probability 0. No loop over joint states visits them: there are ∏ K_m, not K^M.

Joint states are numbered with the last layer fastest, as NumPy reshapes to the sizes. Sums over the vocabulary go in
blocks of words: the layers are cut into two groups, and Z is a product of their (words × joint states) matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.smoothing import check_rows
from undertow.kernels.types import F64

LOG_RANGE = 80.0  # nats between a word's best and worst joint state, at most
LARGEST_THETA = 1e6  # far above the logarithm of any ratio of counts
BLOCK_NUMBERS = 1 << 21  # words × half-tensor held at once: 16 MB of float64
Sizes = tuple[int, ...]  # states of each layer


class FactorialParams(NamedTuple):
    """M hidden chains move independently of each other; together they choose each word.

    s^m_1 ~ initial[m];  s^m_t ~ transition[m, s^m_{t−1}, :];  y_t ~ exp(Σ_m theta[y, m, s^m_t]) / Z(s_t).
    """

    initial: F64  # (M, K); 0 for the states that a smaller layer lacks
    transition: F64  # (M, K, K), rows sum to 1; likewise
    theta: F64  # (V, M, K); −inf for them

    @property
    def n_layers(self) -> int:
        return int(self.theta.shape[1])

    @property
    def n_states(self) -> int:
        """States of the largest layer, which the arrays are as wide as."""
        return int(self.theta.shape[2])

    @property
    def sizes(self) -> Sizes:
        """States of each layer."""
        return sizes_of(self.theta)

    @property
    def n_joint(self) -> int:
        return prod(self.sizes)

    def layer(self, m: int) -> tuple[F64, F64, F64]:
        """Initial (K_m,), transition (K_m, K_m) and θ (V, K_m) of one layer, without the states that it lacks."""
        k = self.sizes[m]
        return self.initial[m, :k], self.transition[m, :k, :k], self.theta[:, m, :k]


def sizes_of(theta: F64) -> Sizes:
    """States of each layer: those that the others lack have the weight −inf."""
    return tuple((theta[0] > -np.inf).sum(axis=1).tolist())


def existing(sizes: Sequence[int]) -> NDArray[np.bool_]:
    """(M, K) whether a layer has a state."""
    mask: NDArray[np.bool_] = np.arange(max(sizes)) < np.array(sizes)[:, None]
    return mask


def widened(values: F64, shape: tuple[int, ...], missing: float = 0.0) -> F64:
    """An array in the corner of a larger one."""
    out = np.full(shape, missing)
    out[tuple(map(slice, values.shape))] = values
    return out


def check_params(p: FactorialParams) -> None:
    """Raise InputError unless initial and transition are distributions and theta is within the range of `bounded`."""
    for m in range(p.n_layers):
        initial, transition, theta = p.layer(m)
        check_rows(initial[None], "initial distribution of the layers")
        check_rows(transition, "transition of the layers")
        if (
            not np.abs(theta).max() <= LARGEST_THETA
            or not np.ptp(theta, axis=1).max() <= 1.001 * LOG_RANGE / p.n_layers
        ):
            raise InputError("the word weights theta are outside the range that a fit can produce.")


class FactorialStats(NamedTuple):
    """Expected counts of some text; those of two texts are added with `plus`."""

    log_likelihood: float  # or the bound on it
    n_tokens: float
    words: F64  # (V, M, K) observed tokens of a word in a state of a layer
    visits: F64  # (∏ K_m,) observed tokens in a joint state: exact inference; else (0,)
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
    factors: F64  # (V, M, K) E_ymk; 0 for the states that a smaller layer lacks
    sizes: Sizes

    @property
    def n_joint(self) -> int:
        return prod(self.sizes)


def bounded(theta: F64) -> F64:
    """θ with mean 0 over the words, and a word's values within a layer at most LOG_RANGE / M below its largest."""
    exists = existing(sizes_of(theta))
    theta = theta - np.where(exists, theta.mean(axis=0), 0.0)
    theta = np.maximum(theta, theta.max(axis=2, keepdims=True) - LOG_RANGE / theta.shape[1])
    theta[:, ~exists] = -np.inf
    return theta


def emission(theta: F64) -> Emission:
    """Split θ; constants that all words share are dropped, as Z(s) would cancel them."""
    best = theta.max(axis=2)
    log_base = best.sum(axis=1)
    return Emission(log_base - log_base.max(), np.exp(theta - best[:, :, None]), sizes_of(theta))


def joint_factors(factors: F64, sizes: Sequence[int]) -> F64:
    """Outer products of the layers of each word: (n, m, K) → (n, ∏ K_m), the last layer fastest; (n, 1) for none."""
    out = np.ones((len(factors), 1))
    for m, k in enumerate(sizes):
        out = (out[:, :, None] * factors[:, m, None, :k]).reshape(len(factors), -1)
    return out


def _blocks(n_words: int, width: int, block_numbers: int) -> list[slice]:
    step = max(1, block_numbers // width)
    return [slice(a, min(a + step, n_words)) for a in range(0, n_words, step)]


def log_normalizer(e: Emission, block_numbers: int = BLOCK_NUMBERS) -> F64:
    """(∏ K_m,) log Z(s). Equivalent to `log(Σ_y B_y Π_m E[y, m, s_m])`, in V ∏ K_m multiply-adds and no such array."""
    a = len(e.sizes) // 2
    first, last = e.sizes[:a], e.sizes[a:]
    Z = np.zeros((prod(first), prod(last)))
    for block in _blocks(len(e.factors), max(Z.shape), block_numbers):
        left = joint_factors(e.factors[block, :a], first) * np.exp(e.log_base[block])[:, None]
        Z += left.T @ joint_factors(e.factors[block, a:], last)
    return np.log(Z).reshape(-1)


def expected_words(e: Emission, visits: F64, log_norm: F64, layer: int, block_numbers: int = BLOCK_NUMBERS) -> F64:
    """(V, K_m) expected tokens of each word in each state of a layer, given the visits of the joint states.

    Equivalent to `Σ_{s: s_m = k} visits[s] p(y | s)`.
    """
    V, M, K = len(e.factors), len(e.sizes), e.sizes[layer]
    weight = np.divide(visits, np.exp(log_norm)).reshape(e.sizes)
    weight = np.moveaxis(weight, layer, 0)
    others = [m for m in range(M) if m != layer]
    a = (M - 1) // 2  # the others in two groups, the larger one contracted by a matrix product
    first, last = ([e.sizes[m] for m in group] for group in (others[:a], others[a:]))
    weight = weight.reshape(K * prod(first), prod(last))
    out = np.empty((V, K))
    for block in _blocks(V, max(weight.shape), block_numbers):
        small = joint_factors(e.factors[block][:, others[:a]], first)
        large = joint_factors(e.factors[block][:, others[a:]], last)
        mixed = (large @ weight.T).reshape(len(large), K, prod(first))
        out[block] = np.einsum("vka,va->vk", mixed, small) * e.factors[block, layer, :K]
        out[block] *= np.exp(e.log_base[block])[:, None]
    return out
