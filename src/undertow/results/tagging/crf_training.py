"""How the weights of a CRF are found: L-BFGS over all sentences, or mini-batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from undertow.errors import InputError, short
from undertow.kernels.chain.crf import (
    I32,
    Pairs,
    Problem,
    Weights,
    add_loss_and_gradient,
    loss_and_gradient,
    take,
    with_listed_pairs,
)
from undertow.kernels.lanes import Buffers, equal_runs
from undertow.kernels.lbfgs import Descent, descend, start_descent
from undertow.kernels.types import F32, F64, I64
from undertow.models.constraints import is_number
from undertow.models.fitting import Iteration
from undertow.results.tagging.joined_attributes import Joined, joined

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
    few: Joined | None = None
    if penalty.l1 == 0 and penalty.centre is None and not start.any():
        fewer, groups = joined(problem)
        if resume_from is None or len(resume_from[0].x) == fewer.n_weights():  # else it began before they were joined
            problem, few, start = fewer, groups, np.zeros(fewer.n_weights())
        del fewer
    function = partial(smooth_objective, with_listed_pairs(problem), penalty, n_threads)
    if resume_from is not None:
        begin, values = resume_from
    else:
        begin = start_descent(function, start, penalty.l1)
        values = [begin.value]
        check_value(begin.value)
    n_done = len(values) - 1
    for state in descend(function, begin, penalty.l1):
        values.append(state.value)
        check_value(state.value)
        n_done += 1
        yield Iteration(-state.value, _whole(few, state.x), state=partial(_snapshot, state, values))
        if n_done >= n_iter or (n_done >= PERIOD and values[-1 - PERIOD] - values[-1] < tol * abs(values[-1])):
            return
    if n_done == 0:
        yield Iteration(-values[0], _whole(few, begin.x))


def _whole(few: Joined | None, flat: F64) -> F64:
    """The weights of all attributes, joined ones or not."""
    return flat if few is None else few.expanded(flat)


def _snapshot(state: Descent, values: list[float]) -> tuple[Descent, list[float]]:
    return state, list(values)


def check_value(value: float) -> None:
    if not np.isfinite(value):
        raise InputError("CRFTagger: the likelihood is not finite: the numbers of the features are too large.")


class BatchState(NamedTuple):
    """Where mini-batch training is after a pass."""

    n_done: int
    x: F64
    squares: F64  # Σ gradient² of each weight
    random: Any  # of the generator


def minibatch(
    problem: Problem,
    penalty: Penalty,
    start: F64,
    n_iter: int,
    batch_size: int,
    learning_rate: float,
    rng: np.random.Generator,
    resume_from: BatchState | None = None,
) -> Iterator[Iteration[F64]]:
    """Passes of AdaGrad, whose rate falls to 0 at the end; the objective is that of each batch when it was met."""
    filled = np.flatnonzero(np.diff(problem.tokens.bounds))
    n_done, x, squares = 0, start.copy(), np.zeros(len(start))
    if resume_from is not None:
        n_done, x, squares, rng.bit_generator.state = resume_from
    free = np.ones(len(x), dtype=np.bool_)
    free[: len(problem.pairs.free)] = problem.pairs.free
    centre = np.zeros(0) if penalty.centre is None else penalty.centre
    gradient, rounded, buffers = np.zeros(len(x)), x.astype(np.float32), Buffers()
    for i in range(n_done, n_iter):
        order = rng.permutation(filled)
        ends = np.cumsum(np.diff(problem.tokens.bounds)[order])
        edges = equal_runs(np.concatenate(([0], ends)), -(-int(ends[-1]) // batch_size))
        loss = 0.0
        for b in range(len(edges) - 1):
            some = take(problem, order[edges[b] : edges[b + 1]])
            loss += add_loss_and_gradient(
                some,
                problem.split(rounded),
                0,
                len(some.weight),
                gradient,
                buffers,
            )
            share = (edges[b + 1] - edges[b]) / len(order)
            rate = learning_rate * (1 - (i + b / (len(edges) - 1)) / n_iter)
            adagrad(x, squares, gradient, free, centre, 2 * penalty.l2 * share, rate, rounded)
        away = x if penalty.centre is None else x - penalty.centre
        value = loss + penalty.l2 * float(away @ away)
        check_value(value)
        now = BatchState(i + 1, x.copy(), squares, rng.bit_generator.state)
        yield Iteration(-value, now.x, state=partial(_same, now))


def _same(state: BatchState) -> BatchState:
    return state


@njit(cache=True, nogil=True)
def adagrad(
    x: Any, squares: Any, gradient: Any, free: Any, centre: Any, decay: float, rate: float, rounded: Any
) -> None:
    """One step of AdaGrad for all weights that are free; the gradient becomes 0, and `rounded` the new weights."""
    for i in range(len(x)):
        if free[i]:
            g = gradient[i] + decay * (x[i] - centre[i] if len(centre) else x[i])
            squares[i] += g * g
            if squares[i] > 0.0:
                x[i] -= rate * g / np.sqrt(squares[i])
            rounded[i] = x[i]
        gradient[i] = 0.0


def sentence_weights(class_weight: Any, gold: I32, bounds: I64, labels: list[str]) -> F64:
    """The weight of each sentence: the mean of the weights of its tags, 1 for an empty one.

    Parameters
    ----------
    class_weight
        None, "balanced" for weights against the frequencies of the tags, or a dict of tag → weight.
    gold, bounds
        Labels of the tokens, and where sentences begin.
    labels
        Names of the labels.

    Returns
    -------
    float64 array
        One for each sentence.
    """
    if class_weight is None:
        return np.ones(len(bounds) - 1)
    if isinstance(class_weight, str):
        counts = np.bincount(gold, minlength=len(labels))
        of_label = len(gold) / (np.count_nonzero(counts) * np.maximum(counts, 1))
    else:
        unknown = sorted(set(class_weight) - set(labels))
        if unknown:
            raise InputError(f"CRFTagger: class_weight has the tag {short(unknown[0])}, which no token has.")
        of_label = np.array([float(class_weight.get(label, 1.0)) for label in labels])
    sums = np.concatenate(([0.0], np.cumsum(of_label[gold])))
    lengths = np.diff(bounds)
    return np.where(lengths > 0, (sums[bounds[1:]] - sums[bounds[:-1]]) / np.maximum(lengths, 1), 1.0)


def check_class_weight(value: Any) -> None:
    """Raise InputError unless it is None, "balanced" or a dict of tag → positive number."""
    if value is None or (isinstance(value, str) and value == "balanced"):
        return
    if not isinstance(value, Mapping) or not all(
        isinstance(k, str) and is_number(v) and 0 < v <= 1e9 for k, v in value.items()
    ):
        raise InputError(
            f'CRFTagger: class_weight={short(value)} must be None, "balanced", or a dict of tag and positive weight.'
        )


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
