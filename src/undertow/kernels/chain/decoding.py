"""The states behind a text: the likeliest path, and the likeliest state of each token.

`viterbi` maximises the probability of a whole path. Of a dense chain that is the path of states, in O(T Z²). A low-rank
step z → f → z' sums over f, and the best path of states alone does not factor; what does, in O(T Z F), is the best
*joint* path z_1 f_1 z_2 f_2 …, features included (or steps along the band). That is another path in general: its
states need not be the likeliest states. `posterior_decode` takes the state of largest posterior at every token, which
makes the fewest wrong states on average (minimum Bayes risk) but may join states that never follow each other.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.band import BandLowRank
from undertow.kernels.chain.batched import ChainParams
from undertow.kernels.chain.inference import check_text, posterior
from undertow.kernels.chain.operators import Dense, LowRank

Array = NDArray[Any]

BACK_BYTES = 1 << 28  # of back pointers, for each thread; longer sentences are gone through twice
GROUP_BYTES = 1 << 28  # of posteriors that are looked at together


class Decoded(NamedTuple):
    """states (N,), −1 in sentences that no path explains; log_prob (n_sentences,) of each best path with its words.

    features (N,): the f through which each token's state was entered, −1 at starts, along the band and in dense chains.
    """

    states: NDArray[np.int32]
    log_prob: NDArray[np.float64]
    features: NDArray[np.int32]


def viterbi(
    ids: Array,
    offsets: Array,
    params: ChainParams,
    *,
    missing: NDArray[np.bool_] | None = None,
    n_threads: int = 1,
) -> Decoded:
    """The likeliest path of each sentence: of states if the chain is dense, of states and features if it has low rank.

    Of equal paths one with low states and features is taken. An empty sentence has log-probability 0.
    """
    ids, offsets = check_text(ids, offsets, params, missing)
    word = ids.astype(np.int64)
    if missing is not None:
        word[missing] = -1
    with np.errstate(divide="ignore"):
        log_initial = np.log(np.asarray(params.initial, dtype=np.float64))
        logs = _log_tables(params.transition)
    states, features = np.full(len(ids), -1, dtype=np.int32), np.full(len(ids), -1, dtype=np.int32)
    log_prob = np.zeros(len(offsets) - 1)

    def one_sentence(i: int) -> None:
        a, b = int(offsets[i]), int(offsets[i + 1])
        if b > a:
            log_prob[i] = _best_path(word[a:b], params.emission, log_initial, logs, states[a:b], features[a:b])

    if n_threads == 1:
        for i in range(len(log_prob)):
            one_sentence(i)
    else:
        with ThreadPoolExecutor(n_threads) as pool:
            for _ in pool.map(one_sentence, range(len(log_prob))):
                pass
    return Decoded(states, log_prob, features)


def posterior_decode(
    ids: Array,
    offsets: Array,
    params: ChainParams,
    *,
    missing: NDArray[np.bool_] | None = None,
    n_threads: int = 1,
) -> NDArray[np.int32]:
    """The state of largest posterior at each token (N,), −1 in impossible sentences; a group of sentences at a time."""
    ids, offsets = check_text(ids, offsets, params, missing)
    out = np.full(len(ids), -1, dtype=np.int32)
    most = max(1, GROUP_BYTES // (len(params.initial) * params.emission.itemsize))
    start = 0
    while start < len(offsets) - 1:
        stop = max(start + 1, int(np.searchsorted(offsets, offsets[start] + most, side="right")) - 1)
        here = slice(int(offsets[start]), int(offsets[stop]))
        marks = None if missing is None else missing[here]
        bounds = offsets[start : stop + 1] - offsets[start]
        gamma = posterior(ids[here], bounds, params, missing=marks, n_threads=n_threads)
        out[here] = np.where(gamma.any(axis=1), gamma.argmax(axis=1), -1)
        start = stop
    return out


class _Logs(NamedTuple):
    """Logs of a dense T in `first` (`second` is empty), or of R and E; of the band, without rows if there is none."""

    first: Array
    second: Array
    band: Array


def _log_tables(operator: Any) -> _Logs:
    nothing = np.zeros((0, operator.n_states))
    if isinstance(operator, Dense):
        return _Logs(np.log(operator.T, dtype=np.float64), nothing, nothing)
    if isinstance(operator, LowRank):
        return _Logs(np.log(operator.R, dtype=np.float64), np.log(operator.E, dtype=np.float64), nothing)
    if isinstance(operator, BandLowRank):
        return _Logs(*(np.log(x, dtype=np.float64) for x in (operator.R, operator.E, operator.band)))
    raise InputError(
        f"no likeliest path is known for {type(operator).__name__}: use posterior decoding, or Dense(operator.dense())."
    )


def _best_path(word: Array, emission: Array, log_initial: Array, logs: _Logs, states: Array, features: Array) -> float:
    """One sentence, forward and back; if its back pointers are too many, in chunks that are computed once more."""
    n_states, width = len(log_initial), len(logs.second)
    chunk = max(1, BACK_BYTES // (4 * (n_states + width)))
    starts = list(range(1, len(word), chunk))
    best = log_initial.copy()
    _observe(best, emission, word[0])
    kept = []
    n_rows = min(chunk, len(word) - 1)
    back, entry = np.empty((n_rows, n_states), dtype=np.int32), np.empty((n_rows, width), dtype=np.int32)
    for start in starts:
        if start != starts[-1]:
            kept.append(best.copy())
        _max_steps(word[start : start + chunk], emission, *logs, best, back, entry)
    state = int(np.argmax(best))
    log_prob = float(best[state])
    if log_prob == -np.inf:
        return log_prob
    states[-1] = state
    for start in reversed(starts):
        stop = min(start + chunk, len(word))
        if start != starts[-1]:
            _max_steps(word[start:stop], emission, *logs, kept.pop(), back, entry)
        _trace(back, entry, start, stop, len(logs.band) // 2, states, features)
    return log_prob


@njit(cache=True, nogil=True)
def _observe(best: Any, emission: Any, word: Any) -> None:
    if word >= 0:
        for z in range(len(best)):
            best[z] += np.log(np.float64(emission[word, z]))


@njit(cache=True, nogil=True)
def _max_product(best: Any, table: Any, out: Any, argument: Any) -> None:
    """Equivalent to `out = (best[:, None] + table).max(0)`, and its argmax."""
    out[:] = -np.inf
    argument[:] = 0
    for i in range(len(best)):
        b, row = best[i], table[i]
        if b > -np.inf:
            for j in range(len(out)):
                score = b + row[j]
                better = score > out[j]
                out[j] = score if better else out[j]
                argument[j] = i if better else argument[j]


@njit(cache=True, nogil=True)
def _max_steps(words: Any, emission: Any, first: Any, second: Any, band: Any, best: Any, back: Any, entry: Any) -> None:
    """Step after step from best, which is overwritten; back gets what each state was best entered from.

    That is a state if the chain is dense, else a feature, whose own best state goes to entry, or −1 − d for diagonal d.
    """
    Z, F = len(best), len(second)
    waist, out = np.empty(F), np.empty(Z)
    for t in range(len(words)):
        if F == 0:
            _max_product(best, first, out, back[t])
        else:
            _max_product(best, first, waist, entry[t])
            _max_product(waist, second, out, back[t])
            for d in range(len(band)):
                shift = d - len(band) // 2
                for i in range(max(0, -shift), min(Z, Z - shift)):
                    score = best[i] + band[d, i]
                    if score > out[i + shift]:
                        out[i + shift] = score
                        back[t, i + shift] = -1 - d
        best[:] = out
        _observe(best, emission, words[t])


@njit(cache=True, nogil=True)
def _trace(back: Any, entry: Any, start: Any, stop: Any, half: Any, states: Any, features: Any) -> None:
    """States start − 1 … stop − 2 from the state at stop − 1."""
    for t in range(stop - 1, start - 1, -1):
        came = back[t - start, states[t]]
        if came < 0:
            states[t - 1] = states[t] - (-1 - came - half)
        elif entry.shape[1]:
            features[t] = came
            states[t - 1] = entry[t - start, came]
        else:
            states[t - 1] = came
