"""Fitting a neural HMM by gradients, without differentiating the forward–backward recursion.

Fisher's identity: the gradient of the evidence log p(x) is that of the expected complete log-likelihood with the
posterior held fixed, Σ n · log(probability) over starts, steps and emissions, n being expected counts. These come from
the forward–backward that EM uses (`models.hmm.params`), on a batch of text; PyTorch sees only the tables. So a step
costs an E-step of the batch and one pass through the network, and memory does not grow with the length of the text.

The result is ordinary tables: queries, saving and loading are those of any other HMM.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.engine import count_workers
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError
from undertow.kernels.chain.block_operators import BlockLowRank, PairSparse
from undertow.kernels.chain.blocks import Blocks
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.operators import Dense, LowRank
from undertow.kernels.types import I64
from undertow.models.constraints import check_random_state
from undertow.models.fitting import (
    CheckpointSource,
    FitResult,
    Iteration,
    OpenCheckpoint,
    open_checkpoint,
    run_iterations,
)
from undertow.models.hmm.em import perplexity_remark, unseen_mass
from undertow.models.hmm.init import choose_blocks, choose_init
from undertow.models.hmm.initial_counts import InitialCounts, initial_counts
from undertow.models.hmm.params import BlockParams, Params, PlainParams
from undertow.neural.hmm_network import LogTables, Network, Shape, Tensor, torch
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

SEGMENT = 256  # with `carry`, the text is cut into sequences of so many tokens, each with its own initial state


class Options(NamedTuple):
    """Training options that are no parameters of `HMM`; measured by experiments/hmm_neural.py."""

    width: int = 128  # of the embeddings
    features: str = "learned"  # or "orthogonal", "fourier": frozen at random
    dropout: float = 0.0  # share of the states of each block that is dropped in each batch; 0.5 needs many epochs
    batch_tokens: int = 1 << 12
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    clip: float = 5.0
    cut: float = 0.25  # the rate is multiplied by this when the held-out text (or else the text) stops improving
    n_warm: int = 60  # gradient steps towards the initial expected counts, before training on the text


def options_of(hmm: Any) -> Options:
    """What the constructor of `HMM` says; the rest is as measured."""
    given = {"dropout": hmm.dropout, "batch_tokens": hmm.batch_tokens}
    return Options(width=hmm.width, features=hmm.features, **{k: v for k, v in given.items() if v is not None})


# --- tables and counts ----------------------------------------------------------------------------------


def as_params(tables: LogTables, shape: Shape, unseen: float = 0.0, dtype: Any = np.float32) -> Params:
    """The tables as probabilities, in the form that the forward–backward takes.

    Every state emits the words that are not in the text with the same probability, in total `unseen`.
    """
    known = shape.word_block >= 0
    each = unseen / max(int((~known).sum()), 1)

    def array(x: Any) -> NDArray[Any]:
        return np.ascontiguousarray(torch.exp(x.detach()).numpy(), dtype=dtype)

    emission = [(1 - unseen) * array(e) for e in tables.emission]
    if shape.n_blocks == 1:
        operator: Any = LowRank(array(tables.R), array(tables.E)) if tables.T is None else Dense(array(tables.T))
        table = np.full((len(known), len(tables.kept)), each, dtype=dtype)
        table[known] = emission[0].T
        return PlainParams(ChainParams(array(tables.initial), operator, table))
    blocks = Blocks.of(shape.word_block, np.diff(tables.first))
    flat = np.full(blocks.starts[-1], each, dtype=np.float32)
    for b, table in enumerate(emission):
        words = np.flatnonzero(shape.word_block == b)
        flat[blocks.starts[words][:, None] + np.arange(len(table))] = table.T
    transition: Any
    if tables.T is None:
        transition = BlockLowRank(tables.first, array(tables.R), np.ascontiguousarray(array(tables.E).T))
    else:
        transition = _pair_sparse(array(tables.T), tables.first)
    return BlockParams(blocks, array(tables.initial), transition, flat)


def _pair_order(first: I64) -> I64:
    """Indices into a row-major (Z, Z) matrix that list it pair of blocks by pair of blocks."""
    Z, sizes = int(first[-1]), np.diff(first)
    square = np.arange(Z * Z).reshape(Z, Z)
    G = len(sizes)
    parts = [square[first[i] : first[i + 1], first[j] : first[j + 1]].ravel() for i in range(G) for j in range(G)]
    return np.concatenate(parts)


def _pair_sparse(T: NDArray[Any], first: I64) -> PairSparse:
    """A full matrix as a PairSparse one that has all pairs of blocks."""
    G, sizes = len(first) - 1, np.diff(first)
    starts = np.concatenate(([0], np.cumsum(np.outer(sizes, sizes).ravel()))).astype(np.int64)
    pair = np.arange(G * G, dtype=np.int32).reshape(G, G)
    zero = np.zeros(len(T), dtype=np.float32)
    return PairSparse(first, pair, starts, T.ravel()[_pair_order(first)], zero, zero)


class Counts(NamedTuple):
    """Expected counts in the layout of `LogTables`."""

    initial: NDArray[Any]
    T: NDArray[Any] | None
    R: NDArray[Any] | None
    E: NDArray[Any] | None
    emission: list[NDArray[Any]]


def as_counts(stats: Any, params: Params, shape: Shape) -> Counts:
    """The statistics of an E-step in the layout of `LogTables`, whichever kernel computed them."""
    T = R = E = None
    if isinstance(params, PlainParams):
        if isinstance(params.chain.transition, Dense):
            T = stats.transition.pairs
        else:
            R, E = stats.transition
        return Counts(stats.initial, T, R, E, [stats.emission[shape.word_block >= 0].T])
    blocks = params.blocks
    if isinstance(params.transition, PairSparse):
        T = np.empty(blocks.n_states**2)
        T[_pair_order(blocks.first)] = stats.pairs
        T = T.reshape(blocks.n_states, -1)
    else:
        R, E = stats.out, stats.into.T
    return Counts(stats.initial, T, R, E, _by_block(stats.emission, blocks.starts, blocks.first, shape.word_block))


def _by_block(flat: NDArray[Any], starts: Any, first: Any, word_block: NDArray[Any]) -> list[NDArray[Any]]:
    out = []
    for b in range(len(first) - 1):
        words = np.flatnonzero(word_block == b)
        out.append(flat[starts[words][:, None] + np.arange(first[b + 1] - first[b])].T)
    return out


def expected_loss(tables: LogTables, counts: Counts, n_tokens: float) -> Tensor:
    """−Σ n log(probability) per token; its gradient is that of −log p(text) per token."""
    pairs = [(tables.initial, counts.initial), (tables.T, counts.T), (tables.R, counts.R), (tables.E, counts.E)]
    total: Any = 0.0
    for logs, n in [*pairs, *zip(tables.emission, counts.emission, strict=True)]:
        if logs is not None and n is not None:
            total = total - (logs * torch.from_numpy(np.ascontiguousarray(n)).to(logs.dtype)).sum()
    return total / n_tokens  # type: ignore[no-any-return,unused-ignore]


# --- training -------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    ids: I64
    bounds: I64


def batches(corpus: Corpus, batch_tokens: int, carry: bool) -> list[Batch]:
    """The text in runs of about so many tokens: whole sentences, or segments of the stream with `carry`."""
    out = []
    if carry:
        ids = np.asarray(corpus.ids, dtype=np.int64)
        for start in range(0, len(ids), batch_tokens):
            some = ids[start : start + batch_tokens]
            out.append(Batch(some, np.append(np.arange(0, len(some), SEGMENT), len(some))))
        return out
    for low, high in corpus.shards(batch_tokens):
        edges = np.asarray(corpus.offsets[low : high + 1], dtype=np.int64)
        out.append(Batch(np.asarray(corpus.ids[edges[0] : edges[-1]], dtype=np.int64), edges - edges[0]))
    return out


def drop_states(first: I64, share: float, rng: np.random.Generator) -> I64 | None:
    """The states that stay when `share` of each block is dropped, at least one a block; None if all stay."""
    if share <= 0:
        return None
    kept = []
    for low, high in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        n = max(1, round((high - low) * (1 - share)))
        kept.append(low + np.sort(rng.permutation(high - low)[:n]))
    return np.concatenate(kept)


def gradient_step(network: Network, batch: Batch, kept: I64 | None, dtype: Any = np.float32) -> float:
    """Add the gradient of −log p(batch) per token to the weights' gradients; returns log p(batch)."""
    tables = network.log_tables(kept)
    params = as_params(tables, network.shape, dtype=dtype)
    stats = params.statistics(batch.ids, batch.bounds)
    if not np.isfinite(stats.log_likelihood):
        raise InputError("The network gives the text probability zero: use a lower learning rate.")
    loss = expected_loss(tables, as_counts(stats, params, network.shape), len(batch.ids))
    loss.backward()  # type: ignore[no-untyped-call,unused-ignore]
    return float(stats.log_likelihood)


def warm_up(network: Network, start: InitialCounts, options: Options, optimizer: Any, rng: np.random.Generator) -> None:
    """Gradient steps towards the initial expected counts, so that training begins where EM would."""
    tokens = start.state_tokens()
    T = R = E = None
    if network.shape.rank is None:
        T = start.dense_pairs(rng)
    else:
        R, E = start.factor_counts()
    emission = _by_block(start.emission, start.starts, start.first, network.shape.word_block)
    counts = Counts(tokens / tokens.sum(), T, R, E, emission)
    for _ in range(options.n_warm):
        optimizer.zero_grad()
        loss = expected_loss(network.log_tables(), counts, float(tokens.sum()))
        loss.backward()  # type: ignore[no-untyped-call,unused-ignore]
        torch.nn.utils.clip_grad_norm_(network.parameters(), options.clip)
        optimizer.step()


def mean_log_probability(params: Params, text: list[Batch]) -> float:
    total = sum(float(params.filtered(b.ids, b.bounds).log_probabilities.sum()) for b in text)
    return total / max(sum(len(b.ids) for b in text), 1)


class TrainingState(NamedTuple):
    """What training needs to go on after an epoch, as arrays and numbers."""

    n_done: int
    best: float
    weights: dict[str, NDArray[Any]]
    moments: dict[int, dict[str, NDArray[Any]]]  # of AdamW, by the number of the parameter
    rates: list[float]
    rng: dict[str, Any]

    @classmethod
    def of(cls, n_done: int, best: float, network: Network, optimizer: Any, rng: np.random.Generator) -> TrainingState:
        weights = {name: x.detach().numpy() for name, x in network.weights.items()}
        moments = {
            i: {name: x.numpy() for name, x in values.items()} for i, values in optimizer.state_dict()["state"].items()
        }
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        return cls(n_done, float(best), weights, moments, rates, dict(rng.bit_generator.state))

    def restore(self, network: Network, optimizer: Any, rng: np.random.Generator) -> None:
        """Put the state back into what it was taken from."""
        with torch.no_grad():
            for name, x in self.weights.items():
                network.weights[name].copy_(torch.from_numpy(x))
        known = optimizer.state_dict()
        known["state"] = {i: {k: torch.from_numpy(x) for k, x in m.items()} for i, m in self.moments.items()}
        optimizer.load_state_dict(known)
        for group, rate in zip(optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate
        rng.bit_generator.state = self.rng


def epochs(
    network: Network, text: list[Batch], other: list[Batch], options: Options, n_iter: int, unseen: float,
    optimizer: Any, rng: np.random.Generator, resume_from: TrainingState | None = None,
) -> Iterator[Iteration[Params]]:  # fmt: skip
    """Passes over the batches in random order; the learning rate is cut after an epoch without improvement."""
    best, n_done = -np.inf, 0
    if resume_from is not None:
        n_done, best = resume_from.n_done, resume_from.best
        resume_from.restore(network, optimizer, rng)
    for number in range(n_done, n_iter):
        total, n_tokens = 0.0, 0
        for i in rng.permutation(len(text)).tolist():
            optimizer.zero_grad()
            total += gradient_step(network, text[i], drop_states(network.shape.first, options.dropout, rng))
            torch.nn.utils.clip_grad_norm_(network.parameters(), options.clip)
            optimizer.step()
            n_tokens += len(text[i].ids)
        with torch.no_grad():
            params = as_params(network.log_tables(), network.shape, unseen)
        held_out = mean_log_probability(params, other) if other else None
        score = total / n_tokens if held_out is None else held_out
        if score <= best:
            for group in optimizer.param_groups:
                group["lr"] *= options.cut
        best = max(best, score)
        mean = total / n_tokens
        state = partial(TrainingState.of, number + 1, best, network, optimizer, rng)
        yield Iteration(mean, params, held_out, perplexity_remark(mean, held_out), state)


def fit_neural(
    hmm: Any,
    corpus: Corpus,
    validation: Corpus | None = None,
    *,
    options: Options | None = None,
    checkpoint: CheckpointSource = None,
) -> FitResult[Params]:
    """Fit a neural HMM with the constructor parameters of `hmm` (states, blocks, rank, init, n_iter, seed).

    With `validation` the result holds the tables of the epoch with the best held-out likelihood, else the last.
    """
    if getattr(hmm, "band", 0):
        raise InputError("A neural HMM has no band: leave out band, or use parameterization='table'.")
    threads = torch.get_num_threads()
    torch.set_num_threads(count_workers(hmm.n_jobs))
    try:
        with one_blas_thread():
            return _fit(hmm, corpus, validation, options_of(hmm) if options is None else options, checkpoint)
    finally:
        torch.set_num_threads(threads)


def _fit(
    hmm: Any, corpus: Corpus, validation: Corpus | None, options: Options, checkpoint: CheckpointSource
) -> FitResult[Params]:
    rng = check_random_state(hmm.random_state)
    with open_checkpoint(checkpoint, hmm, (corpus, validation, options), rng, repeat_start=True) as saved:
        return _train(hmm, corpus, validation, options, rng, saved)


def _train(
    hmm: Any,
    corpus: Corpus,
    validation: Corpus | None,
    options: Options,
    rng: np.random.Generator,
    checkpoint: OpenCheckpoint,
) -> FitResult[Params]:
    words = corpus.vocabulary.counts
    network, start = _initial_network(hmm, corpus, options, rng)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay, foreach=False
    )
    warm_up(network, start, options, optimizer, rng)
    text = batches(corpus, options.batch_tokens, hmm.carry)
    other = [] if validation is None else batches(validation, options.batch_tokens, hmm.carry)
    unseen = unseen_mass(words, hmm.smoothing)
    iterations = epochs(network, text, other, options, hmm.n_iter, unseen, optimizer, rng, checkpoint.state)
    return run_iterations(
        iterations,
        n_iter=hmm.n_iter,
        unit="epoch",
        callbacks=hmm.callbacks,
        verbose=hmm.verbose,
        patience=None,  # the rate is cut when the held-out text stops improving; the best epoch is kept
        checkpoint=checkpoint,
        stacklevel=7,  # run_iterations, _train, _fit, fit_neural, HMM.fit, the wrapper of one_blas_thread, the caller
    )


def _initial_network(
    hmm: Any, corpus: Corpus, options: Options, rng: np.random.Generator
) -> tuple[Network, InitialCounts]:
    words = corpus.vocabulary.counts
    n_blocks = choose_blocks(hmm.n_blocks, hmm.n_states, int((words > 0).sum()))
    counts = LagCounts.from_corpus(corpus, lags=1, n_jobs=hmm.n_jobs)
    init = choose_init(hmm.init, n_blocks, hmm.rank)
    start = initial_counts(counts, hmm.n_states, n_blocks=n_blocks, rank=hmm.rank, init=init, rng=rng)
    block = np.where(words > 0, start.word_block, -1).astype(np.int64)
    shape = Shape(start.first, block, hmm.rank, options.width, options.features)
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    return Network(shape, words, generator), start
