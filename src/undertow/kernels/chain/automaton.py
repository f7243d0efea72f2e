"""A discrete chain times a deterministic automaton that reads its words: exact look-ahead, and the best path.

The automaton reads classes of words, so that only sums of emissions matter: e_c(z) = Σ_{w in c} p(w | z). With q the
state of the automaton, z that of the chain and r tokens still to come,

    β_0(q, z) = accepting(q) end(z)
    β_r(q, z) = Σ_z' T(z, z') Σ_c e_c(z') β_{r−1}(step(q, c), z')

is the probability that the rest is accepted (times that of what follows the text, `end`). If the text may end at any
length up to r, accepting(q) end(z) is added at every r. A transition through F features keeps β as F numbers for each
(r, q), from which the Z are made again when they are needed.

Each row (r, q) has its own scale: asking for ten rare words must not underflow. Far from the end of a long text these
rows no longer change, but for their scales: then the rest of the table is the last row, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.block_operators import BlockLowRank, PairSparse
from undertow.kernels.chain.blocks import Blocks
from undertow.kernels.chain.operators import LowRank
from undertow.kernels.chain.viterbi import FeatureScores, LogScores, PairScores, best_step
from undertow.kernels.types import F64, I64

Array = NDArray[Any]
MAX_NUMBERS = 1 << 29  # of the look-ahead tables: 2 GB
FIRST_COMPARED = 16  # rows so far from the end of the text, and twice as far and so on, are compared with those halfway
SETTLED_BY = 1024  # a table that does not fit is refused if its rows still change so far from the end
ROUNDING = 8  # differences of so many units of rounding are none
KEPT_NUMBERS = 1 << 24  # of β of all states, kept where they were needed once: 64 MB


class Product(NamedTuple):
    """A chain and the automaton that its words run through.

    Words of class −1 do not occur at all: where they are possible for the chain, the product has less mass.
    """

    transition: Any  # push and pull
    emitted: Array  # (C, Z)
    step: I64  # (Q, C)
    accepting: NDArray[np.bool_]  # (Q,)
    end: Array  # (Z,) probability of what follows the text given its last state
    any_length: bool = False  # whether the text may end before the last step


class LookAhead(NamedTuple):
    """β for 0 ≤ r < n: rows[r, q] is where the numbers of (r, q) are in values[r], −1 if β is zero or not needed."""

    product: Product
    values: list[Array]
    rows: I64  # (n, Q)
    log_scale: F64  # (n, Q) of the values; −inf where there are none
    branches: dict[int, tuple[I64, I64]]  # by state: those that can follow, and which of them each class leads to
    kept: dict[int, tuple[I64, Array, F64]]  # by r: what `look` said of some states, as long as it is little


# --- look-ahead -----------------------------------------------------------------------------------------


def _halves(T: Any) -> tuple[Callable[[Array], Array], Callable[[Array], Array], int]:
    """A pull as two functions, what is kept between them, and how many numbers that is for a row."""
    if isinstance(T, LowRank):
        return (lambda m: m @ T.ET), (lambda f: f @ T.RT), T.width
    if isinstance(T, BlockLowRank):
        return (lambda m: m @ T.ET), (lambda f: f @ T.R.T), T.R.shape[1]
    return T.pull, (lambda beta: beta), T.n_states


def look_ahead(product: Product, n_steps: int, done: Callable[[int], None] | None = None) -> LookAhead:
    """β for texts of n_steps tokens (at most so many with `any_length`) from the automaton's first state.

    `done` is called with the number of tokens that are done, before each.
    """
    gather, _, width = _halves(product.transition)
    Q = len(product.step)
    reached, alive = _reached(product, n_steps), _alive(product, n_steps)
    needed = reached & alive
    fits = int(needed.sum()) * width <= MAX_NUMBERS
    if not fits and int(needed[:SETTLED_BY].sum()) * width > MAX_NUMBERS:
        raise _too_large(product, n_steps)
    rows = np.full((n_steps, Q), -1, dtype=np.int64)
    log_scale = np.full((n_steps, Q), -np.inf)
    table = LookAhead(product, [], rows, log_scale, {}, {})
    for r in range(n_steps):
        if r == SETTLED_BY and not fits:
            raise _too_large(product, n_steps)
        if done is not None:
            done(r)
        if r == 0:
            table.values.append(np.empty((0, width), dtype=product.emitted.dtype))
            continue
        states = np.flatnonzero(needed[r])
        messages, scales = _messages(table, r - 1, states)
        values = gather(messages)
        largest = values.max(axis=1, initial=0.0)
        kept = largest > 0
        rows[r, states[kept]] = np.arange(int(kept.sum()))
        log_scale[r, states[kept]] = scales[kept] + np.log(largest[kept])
        table.values.append(np.ascontiguousarray(values[kept] / largest[kept, None]))
        if r >= FIRST_COMPARED and r & (r - 1) == 0 and _settled(table, r, needed, alive):
            _repeat(table, r)
            break
    if done is not None:
        done(n_steps)
    return table


def _too_large(product: Product, n_steps: int) -> InputError:
    return InputError(
        f"The look-ahead over {n_steps} words, {len(product.step)} automaton states and "
        f"{product.transition.n_states:,} model states does not fit into 2 GB: ask for fewer words or a simpler "
        "constraint."
    )


def _settled(table: LookAhead, r: int, needed: NDArray[np.bool_], alive: NDArray[np.bool_]) -> bool:
    """Whether β_r is that of r/2 up to one factor, and will be with more tokens to come.

    They are compared at twice the distance, because steps can be smaller than rounding and still lead far.
    """
    if table.product.any_length:
        return False
    half, here = r // 2, needed[r]
    if not (needed[half:r] == here).all() or (needed[r:] & ~here).any() or not (alive[half:] == alive[half]).all():
        return False
    if not (table.rows[half, here] == table.rows[r, here]).all():
        return False
    enough = ROUNDING * float(np.finfo(table.product.emitted.dtype).eps)
    new, old = table.values[r], table.values[half]
    known = table.rows[r] >= 0
    grown = table.log_scale[r, known] - table.log_scale[half, known]
    if len(grown) and np.ptp(grown) > enough:
        return False
    return bool((np.abs(new - old) <= enough * np.maximum(new, old)).all())


def _repeat(table: LookAhead, r: int) -> None:
    """Let β of all tokens further from the end than r be that of r; each one more grows it by the same factor."""
    n, half = len(table.rows), r // 2
    known = table.rows[r] >= 0
    each = (table.log_scale[r, known] - table.log_scale[half, known]) / (r - half)
    table.values.extend([table.values[r]] * (n - 1 - r))
    table.rows[r + 1 :] = table.rows[r]
    table.log_scale[r + 1 :, known] = table.log_scale[r, known] + np.arange(1, n - r)[:, None] * each
    if r - 1 in table.kept:  # what the states are worth, ready for those who ask again and again
        targets, beta, _ = table.kept[r - 1]
        for later in range(r, n):
            table.kept[later] = targets, beta, table.log_scale[later, targets]


def _reached(product: Product, n_steps: int) -> NDArray[np.bool_]:
    """(n, Q) the automaton's states that a text can be in with r tokens to come."""
    step = product.step
    out = np.zeros((n_steps, len(step)), dtype=bool)
    here = np.zeros(len(step), dtype=bool)
    here[0] = True
    possible = product.emitted.any(axis=1)
    for r in range(n_steps - 1, -1, -1):
        after = np.zeros_like(here)
        after[step[here][:, possible].ravel()] = True
        out[r] = here = after
    return out


def _alive(product: Product, n_steps: int) -> NDArray[np.bool_]:
    """(n, Q) the automaton's states from which a text can still be accepted with r tokens to come."""
    step, accepting = product.step, product.accepting
    possible = product.emitted.any(axis=1)
    out = np.zeros((n_steps, len(step)), dtype=bool)
    alive = accepting.copy()
    for r in range(n_steps):
        out[r] = alive
        alive = np.asarray(alive[step[:, possible]].any(axis=1))
        if product.any_length:
            alive |= accepting
    return out


def look(table: LookAhead, r: int, states: NDArray[Any]) -> tuple[Array, F64]:
    """(n, Z) β_r of automaton states, each up to a factor, and the logs of the factors (−inf where β is zero)."""
    product = table.product
    if r in table.kept:
        known, beta, scales = table.kept[r]
        if np.isin(states, known).all():
            place = np.searchsorted(known, states)
            return beta[place], scales[place]
    spread = _halves(product.transition)[1]
    at = table.rows[r, states]
    log_scale = table.log_scale[r, states].copy()
    ends = product.accepting[states] & (r == 0 or product.any_length)
    kept = np.where((at >= 0)[:, None], table.values[r][at], 0) if (at >= 0).any() else None
    if kept is None:
        out = np.zeros((len(states), product.emitted.shape[1]), dtype=product.emitted.dtype)
    else:
        out = spread(np.ascontiguousarray(kept))
    if ends.any():
        out = np.array(out)  # the numbers that are kept may be β itself
        before, log_scale[ends] = log_scale[ends], np.maximum(log_scale[ends], 0.0)
        out[ends] *= np.exp(before - log_scale[ends])[:, None].astype(out.dtype)
        out[ends] += np.exp(-log_scale[ends])[:, None].astype(out.dtype) * product.end
    return out, log_scale


def _messages(table: LookAhead, r: int, states: I64) -> tuple[Array, F64]:
    """(n, Z) Σ_c e_c(z') β_r(step(q, c), z') for some states q, each up to a factor, and the logs of the factors."""
    emitted, step = table.product.emitted, table.product.step
    targets, at = np.unique(step[states], return_inverse=True)
    at = at.reshape(len(states), step.shape[1])
    beta, log_scale = look(table, r, targets)
    if r not in table.kept and (len(table.kept) + 1) * beta.size <= KEPT_NUMBERS:
        table.kept[r] = targets, beta, log_scale
    largest = log_scale[at].max(axis=1, initial=-np.inf)
    out = np.zeros((len(states), emitted.shape[1]), dtype=emitted.dtype)
    for c in range(emitted.shape[0]):
        where = np.flatnonzero(emitted[c])  # a word of a block leaves few states alive
        few = len(where) * 4 < emitted.shape[1]
        for i in range(len(states)):
            if log_scale[at[i, c]] > -np.inf:
                factor = emitted.dtype.type(np.exp(log_scale[at[i, c]] - largest[i]))
                if few:
                    out[i, where] += emitted[c, where] * beta[at[i, c], where] * factor
                else:
                    out[i] += emitted[c] * beta[at[i, c]] * factor
    return out, largest


class NextToken(NamedTuple):
    """What the next token may be: weights (C, Z) of its class and state together, up to a factor.

    successors (n, Z) are the weights of the states alone for each automaton state that can follow: p(z) β(q', z).
    """

    after: I64  # (n,) automaton states that can follow
    successor: I64  # (C,) which of them each class leads to
    successors: Array  # (n, Z), all up to the same factor
    log_scale: float  # its log

    def weights(self, emitted: Array) -> Array:
        """(C, Z) weight of each class and state."""
        return np.asarray(emitted * self.successors[self.successor])


def next_token(table: LookAhead, r: int, state: int, predicted: Array, ahead: tuple[Array, F64, I64]) -> NextToken:
    """The next token's weights, r tokens before the last one, from the predicted distribution (Z,) of its state.

    `ahead` are the rows of `look` for sorted automaton states, among them all successors of `state`.
    """
    beta, log_scale, states = ahead
    if state not in table.branches:
        table.branches[state] = np.unique(table.product.step[state], return_inverse=True)
    after, successor = table.branches[state]
    at = np.searchsorted(states, after)
    largest = float(log_scale[at].max())
    if largest == -np.inf:
        return NextToken(after, successor, np.zeros((len(after), len(predicted)), dtype=beta.dtype), largest)
    factors = np.exp(log_scale[at] - largest).astype(beta.dtype)
    return NextToken(after, successor, predicted * beta[at] * factors[:, None], largest)


def log_acceptance(table: LookAhead, predicted: Array) -> float:
    """Log-probability that the text is accepted (and `end` follows), from the distribution of its first state."""
    messages, log_scale = _messages(table, len(table.rows) - 1, np.zeros(1, dtype=np.int64))
    mass = float(np.dot(messages[0].astype(np.float64), np.asarray(predicted, dtype=np.float64)))
    return float(np.log(mass) + log_scale[0]) if mass > 0 else -np.inf


# --- the most probable path -----------------------------------------------------------------------------


class BestText(NamedTuple):
    """The best path of chain and automaton: class and state of each token, and the joint log-probability."""

    classes: list[int]
    states: list[int]
    log_prob: float


@njit(cache=True, nogil=True)
def _arrive(chain: Any, score: Any, spare: Any, came: Any) -> None:
    """Replace the scores by those of the best way into each state."""
    best_step(chain, 1, score, spare, came, 0)


def _scores(T: Any) -> Any:
    """The transition as a chain of `viterbi` in which all states are alive under both of two tokens."""
    ids, missing = np.zeros(2, dtype=np.uint32), np.array([-1], dtype=np.int32)
    with np.errstate(divide="ignore"):
        nothing = np.zeros(1, dtype=np.float32)
        if isinstance(T, PairSparse):
            return PairScores(ids, Blocks(missing, T.first, np.array([0, 1])), T, nothing, nothing)
        if isinstance(T, BlockLowRank | LowRank):
            first = T.first if isinstance(T, BlockLowRank) else np.array([0, T.n_states])
            R, ET = np.log(np.asarray(T.R, dtype=np.float32)), np.log(np.asarray(T.ET, dtype=np.float32))
            return FeatureScores(ids, Blocks(missing, first, np.array([0, 1])), R, ET, nothing, nothing)
        return LogScores(np.zeros(1), np.log(np.asarray(T.dense(), dtype=np.float64)), np.zeros((1, 1)))


def best_text(
    product: Product,
    best_emitted: Array,
    predicted: Array,
    n_steps: int,
    done: Callable[[int], None] | None = None,
) -> BestText:
    """The accepted text whose joint probability with its states is largest, by Viterbi on pairs (q, z).

    best_emitted (C, Z) is the probability of the most probable word of each class. With a transition through features
    the path includes the features, as everywhere in `viterbi`. −inf and no tokens if no text is accepted.
    """
    chain, step, Z = _scores(product.transition), product.step, len(predicted)
    with np.errstate(divide="ignore"):
        words, end = np.log(best_emitted.astype(np.float64)), np.log(np.asarray(product.end, dtype=np.float64))
        before = np.log(np.asarray(predicted, dtype=np.float64))
    needed = _reached(product, n_steps) & _alive(product, n_steps)
    arrivals = {0: (before, np.zeros(Z, dtype=np.int32))}  # by the automaton's state before the token
    trace: list[dict[int, tuple[I64, I64, Array]]] = []
    best, best_at = -np.inf, (-1, -1, -1)
    for t in range(n_steps):
        if done is not None:
            done(t)
        found: dict[int, tuple[Array, I64, I64, Array]] = {}
        for q, (score, came) in arrivals.items():
            for c in range(len(words)):
                target = int(step[q, c])
                if needed[n_steps - 1 - t, target]:
                    _improve(found, target, score + words[c], q, c, came)
        trace.append({target: (from_q, by, came) for target, (_, from_q, by, came) in found.items()})
        arrivals = {}
        for target, (score, _, _, _) in found.items():
            if product.accepting[target] and (product.any_length or t == n_steps - 1):
                total = score + end
                z = int(np.argmax(total))
                if total[z] > best:
                    best, best_at = float(total[z]), (t, target, z)
            if t < n_steps - 1:
                arrived, came = score.copy(), np.zeros(Z, dtype=np.int32)
                _arrive(chain, arrived, np.empty(Z), came)
                arrivals[target] = (arrived, came)
    return _traced(trace, best, best_at)


def _improve(found: dict[int, Any], target: int, score: Array, q: int, c: int, came: Array) -> None:
    if target not in found:
        Z = len(score)
        found[target] = (score, np.full(Z, q), np.full(Z, c), came.copy())
        return
    old, from_q, by, old_came = found[target]
    better = score > old
    old[better], from_q[better], by[better], old_came[better] = score[better], q, c, came[better]


def _traced(trace: list[dict[int, tuple[I64, I64, Array]]], best: float, at: tuple[int, int, int]) -> BestText:
    t, q, z = at
    classes, states = [], []
    while t >= 0:
        from_q, by, came = trace[t][q]
        classes.append(int(by[z]))
        states.append(z)
        q, z = int(from_q[z]), int(came[z])
        t -= 1
    return BestText(classes[::-1], states[::-1], best)
