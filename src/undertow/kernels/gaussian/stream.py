"""One token at a time: filtered means at once, smoothed ones after a fixed delay."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.types import F32


class ChainStream:
    """The steady-state filter of `smooth`, fed token by token, with a fixed-lag smoother behind it.

    The smoothed mean of token t − d is computed as if token t were the last of its sentence, so a delay of at least
    the sentence's length gives the batch smoother. It costs d products of h×h with a vector a token, and holds d + 1
    vectors.
    """

    def __init__(
        self,
        A: NDArray[Any],
        H: NDArray[Any],
        J: NDArray[Any],
        J_missing: NDArray[Any],
        table: NDArray[Any],
        *,
        delay: int,
    ) -> None:
        if delay < 0:
            raise InputError(f"the delay is a number of tokens and cannot be {delay}.")
        eye = np.eye(len(A))
        self._A, self._H = (np.ascontiguousarray(X, dtype=np.float32) for X in (A, H))
        self._observed, self._missing = (
            (np.ascontiguousarray(G, dtype=np.float32), np.ascontiguousarray(eye - G @ A, dtype=np.float32))
            for G in (J, J_missing)
        )
        self._table = table
        self.delay = delay
        self._m: F32 = np.zeros(len(A), dtype=np.float32)
        self._waiting: deque[tuple[F32, F32, F32]] = deque()  # m_t, P m_t and the J of its kind

    def push(self, token: int | None) -> tuple[F32, F32 | None]:
        """Take the next token (None: missing); the filtered mean of it and the smoothed one of d tokens before."""
        if token is None:
            self._m = self._A @ self._m
        else:
            if not 0 <= token < len(self._table):
                raise InputError(f"id {token} is outside 0..{len(self._table) - 1}; push None for an unknown word.")
            self._m = self._H @ self._m + self._table[token].astype(np.float32)
        J, P = self._missing if token is None else self._observed
        self._waiting.append((self._m, P @ self._m, J))
        smoothed = None
        if len(self._waiting) > self.delay:
            smoothed = self._smoothed()[0]
            self._waiting.popleft()
        return self._m.copy(), smoothed

    def flush(self) -> F32:
        """The sentence is over: the smoothed means of the last tokens, at most d; the stream then starts anew."""
        rows = self._smoothed()
        self._m = np.zeros_like(self._m)
        self._waiting.clear()
        return np.array(rows, dtype=np.float32).reshape(len(rows), len(self._A))

    def _smoothed(self) -> list[F32]:
        """Smoothed means of the waiting tokens, the last of them taken for the end."""
        rows: list[F32] = []
        for m, Pm, J in reversed(self._waiting):
            rows.append(J @ rows[-1] + Pm if rows else m.copy())
        return rows[::-1]
