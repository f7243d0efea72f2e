"""Training the network of `ContextVectors`: where it starts, and the parts of its passes over the text."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from undertow.engine import count_workers
from undertow.kernels.adam import AdamState, adam_start, adam_step
from undertow.kernels.lanes import equal_runs, ordered_map
from undertow.kernels.types import F32, F64, I64
from undertow.kernels.words.context_network import (
    ContextNetwork,
    Gradient,
    Windows,
    WordTables,
    gradient,
    segment_windows,
    step_rows,
)
from undertow.models.base import LittleTextWarning
from undertow.models.fitting import Iteration, interrupts_raise
from undertow.results.pmi_vectors import NEAR_LAGS, PMIVectors
from undertow.text.corpus import Corpus

# chosen on train files, see experiments/results/tagging_default.md
BATCH_TOKENS = 1024  # fewer where the text is short, so that there are enough steps
LEAST_BATCHES = 200  # of a pass
LANES = 2  # parts of a batch, in threads if there are any; the result does not depend on the threads
PART_TOKENS = 1 << 18  # tokens between two reports
SEGMENT = 256  # tokens of a sentence that are read together at the most
RATE, BETA_2, ROW_RATE = 2e-3, 0.99, 0.1  # of Adam for the network, of AdaGrad for the words; both fall to 0
POWER = 0.75  # words are drawn by their counts to this power
START_SIZE = 0.3  # root of the mean squared number of a word's vector at the start


class Sizes(NamedTuple):
    """The parameters of `ContextVectors` that training needs."""

    n_components: int
    window: int
    n_hidden: int
    n_iter: int
    n_drawn: int
    n_jobs: int | None


class TrainingState(NamedTuple):
    """Where training is."""

    n_done: int  # parts of passes
    seed: int  # of the order of the text
    network: ContextNetwork
    tables: WordTables
    adam: AdamState
    squares: tuple[F64, F64, F64]  # Σ mean squared gradient of each word, by table


class Chance(NamedTuple):
    """The words drawn for a batch, and log(m r) of every word."""

    drawn: I64
    log_rate: F32


def n_parts_of(n_tokens: int) -> int:
    """Parts of a pass over a text."""
    return -(-n_tokens // PART_TOKENS)


def start(corpus: Corpus, ids: I64, sizes: Sizes, rng: np.random.Generator) -> TrainingState:
    """Words begin with their near PMI vectors, the network at random."""
    V, d, k = len(corpus.vocabulary), sizes.n_components, sizes.n_hidden
    counts = np.bincount(ids, minlength=V)
    read = Corpus(ids.astype(np.uint32), corpus.offsets, corpus.vocabulary.with_counts(counts))
    pmi = PMIVectors(d, contexts="near", lags=NEAR_LAGS, random_state=rng, n_jobs=sizes.n_jobs)
    with interrupts_raise(), warnings.catch_warnings():
        warnings.simplefilter("ignore", LittleTextWarning)  # `fit` has warned
        near = pmi.fit(read).vectors_
    inputs = np.zeros((V + 1, d), dtype=np.float32)
    inputs[:V] = near * (START_SIZE / max(float(np.sqrt(np.square(near).mean())), 1e-9))

    def uniform(n_in: int, n_out: int) -> F32:
        bound = 1 / np.sqrt(n_in)
        return rng.uniform(-bound, bound, (n_in, n_out)).astype(np.float32)

    biases = [np.zeros(k, dtype=np.float32) for _ in range(2)]
    net = ContextNetwork(uniform(2 * sizes.window * d, k), biases[0], uniform(k, k), biases[1], uniform(2 * k, d))
    outputs = 0.01 * rng.standard_normal((V, d), dtype=np.float32)
    bias = np.log((counts + 1) / (counts + 1).sum()).astype(np.float32)
    squares = (np.zeros(V + 1), np.zeros(V), np.zeros(V))
    return TrainingState(
        0, int(rng.integers(1 << 32)), net, WordTables(inputs, outputs, bias), adam_start(net), squares
    )


def parts_of_passes(
    text: Windows, bounds: I64, state: TrainingState, sizes: Sizes, rng: np.random.Generator
) -> Iterator[Iteration[tuple[ContextNetwork, WordTables]]]:
    """Parts of passes: each pass reads all segments of the text in an order of its own."""
    begin, length = segments(bounds)
    counts = np.bincount(text.ids[text.position], minlength=len(state.tables.bias))
    rate = counts**POWER / (counts**POWER).sum()
    cumulative = np.cumsum(rate)
    log_rate = np.log(sizes.n_drawn * np.maximum(rate, 1e-30)).astype(np.float32)
    n_threads = min(count_workers(sizes.n_jobs), LANES)
    n_parts = n_parts_of(int(bounds[-1]))
    n_all = sizes.n_iter * n_parts
    for i in range(state.n_done, n_all):
        # the order of a pass is that of its number, so that a part needs nothing of those before it
        order = np.random.default_rng([state.seed, i // n_parts]).permutation(len(begin))
        edges = equal_runs(np.concatenate(([0], np.cumsum(length[order]))), n_parts)
        mine = order[edges[i % n_parts] : edges[i % n_parts + 1]]
        cost = np.concatenate(([0], np.cumsum(length[mine])))
        batches = equal_runs(cost, max(round(int(cost[-1]) / BATCH_TOKENS), LEAST_BATCHES // n_parts))
        loss = 0.0
        for b in range(len(batches) - 1):
            some = mine[batches[b] : batches[b + 1]]
            left = 1 - (i + b / (len(batches) - 1)) / n_all
            drawn = np.searchsorted(cumulative[:-1], rng.random(sizes.n_drawn) * cumulative[-1], side="right")
            chance = Chance(drawn, log_rate)
            state, more = _step(sizes.window, text, begin[some], length[some], chance, state, left, n_threads)
            loss += more
        state = state._replace(n_done=i + 1)
        now = state._replace(tables=_copy(state.tables), squares=_copy(state.squares))  # steps change them in place
        yield Iteration(-loss / float(cost[-1]), (now.network, now.tables), state=partial(_same, now))


def _step(
    width: int,
    text: Windows,
    begin: I64,
    length: I64,
    chance: Chance,
    state: TrainingState,
    left: float,
    n_threads: int,
) -> tuple[TrainingState, float]:
    """One batch: the parts of its gradient in threads, added up in their order."""
    net, tables, n = state.network, state.tables, int(length.sum())
    edges = equal_runs(np.concatenate(([0], np.cumsum(length))), LANES)
    windows = [segment_windows(text, begin[a:b], length[a:b], width) for a, b in zip(edges, edges[1:], strict=False)]

    def lane(own: Windows) -> Gradient:
        return gradient(net, tables, own, chance.drawn, chance.log_rate)

    found = list(ordered_map(lane, windows, n_threads))
    down = ContextNetwork(*(sum(parts) / np.float32(n) for parts in zip(*(g.network for g in found), strict=True)))
    net, adam = adam_step(net, down, state.adam, RATE * left, beta2=BETA_2)
    target = np.concatenate([own.ids[own.position] for own in windows])
    places = np.concatenate([own.ids for own in windows])
    words = np.concatenate([target, chance.drawn])
    outputs = np.concatenate([*(g.targets for g in found), sum(g.drawn for g in found)])
    bias = np.concatenate([*(g.target_bias for g in found), sum(g.drawn_bias for g in found)])
    rate = ROW_RATE * left
    step_rows(tables.inputs, state.squares[0], places, np.concatenate([g.inputs for g in found]), rate)
    step_rows(tables.outputs, state.squares[1], words, outputs, rate)
    step_rows(tables.bias[:, None], state.squares[2], words, bias[:, None], rate)
    return state._replace(network=net, adam=adam), sum(g.loss for g in found)


def segments(bounds: I64) -> tuple[I64, I64]:
    """Where runs of at most `SEGMENT` tokens of one sentence begin, and their lengths."""
    lengths = np.diff(bounds)
    n = -(-lengths // SEGMENT)
    number = np.arange(int(n.sum())) - np.repeat(np.cumsum(n) - n, n)
    begin = np.repeat(bounds[:-1], n) + SEGMENT * number
    return begin, np.minimum(np.repeat(bounds[1:], n) - begin, SEGMENT)


def _copy(arrays: Any) -> Any:
    copies = [a.copy() for a in arrays]
    return arrays._make(copies) if hasattr(arrays, "_make") else tuple(copies)


def _same(state: TrainingState) -> TrainingState:
    return state
