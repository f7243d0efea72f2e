"""How the weights of a CRF are found: L-BFGS over all sentences, or mini-batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from undertow.errors import InputError
from undertow.kernels.chain.crf import I32, Pairs, Problem, Weights, loss_and_gradient
from undertow.kernels.lbfgs import Descent, descend, start_descent
from undertow.kernels.types import F32, F64, I64
from undertow.models.fitting import Iteration

PERIOD = 10  # L-BFGS stops when the loss has fallen by less than its share `tol` in so many iterations


class CRFWeights(NamedTuple):
    """The weights of a fitted CRF; attributes and labels by their numbers.

    Attributes
    ----------
    start
        (n_attributes + 1,): where the pairs of each attribute begin.
    label
        (n_pairs,): the label of each pair, rising within an attribute.
    sparse
        (n_pairs,): the weights of pairs.
    dense
        (n_numbers, n_labels): the weights of dense numbers.
    transition
        (n_labels, n_labels): from the row's label to the column's.
    """

    start: I64
    label: I32
    sparse: F32
    dense: F32
    transition: F32


class Penalty(NamedTuple):
    """l1 · Σ|w| + l2 · Σ(w − centre)²; the centre is 0 if there is no prior."""

    l1: float
    l2: float
    centre: F64 | None


def smooth_objective(problem: Problem, penalty: Penalty, n_threads: int, flat: F64) -> tuple[float, F64]:
    """Loss with the squared penalty, and its gradient."""
    loss, gradient = loss_and_gradient(problem, flat, n_threads)
    away = flat if penalty.centre is None else flat - penalty.centre
    gradient += 2 * penalty.l2 * away
    return loss + penalty.l2 * float(away @ away), gradient


def lbfgs(
    problem: Problem,
    penalty: Penalty,
    start: F64,
    n_iter: int,
    tol: float,
    n_threads: int,
    resume_from: tuple[Descent, list[float]] | None = None,
) -> Iterator[Iteration[F64]]:
    """Iterations of L-BFGS; if the start is optimal, one that says so."""
    function = partial(smooth_objective, problem, penalty, n_threads)
    if resume_from is not None:
        begin, values = resume_from
    else:
        begin = start_descent(function, start, penalty.l1)
        values = [begin.value]
        _check_value(begin.value)
    n_done = len(values) - 1
    for state in descend(function, begin, penalty.l1):
        values.append(state.value)
        _check_value(state.value)
        n_done += 1
        yield Iteration(-state.value, state.x, state=partial(_snapshot, state, values))
        if n_done >= n_iter or (n_done >= PERIOD and values[-1 - PERIOD] - values[-1] < tol * abs(values[-1])):
            return
    if n_done == 0:
        yield Iteration(-values[0], begin.x)


def _snapshot(state: Descent, values: list[float]) -> tuple[Descent, list[float]]:
    return state, list(values)


def _check_value(value: float) -> None:
    if not np.isfinite(value):
        raise InputError("CRFTagger: the likelihood is not finite: the numbers of the features are too large.")


# --- weights of one tagger for another --------------------------------------------------------------------


def aligned(
    weights: CRFWeights, old_names: Mapping[str, int], old_labels: list[str], problem: Problem,
    names: Mapping[str, int], labels: list[str],
) -> F64:  # fmt: skip
    """The weights of another tagger in the flat order of this problem; 0 where it has none.

    Parameters
    ----------
    weights, old_names, old_labels
        Of the other tagger.
    problem, names, labels
        Of this one.

    Returns
    -------
    float64 array
        As long as the weights of the problem.
    """
    out = np.zeros(problem.n_weights())
    to = problem.split(out)
    if len(weights.dense) != len(to.dense):
        raise InputError(
            f"The earlier tagger reads {len(weights.dense)} numbers a token, and this one {len(to.dense)}: "
            "give it the same features, or start without it."
        )
    where = {label: i for i, label in enumerate(old_labels)}
    old_label = np.array([where.get(label, -1) for label in labels], dtype=np.int64)
    old = np.fromiter((old_names.get(name, -1) for name in names), dtype=np.int64, count=len(names))
    _copy_pairs(weights.start, weights.label, weights.sparse, old, old_label, *problem.pairs, to.sparse)
    known = np.flatnonzero(old_label >= 0)
    to.dense[:, known] = weights.dense[:, old_label[known]]
    to.transition[np.ix_(known, known)] = weights.transition[np.ix_(old_label[known], old_label[known])]
    return out


@njit(cache=True, nogil=True)
def _copy_pairs(
    old_start: Any,
    old_pair: Any,
    old_weight: Any,
    old: Any,
    old_label: Any,
    start: Any,
    label: Any,
    free: Any,
    out: Any,
) -> None:
    for a in range(len(old)):
        if old[a] < 0:
            continue
        for p in range(start[a], start[a + 1]):
            if free[p]:
                for q in range(old_start[old[a]], old_start[old[a] + 1]):
                    if old_pair[q] == old_label[label[p]]:
                        out[p] = old_weight[q]


def kept_pairs(
    weights: CRFWeights, old_names: Mapping[str, int], old_labels: list[str], names: dict[str, int], labels: list[str]
) -> Pairs:
    """The pairs of another tagger over the attributes and labels of this one; `names` grows by what it lacks."""
    order = np.fromiter((names.setdefault(name, len(names)) for name in old_names), np.int64, count=len(old_names))
    where = {label: i for i, label in enumerate(labels)}
    new_label = np.array([where[label] for label in old_labels], dtype=np.int32)
    counts = np.zeros(len(names) + 1, dtype=np.int64)
    counts[order + 1] = np.diff(weights.start)
    start = np.cumsum(counts)
    label = np.empty(start[-1], dtype=np.int32)
    for a, to in enumerate(order.tolist()):
        label[start[to] : start[to + 1]] = new_label[weights.label[weights.start[a] : weights.start[a + 1]]]
    return Pairs(start, label, np.ones(len(label), dtype=np.bool_))


def packed(problem: Problem, flat: F64, names: Mapping[str, int]) -> tuple[CRFWeights, dict[str, int]]:
    """The weights that are not 0 in single precision, and the attributes that have any."""
    found: Weights = problem.split(flat)
    sparse = found.sparse.astype(np.float32)
    stays = sparse != 0
    before = np.concatenate(([0], np.cumsum(stays)))
    start = before[problem.pairs.start].astype(np.int64)
    has_any = np.diff(start) > 0
    kept = {name: i for i, name in enumerate(name for name, a in names.items() if has_any[a])}
    weights = CRFWeights(
        np.concatenate(([0], start[1:][has_any])),
        problem.pairs.label[stays],
        sparse[stays],
        found.dense.astype(np.float32),
        found.transition.astype(np.float32),
    )
    return weights, kept
