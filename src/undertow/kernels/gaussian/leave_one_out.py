"""The state at each token of a linear Gaussian chain given all other tokens of its sentence, all by one smoothing.

A token adds the information Ω = BN, with B = (I − NM)^{-1}, to its state, and B C'w to its information mean (gains.py).
So what all others say is the smoothed distribution with this taken out again:

    V^{-1} − Ω  and  V^{-1} s − B C'w,    that is    s_without = G (s − V B C'w),    G = (I − VΩ)^{-1}.

The smoothed covariances V depend only on which tokens are missing, from the end of a sentence backwards on the edge of
a token in the graph of covariances and on V of the next token. Tokens that agree in both share V and its two matrices.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.gaussian.gains import Gains, distance
from undertow.kernels.gaussian.linalg import symmetrize
from undertow.kernels.gaussian.smoother import GRAPH_FLOATS, covered_sentences, smooth_exact
from undertow.kernels.types import F32, F64

END = -1  # in the place of the next token's covariance, after the last token


class _Place(NamedTuple):
    """A smoothed covariance, and what takes the token at its place out of the mean: `keep` s − `take` C'w."""

    covariance: F64
    keep: F32
    take: F32


def left_out_means(
    ids: NDArray[Any],
    offsets: NDArray[Any],
    missing: NDArray[np.bool_],
    table: NDArray[Any],
    gains: Gains,
    *,
    n_threads: int = 1,
    graph_floats: int = GRAPH_FLOATS,
) -> F32:
    """Smoothed means (T, h) of the state at each token as if this token alone were missing too.

    Equivalent to `smooth_exact` of T copies of the sentences, each with one more token missing. The table has the rows
    C_i/√μ_i. Takes a few products of h×h matrices for each token whose place in the pattern of missing ones is new.
    """
    _, smoothed = smooth_exact(ids, offsets, missing, table, gains, n_threads=n_threads, graph_floats=graph_floats)
    out = smoothed.copy()
    for batch in covered_sentences(ids, offsets, missing, table, gains, graph_floats):
        places = _Places(batch.gains, graph_floats)
        for start, stop in zip(batch.begin.tolist(), (batch.begin + batch.length).tolist(), strict=True):
            places.forget_if_full()
            key = END
            for t in range(stop - 1, start - 1, -1):
                key = places.before(int(batch.kinds[t]), key)
                if not missing[t]:
                    out[t] = places.known[key].keep @ smoothed[t] - places.known[key].take @ table[ids[t]]
    return out


class _Places:
    """Places met so far, each found by the edge of its token and the place of the next token."""

    def __init__(self, gains: Gains, floats: int) -> None:
        self.gains = gains
        self.most = max(1, floats // (16 * len(gains.A) ** 2))  # a quarter of what the gains may take
        self.source = {int(e): node for node, edges in enumerate(gains.edge) for e in edges if e >= 0}
        self.steady_edges = set(gains.edge[gains.steady].tolist())
        self.B: F64 = np.asarray(np.linalg.inv(np.eye(len(gains.N)) - gains.N @ gains.M), dtype=np.float64)
        self.known: list[_Place] = []
        self.found: dict[tuple[int, int], int] = {}

    def forget_if_full(self) -> None:
        if len(self.known) >= self.most:
            self.known, self.found = [], {}

    def before(self, edge: int, following: int) -> int:
        """The place of a token with this edge, before the place of the next token (or END)."""
        if (edge, following) not in self.found:
            V = self._covariance(edge, following)
            # far from both ends of a sentence covariances do not change any more
            if following != END and edge in self.steady_edges and distance(V, self.known[following].covariance) <= 1e-9:
                self.found[edge, following] = following
            else:
                self.found[edge, following] = len(self.known)
                self.known.append(self._place(V))
        return self.found[edge, following]

    def _covariance(self, edge: int, following: int) -> F64:
        g = self.gains
        Sigma = g.predicted[self.source[edge]]
        filtered = Sigma - g.gain[edge].astype(np.float64) @ g.N @ Sigma
        if following == END:
            return symmetrize(filtered)
        J = g.backward[edge].astype(np.float64)
        predicted = g.A @ filtered @ g.A.T + g.Q
        return symmetrize(filtered + J @ (self.known[following].covariance - predicted) @ J.T)

    def _place(self, V: F64) -> _Place:
        VB = V @ self.B
        keep = np.linalg.inv(np.eye(len(V)) - VB @ self.gains.N)
        return _Place(V, keep.astype(np.float32), (keep @ VB).astype(np.float32))
