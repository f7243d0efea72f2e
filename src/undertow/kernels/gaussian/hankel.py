"""The block Hankel matrix of lagged moments and its leading singular vectors (lds.md §5).

Block (i, j) is Ψ_{r+i−j}. It is applied through the lag operator and never formed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.gaussian.linalg import RANK_TOLERANCE, gram, orthonormal
from undertow.kernels.gaussian.moments import LagOperator
from undertow.kernels.types import F64


class HankelSVD(NamedTuple):
    """Leading singular triplets of the block Hankel matrix; block i of `left` is left[i]."""

    left: NDArray[Any]  # (r, V, h)
    values: F64  # (h,)
    right: NDArray[Any]  # (r, V, h)


def apply_hankel(operator: LagOperator, X: NDArray[Any], *, transposed: bool = False) -> NDArray[Any]:
    """The block Hankel matrix times X, or its transpose times X; blocks are stacked, (r, V, n) → (r, V, n).

    Block (i, j) is Ψ_{r+i−j}. Each Ψ_k is applied once, to all the blocks that meet it side by side, so that the sparse
    matrices are read once a pass and not r² times.
    """
    r, _, n = X.shape
    out = np.zeros_like(X)
    for k in range(1, 2 * r):
        pairs = [(i, r + i - k) for i in range(r) if 0 <= r + i - k < r]
        if transposed:
            wide = operator.backward(k, np.concatenate([X[i] for i, _ in pairs], axis=1))
        else:
            wide = operator.forward(k, np.concatenate([X[j] for _, j in pairs], axis=1))
        for place, (i, j) in enumerate(pairs):
            out[j if transposed else i] += wide[:, place * n : (place + 1) * n]
    return out


def hankel_svd(
    operator: LagOperator,
    h: int,
    draw: Callable[[tuple[int, ...]], NDArray[Any]],
    *,
    r: int,
    oversample: int = 10,
    n_power: int = 1,
) -> HankelSVD:
    """Randomized block-Krylov SVD: the blocks of every pass stay in the basis, so one power step already suffices.

    `draw(shape)` gives standard normal numbers, such as `rng.standard_normal`.
    """
    V = operator.n_rows
    b = min(h + oversample, operator.dimension, V)
    block = draw((r, V, b)).astype(operator.dtype)
    flat = orthonormal(stacked(apply_hankel(operator, block)))
    if flat.shape[1] < h:
        # a text of fewer states than were asked for: the others begin as faint random directions
        flat = np.concatenate([flat, orthonormal(stacked(block[..., : h - flat.shape[1]]), against=[flat])], axis=1)
    left, images = [flat], []
    for step in range(n_power + 1):
        images.append(stacked(apply_hankel(operator, flat.reshape(r, V, -1), transposed=True)))
        if step == n_power:
            break
        turned = orthonormal(images[-1])
        flat = orthonormal(stacked(apply_hankel(operator, turned.reshape(r, V, -1))), against=left)
        if flat.shape[1] == 0:
            break
        left.append(flat)
    basis, image = np.concatenate(left, axis=1), np.concatenate(images, axis=1)
    # H ≈ basis image', so the SVD of the narrow image is the rest
    squares, turn = np.linalg.eigh(gram(image))
    values = np.sqrt(np.maximum(squares[::-1][:h], 0))
    if not values[0] > 64 * np.finfo(operator.dtype).eps:
        raise InputError("Every word of the text is independent of its neighbors, so there are no states to find.")
    turn = turn[:, ::-1][:, :h]
    right = image @ (turn / np.maximum(values, RANK_TOLERANCE * values[0])).astype(image.dtype)
    return HankelSVD((basis @ turn.astype(basis.dtype)).reshape(r, V, h), values, right.reshape(r, V, h))


def stacked(X: NDArray[Any]) -> NDArray[Any]:
    """(r, V, n) blocks as one (r·V, n) matrix."""
    return X.reshape(-1, X.shape[-1])
