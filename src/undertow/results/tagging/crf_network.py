"""Training a CRF whose tokens are scored by a network too (`kernels.chain.token_network`).

A linear CRF is trained first. A second one, with the network, is trained by mini-batches in which features, numbers and
units are dropped at random, so that none can rely on certain others: without that the network learns the labelled text
by heart. The result is a mean of the two: as scores are sums, it is one CRF with the mean of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from undertow.kernels.adam import AdamState, adam_start, adam_step
from undertow.kernels.chain.crf import (
    Problem,
    Tokens,
    add_weight_gradient,
    loss_of_scores,
    take,
    token_scores,
)
from undertow.kernels.chain.token_network import Dropped, TokenNetwork, network_gradient, network_scores
from undertow.kernels.lanes import equal_runs
from undertow.kernels.types import F32, F64
from undertow.models.fitting import Iteration
from undertow.results.tagging.crf_training import Penalty, adagrad, check_value

# chosen on train files, see experiments/results/tagging_default.md
TAG_PASSES, SPAN_PASSES = 20, 40  # more passes harm tags of text of another kind than the labelled one
BATCH_TOKENS = 512  # fewer where the labelled text is short, so that there are enough steps
LEAST_BATCHES = 20
DROPPED_FEATURES, DROPPED_NUMBERS, DROPPED_UNITS = 0.3, 0.3, 0.5
RATE, NETWORK_RATE = 0.3, 3e-3  # of AdaGrad for the weights of the CRF, of Adam for the network; both fall to 0
ROWS = 1 << 13  # tokens whose numbers are in double precision at a time
SHARE = 0.8  # of the CRF with the network in the mean


class Learned(NamedTuple):
    """Weights of a CRF in their flat order, and its network, if there is one."""

    flat: F64
    network: TokenNetwork | None


class NetworkState(NamedTuple):
    """Where training is after a pass."""

    n_done: int
    linear: F64  # the weights of the linear CRF
    x: F64
    squares: F64  # Σ gradient² of each weight
    network: TokenNetwork
    adam: AdamState
    random: Any  # of the generator


def passes_of(is_spans: bool) -> int:
    """How many passes are made: tags that mark spans gain by more."""
    return SPAN_PASSES if is_spans else TAG_PASSES


def start_network(rng: np.random.Generator, n_numbers: int, n_hidden: int, n_labels: int) -> TokenNetwork:
    """Initial weights: uniform within one over the root of what a unit reads, and a tenth of that for scores."""

    def uniform(n_in: int, n_out: int, size: float = 1.0) -> F32:
        bound = size / np.sqrt(n_in)
        return rng.uniform(-bound, bound, (n_in, n_out)).astype(np.float32)

    biases = [np.zeros(n_hidden, dtype=np.float32) for _ in range(2)]
    return TokenNetwork(
        uniform(n_numbers, n_hidden),
        biases[0],
        uniform(3 * n_hidden, n_hidden),
        biases[1],
        uniform(2 * n_hidden, n_labels, 0.1),
    )


def with_network(
    linear: Iterator[Iteration[F64]],
    problem: Problem,
    penalty: Penalty,
    n_hidden: int,
    rng: np.random.Generator,
    n_passes: int,
    resume_from: NetworkState | None = None,
) -> Iterator[Iteration[Learned]]:
    """The iterations of the linear CRF, then passes with the network; Ctrl-C among the former leaves no network."""
    weights = np.zeros(0)
    if resume_from is None:
        for now in linear:
            weights = now.params
            yield Iteration(now.objective, Learned(weights, None), state=now.state)
    if n_hidden and any(part.shape[1] for part in problem.tokens.number_parts()):
        yield from network_passes(problem, penalty, weights, n_hidden, rng, n_passes, resume_from)


def network_passes(
    problem: Problem,
    penalty: Penalty,
    linear: F64,
    n_hidden: int,
    rng: np.random.Generator,
    n_passes: int,
    resume_from: NetworkState | None = None,
) -> Iterator[Iteration[Learned]]:
    """Passes over the sentences; the objective is that of each batch when it was met, with what was dropped."""
    tokens, K = problem.tokens, problem.n_labels
    center, spread = center_and_spread(tokens)
    n_done, x, squares = 0, np.zeros(problem.n_weights()), np.zeros(problem.n_weights())
    network = start_network(rng, len(center), n_hidden, K)
    adam = adam_start(network)
    if resume_from is not None:
        n_done, linear, x, squares, network, adam, rng.bit_generator.state = resume_from
    n_tokens = int(tokens.bounds[-1])
    n_batches = max(-(-n_tokens // BATCH_TOKENS), LEAST_BATCHES)
    lengths = np.diff(tokens.bounds)
    filled = np.flatnonzero(lengths)
    free = np.ones(len(x), dtype=np.bool_)
    free[: len(problem.pairs.free)] = problem.pairs.free
    l2, gradient, rounded = penalty.l2, np.zeros(len(x)), x.astype(np.float32)
    centre = np.zeros(0)
    for i in range(n_done, n_passes):
        order = rng.permutation(filled)
        edges = equal_runs(np.concatenate(([0], np.cumsum(lengths[order]))), n_batches)
        loss = 0.0
        for b in range(len(edges) - 1):
            some = take(problem, order[edges[b] : edges[b + 1]])
            read = _drop_features(rng, some.tokens)
            X = (read.numbers() - center) / spread
            dropped = _draw(rng, X.shape, n_hidden)
            w = problem.split(rounded)
            n = len(X)
            scores = np.empty((n, K), dtype=np.float32)
            token_scores(read, 0, n, problem.pairs.start, problem.pairs.label, w, scores)
            more, layers = network_scores(network, X, read.bounds, dropped)
            scores += more
            more_loss, excess, steps = loss_of_scores(scores, read.bounds, w.transition, some.gold, some.weight)
            loss += more_loss
            add_weight_gradient(read, 0, n, problem.pairs, excess, steps, problem.split(gradient))
            mean_excess = (excess / n).astype(np.float32, copy=False)
            left = 1 - (i + b / (len(edges) - 1)) / n_passes
            down = network_gradient(network, layers, mean_excess, read.bounds, dropped)
            network, adam = adam_step(network, down, adam, NETWORK_RATE * left)
            adagrad(x, squares, gradient, free, centre, 2 * l2 * n / n_tokens, RATE * left, rounded)
        value = loss + l2 * float(x @ x)
        check_value(value)
        now = NetworkState(i + 1, linear, x.copy(), squares.copy(), network, adam, rng.bit_generator.state)
        yield Iteration(-value, _mean(linear, x, network, center, spread), state=partial(_same, now))


def center_and_spread(tokens: Tokens) -> tuple[F32, np.float32]:
    """The means of the numbers that a network reads, and the root of their mean variance.

    In runs of rows: the numbers of a large text in double precision would be the most that training holds.
    """
    means, squares, n = [], 0.0, len(tokens.dense)
    for part in tokens.number_parts():
        mean = part.mean(axis=0, dtype=np.float64)
        squares += sum(float(np.square(part[a : a + ROWS] - mean).sum()) for a in range(0, n, ROWS))
        means.append(mean)
    center = np.concatenate(means).astype(np.float32)
    return center, np.float32(max(np.sqrt(squares / (n * len(center))), 1e-6))


def _same(state: NetworkState) -> NetworkState:
    return state


def _drop_features(rng: np.random.Generator, tokens: Tokens) -> Tokens:
    n = len(tokens.attribute)
    kept = _factors(rng, (n,), DROPPED_FEATURES)
    return tokens._replace(value=kept * tokens.value if len(tokens.value) else kept)


def _draw(rng: np.random.Generator, shape: tuple[int, ...], n_hidden: int) -> Dropped:
    units = (shape[0], n_hidden)
    return Dropped(_factors(rng, shape, DROPPED_NUMBERS), *(_factors(rng, units, DROPPED_UNITS) for _ in range(2)))


def _factors(rng: np.random.Generator, shape: tuple[int, ...], share: float) -> F32:
    """0 for this share of the entries, drawn at random, and one over the rest for the others."""
    drawn = rng.random(shape, dtype=np.float32)
    return (drawn >= share) * np.float32(1 / (1 - share))


def _mean(linear: F64, x: F64, network: TokenNetwork, center: F32, spread: Any) -> Learned:
    """The mean of the two CRFs; the network then reads numbers as they are."""
    A = network.input / spread
    a = network.input_bias - center @ A
    read = network._replace(input=A, input_bias=a, output=np.float32(SHARE) * network.output)
    return Learned((1 - SHARE) * linear + SHARE * x, read)
