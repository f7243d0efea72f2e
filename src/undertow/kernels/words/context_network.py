"""A network that predicts a word from the words around it, and its gradient.

    x = [E of the W words before, E of the W words after],   h = tanh(x A + a),   g = tanh(h B + b),   q = [h, g] C,
    log p(w | words around) = q · O_w + o_w − log Σ_v exp(q · O_v + o_v)

E (V + 1, d), A (2Wd, k), B (k, k), C (2k, d), O (V, d). Places beyond the ends of a sentence hold one word more, V.
Training replaces the sum over all words by one over the word itself and m others, drawn with probabilities r: each has
its score less log(m r_v) (sampled softmax, Jean and others 2015), so that a step costs the same whatever the
vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.types import F64, I64

Array = NDArray[Any]
TINY = 1e-16  # mean squared gradients below it count as none


class ContextNetwork(NamedTuple):
    """The weights that all words share.

    Attributes
    ----------
    around, around_bias
        (2Wd, k) and (k,): from the words around to the first layer, A and a.
    middle, middle_bias
        (k, k) and (k,): from there to the second layer, B and b.
    query
        (2k, d): from both layers to what is compared with the vectors of words, C.
    """

    around: Array
    around_bias: Array
    middle: Array
    middle_bias: Array
    query: Array


class WordTables(NamedTuple):
    """The weights of each word: its vector as a neighbor (E), as the word that is predicted (O), and its bias (o)."""

    inputs: Array  # (V + 1, d)
    outputs: Array  # (V, d)
    bias: Array  # (V,)


class Windows(NamedTuple):
    """Sentences with W places beyond each end."""

    ids: I64  # (places,) V beyond the ends
    position: I64  # (tokens,) the place of each token


class Layers(NamedTuple):
    """What the gradient needs of a forward pass."""

    around: Array  # (n, 2Wd) x
    both: Array  # (n, 2k) h and g side by side
    query: Array  # (n, d)


class Gradient(NamedTuple):
    """The gradient of the sum of −log p over some tokens."""

    loss: float
    network: ContextNetwork
    inputs: Array  # (places, d), of the vectors at the places of the windows
    targets: Array  # (n, d), of the output vectors of the tokens
    target_bias: Array  # (n,)
    drawn: Array  # (m, d), of the output vectors of the words drawn
    drawn_bias: Array  # (m,)


def padded(ids: Array, bounds: Array, width: int, n_words: int) -> Windows:
    """Sentences one after the other, `bounds` where each begins, with `width` places beyond their ends."""
    lengths = np.diff(bounds)
    position = np.arange(int(bounds[-1])) + width * (1 + np.repeat(np.arange(len(lengths)), lengths))
    places = np.full(int(bounds[-1]) + width * (len(lengths) + 1), n_words, dtype=np.int64)
    places[position] = ids
    return Windows(places, position)


def segment_windows(text: Windows, begin: I64, length: I64, width: int) -> Windows:
    """Runs of tokens of a padded text, from token `begin` on, with the `width` places before and after each."""
    first = text.position[begin]
    start = np.concatenate(([0], np.cumsum(length)))
    run = np.repeat(np.arange(len(length)), length)
    wide = length + 2 * width
    at = np.concatenate(([0], np.cumsum(wide)))
    of_place = np.repeat(first - width - at[:-1], wide) + np.arange(at[-1])
    return Windows(text.ids[of_place], np.arange(start[-1]) + width * (2 * run + 1))


def queries(net: ContextNetwork, inputs: Array, windows: Windows) -> Layers:
    """What the network expects at each token."""
    width = len(net.around) // (2 * inputs.shape[1])
    x = np.empty((len(windows.position), len(net.around)), dtype=inputs.dtype)
    _gather(inputs, windows.ids, windows.position, width, x)
    k = len(net.middle)
    both = np.empty((len(x), 2 * k), dtype=inputs.dtype)
    np.tanh(x @ net.around + net.around_bias, out=both[:, :k])
    np.tanh(both[:, :k] @ net.middle + net.middle_bias, out=both[:, k:])
    return Layers(x, both, both @ net.query)


def log_probabilities(tables: WordTables, query: Array) -> Array:
    """(n, V) log p(w | words around)."""
    scores: Array = query @ tables.outputs.T + tables.bias
    scores -= scores.max(axis=1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return scores


def gradient(net: ContextNetwork, tables: WordTables, windows: Windows, drawn: I64, log_rate: Array) -> Gradient:
    """The loss of the tokens of some windows and its gradient, with the words drawn and log(m r) of every word."""
    layers = queries(net, tables.inputs, windows)
    x, both, q = layers
    k = len(net.middle)
    target = windows.ids[windows.position]
    to_target, to_drawn = tables.outputs[target], tables.outputs[drawn]
    own = np.einsum("ij,ij->i", q, to_target) + (tables.bias[target] - log_rate[target])
    p = q @ to_drawn.T
    p += tables.bias[drawn] - log_rate[drawn]
    p[target[:, None] == drawn] = -np.inf  # a word is no rival of itself
    top = np.maximum(p.max(axis=1), own)
    p -= top[:, None]
    np.exp(p, out=p)
    own_share = np.exp(own - top)
    total = p.sum(axis=1) + own_share
    loss = float((np.log(total) + top - own).sum(dtype=np.float64))
    p /= total[:, None]
    d_own = own_share / total - 1
    d_q = p @ to_drawn
    d_q += d_own[:, None] * to_target
    d_both = d_q @ net.query.T
    d_both[:, k:] *= 1 - both[:, k:] ** 2
    d_both[:, :k] += d_both[:, k:] @ net.middle.T
    d_both[:, :k] *= 1 - both[:, :k] ** 2
    d_h, d_g = d_both[:, :k], d_both[:, k:]
    of_network = ContextNetwork(x.T @ d_h, d_h.sum(axis=0), both[:, :k].T @ d_g, d_g.sum(axis=0), both.T @ d_q)
    d_places = np.zeros((len(windows.ids), tables.inputs.shape[1]), dtype=x.dtype)
    _scatter(d_h @ net.around.T, windows.position, len(x[0]) // (2 * d_places.shape[1]), d_places)
    return Gradient(loss, of_network, d_places, d_own[:, None] * q, d_own, p.T @ q, p.sum(axis=0))


@njit(cache=True, nogil=True)
def _gather(table: Any, ids: Any, position: Any, width: int, out: Any) -> None:
    """Row t of out is the rows of `table` of the words around token t, side by side."""
    d = table.shape[1]
    for t in range(len(position)):
        at = 0
        for place in range(position[t] - width, position[t] + width + 1):
            if place != position[t]:
                out[t, at : at + d] = table[ids[place]]
                at += d


@njit(cache=True, nogil=True)
def _scatter(around: Any, position: Any, width: int, out: Any) -> None:
    """Add what belongs to each place: the transpose of `_gather`."""
    d = out.shape[1]
    for t in range(len(position)):
        at = 0
        for place in range(position[t] - width, position[t] + width + 1):
            if place != position[t]:
                for j in range(d):
                    out[place, j] += around[t, at + j]
                at += d


def step_rows(table: Array, squares: F64, ids: I64, rows: Array, rate: float) -> None:
    """A step of AdaGrad with one rate for each row of a table (V, d): row i of the gradient is of row ids[i].

    Rows of one id are added up first. `squares` (V,) are the sums of their mean squares, as in Duchi and others (2011).
    """
    _step_rows(table, squares, ids, np.argsort(ids, kind="stable"), rows, rate)


@njit(cache=True, nogil=True)
def _step_rows(table: Any, squares: Any, ids: Any, order: Any, rows: Any, rate: float) -> None:
    d = table.shape[1]
    total = np.empty(d, dtype=rows.dtype)
    i = 0
    while i < len(order):
        word = ids[order[i]]
        total[:] = 0
        while i < len(order) and ids[order[i]] == word:
            row = order[i]
            for j in range(d):
                total[j] += rows[row, j]
            i += 1
        square = 0.0
        for j in range(d):
            square += float(total[j]) ** 2
        squares[word] += square / d
        if squares[word] > TINY:
            step = rate / np.sqrt(squares[word])
            for j in range(d):
                table[word, j] -= step * total[j]
