"""Diagnostics of an HMM from its dense matrices, formula by formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def entropy(p: Any) -> float:
    return -sum(float(x) * math.log(float(x)) for x in p if x > 0)


def mean_row_entropy(rows: Any, shares: Any) -> float:
    return sum(float(s) * entropy(row) for s, row in zip(shares, rows, strict=True))


def effective_rank(matrix: Any) -> float:
    values = np.linalg.svd(np.asarray(matrix, dtype=np.float64), compute_uv=False)
    return math.exp(entropy(values / values.sum()))


def stationary(transition: Any) -> Any:
    """The left eigenvector with eigenvalue one."""
    Z = len(transition)
    equations = np.vstack([np.asarray(transition, dtype=np.float64).T - np.eye(Z), np.ones(Z)])
    return np.linalg.lstsq(equations, np.append(np.zeros(Z), 1), rcond=None)[0]
