"""From expected counts to probabilities: the M-step of everything that is a table of distributions.

The prior is a Dirichlet distribution, given by a strength in pseudo-counts per row and its mean; the estimate is the
posterior mean. A row without counts becomes the prior mean and never NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError

SUM_TOLERANCE = 1e-4  # float32 tables keep their sums to about 1e-7; this is for files written by others


def smoothed_rows(
    counts: NDArray[Any], strength: float = 0.0, mean: NDArray[Any] | None = None, dtype: Any = np.float32
) -> NDArray[Any]:
    """(counts + strength · mean) / its sum, for each row; mean is one distribution, one a row, or None for uniform."""
    counts = np.asarray(counts, dtype=np.float64)
    prior: Any = 1.0 / counts.shape[1] if mean is None else np.asarray(mean, dtype=np.float64)
    totals = counts.sum(axis=1, keepdims=True)
    out = counts + strength * prior if strength else counts.copy()
    out /= np.where(totals + strength > 0, totals + strength, 1.0)
    if strength == 0 and not (totals > 0).all():
        empty = totals[:, 0] <= 0
        out[empty] = np.broadcast_to(prior, out.shape)[empty]
    return out.astype(dtype, copy=False)


def smoothed_columns(
    counts: NDArray[Any], strength: float = 0.0, mean: NDArray[Any] | None = None, dtype: Any = np.float32
) -> NDArray[Any]:
    """The same down the columns of (V, Z) counts; mean is one distribution over V. Works on blocks of rows."""
    counts = np.asarray(counts)
    totals = counts.sum(axis=0, dtype=np.float64)
    prior = np.full(len(counts), 1.0 / len(counts)) if mean is None else np.asarray(mean, dtype=np.float64)
    scale = np.divide(1.0, totals + strength, out=np.zeros_like(totals), where=totals + strength > 0)
    pull = np.where(totals + strength > 0, strength * scale, 1.0)
    out = np.empty(counts.shape, dtype=dtype)
    for start in range(0, len(counts), 256):  # a float64 copy of the whole table may not fit
        some = slice(start, start + 256)
        out[some] = counts[some] * scale + prior[some, None] * pull
    return out


def smoothed_emission(counts: NDArray[Any], strength: float, word_counts: NDArray[Any], unseen: float) -> NDArray[Any]:
    """(V, Z) p(word | state), float32: smoothed towards the word frequencies, with probability `unseen` kept for words
    that are not in the text, which all states emit alike.
    """
    seen = word_counts > 0
    mean = word_counts / max(float(word_counts.sum()), 1.0)
    emission = smoothed_columns(counts, strength, mean, dtype=np.float32)
    emission *= np.float32(1 - unseen)
    emission[~seen] = unseen / max(int((~seen).sum()), 1)
    return emission


def unseen_mass(word_counts: NDArray[Any], smoothing: float) -> float:
    """Total probability of the words that are not in the text, by Good and Turing: n_once / (n_tokens + n_once)."""
    if smoothing <= 0 or (word_counts > 0).all():
        return 0.0
    once = max(int((word_counts == 1).sum()), 1)
    return once / (float(word_counts.sum()) + once)


def check_rows(table: NDArray[Any], what: str, axis: int = 1) -> None:
    """Raise InputError unless every row (axis 1) or column (axis 0) is a distribution; the sums are printed."""
    table = np.asarray(table)
    if not np.issubdtype(table.dtype, np.floating):
        raise InputError(f"the {what} must be floating-point numbers, not {table.dtype}.")
    sums = table.sum(axis=axis, dtype=np.float64)
    lowest = float(table.min(initial=0.0))
    if not lowest >= 0:  # NaN too
        raise InputError(f"the {what} holds a negative number or NaN; probabilities lie between 0 and 1.")
    check_sums(sums, what)


def check_sums(sums: NDArray[Any], what: str) -> None:
    sums = np.atleast_1d(sums)
    wrong = np.flatnonzero(~(np.abs(sums - 1) <= SUM_TOLERANCE))
    if len(wrong):
        shown = ", ".join(f"{i}: {sums[i]:.6g}" for i in wrong[:5]) + (", …" if len(wrong) > 5 else "")
        raise InputError(f"{len(wrong)} of {len(sums)} rows of the {what} do not sum to one ({shown}): normalize them.")
