"""Parameters of the hidden Markov model of text, and what can be asked of them, with blocks and without.

z_1 ~ initial, z_t ~ transition(z_{t-1}), x_t ~ emission(z_t). `BlockParams` keeps what a state can emit, its block's
words; `PlainParams` wraps the unblocked chain. Both answer the same questions on flat ids and the bounds of
independent sequences, so that nothing behind them asks which one it is.

A word that was never seen in training is emitted by every state with the same probability: it is a missing
observation, which tells nothing of the state, and still costs what an unforeseen word should cost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.chain import inference as discrete_chain
from undertow.kernels.chain import sparse as block_chain
from undertow.kernels.chain import sparse_low_rank as block_low_rank
from undertow.kernels.chain.block_operators import BlockLowRank, Blocks, PairSparse, live_firsts, word_probabilities
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.smoothing import check_rows, check_sums
from undertow.kernels.chain.sparse import BlockPosterior
from undertow.kernels.chain.sparse_low_rank import BlockLowRankStats
from undertow.kernels.types import F32, F64, I64


class Emission(NamedTuple):
    """p(word | state); `dense` is (Z, V), for small models."""

    params: Any

    def dense(self) -> F32:
        return self.params.dense_emission()  # type: ignore[no-any-return]


class BlockParams(NamedTuple):
    """A chain with blocks: emission numbers lie word by word, one for each state of the word's block."""

    blocks: Blocks
    initial: F32  # (Z,)
    transition: PairSparse | BlockLowRank
    emission: F32  # flat

    @property
    def n_states(self) -> int:
        return self.blocks.n_states

    @property
    def n_words(self) -> int:
        return len(self.blocks.word_block)

    def dense_emission(self) -> F32:
        return self.blocks.dense_emission(self.emission)

    def statistics(self, ids: NDArray[Any], bounds: I64) -> Any:
        fn: Any = block_chain.block_statistics if self._pairs else block_low_rank.low_rank_statistics
        return fn(ids, bounds, self.blocks, self.transition, self.initial, self.emission)

    def filtered(self, ids: NDArray[Any], bounds: I64) -> BlockPosterior:
        fn: Any = block_chain.filter_blocks if self._pairs else block_low_rank.filter_low_rank
        return fn(ids, bounds, self.blocks, self.transition, self.initial, self.emission)  # type: ignore[no-any-return]

    def smoothed(self, ids: NDArray[Any], bounds: I64) -> BlockPosterior:
        fn: Any = block_chain.smooth_blocks if self._pairs else block_low_rank.smooth_low_rank
        return fn(ids, bounds, self.blocks, self.transition, self.initial, self.emission)  # type: ignore[no-any-return]

    @property
    def _pairs(self) -> bool:
        return isinstance(self.transition, PairSparse)

    def first_live(self, ids: NDArray[Any]) -> I64:
        """The first state that can emit each word; the states that can follow each other."""
        return live_firsts(self.blocks, ids)

    def predicted(self, word: int, filtered: F32) -> F32:
        """(Z,) distribution of the state after a word, from the distribution over the states that can emit it."""
        return self.transition.push_from(int(self.blocks.word_block[word]), filtered)

    def word_probabilities(self, states: NDArray[Any]) -> F64:
        """(V,) p(word) from a distribution over all states."""
        return word_probabilities(self.blocks, states, self.emission)

    def emission_of(self, state: int) -> tuple[I64, F32]:
        """Words that a state emits, and with which probability."""
        block, first, starts = self.blocks
        b = int(np.searchsorted(first, state, side="right")) - 1
        words = np.flatnonzero(block == b)
        return words, self.emission[starts[words] + state - first[b]]

    def check(self) -> None:
        """Raise InputError unless all that should be distributions are."""
        check_rows(self.initial[None, :], "initial distribution")
        self.transition.check()
        block, first, starts = self.blocks
        word = np.repeat(np.arange(self.n_words), np.diff(starts))
        everywhere = (block < 0)[word]
        state = np.where(everywhere, 0, first[block[word]] + np.arange(len(word)) - starts[word])
        weights = np.where(everywhere, 0.0, self.emission)
        sums = np.bincount(state, weights=weights, minlength=self.n_states) + self.emission[everywhere].sum()
        check_sums(np.where(self.emission.min(initial=0.0) < 0, np.nan, sums), "emission")


class PlainStats(NamedTuple):
    """Expected counts without blocks, in the terms of the unblocked kernels."""

    log_likelihood: float
    n_tokens: int
    initial: F64
    transition: Any
    emission: F64

    def __add__(self, other: Any) -> PlainStats:
        return PlainStats(*(a + b for a, b in zip(self, other, strict=True)))


class PlainParams(NamedTuple):
    """A chain without blocks: any state may emit any word."""

    chain: ChainParams

    @property
    def initial(self) -> F32:
        return self.chain.initial

    @property
    def transition(self) -> Any:
        return self.chain.transition

    @property
    def n_states(self) -> int:
        return len(self.chain.initial)

    @property
    def n_words(self) -> int:
        return len(self.chain.emission)

    def dense_emission(self) -> F32:
        return np.ascontiguousarray(self.chain.emission.T)

    def statistics(self, ids: NDArray[Any], bounds: I64) -> PlainStats:
        s = discrete_chain.e_step(np.asarray(ids, dtype=np.int64), bounds, self.chain)
        return PlainStats(s.log_likelihood, s.n_tokens, s.initial, s.transition, s.emission)

    def filtered(self, ids: NDArray[Any], bounds: I64) -> BlockPosterior:
        result = discrete_chain.forward(np.asarray(ids, dtype=np.int64), bounds, self.chain, filtered=True)
        assert result.filtered is not None
        return BlockPosterior(result.log_prob, self._at(ids), result.filtered.ravel())

    def smoothed(self, ids: NDArray[Any], bounds: I64) -> BlockPosterior:
        ids = np.asarray(ids, dtype=np.int64)
        log_prob = discrete_chain.forward(ids, bounds, self.chain).log_prob
        return BlockPosterior(log_prob, self._at(ids), discrete_chain.posterior(ids, bounds, self.chain).ravel())

    def _at(self, ids: NDArray[Any]) -> I64:
        return np.arange(len(ids) + 1, dtype=np.int64) * self.n_states

    def first_live(self, ids: NDArray[Any]) -> I64:
        return np.zeros(len(ids), dtype=np.int64)

    def predicted(self, word: int, filtered: F32) -> F32:
        return np.asarray(self.transition.push(np.asarray(filtered)[None, :])[0])

    def word_probabilities(self, states: NDArray[Any]) -> F64:
        return np.asarray(self.chain.emission @ np.asarray(states, dtype=np.float64))

    def emission_of(self, state: int) -> tuple[I64, F32]:
        return np.arange(self.n_words), self.chain.emission[:, state]

    def check(self) -> None:
        discrete_chain.check_params(self.chain)


Params = BlockParams | PlainParams
AnyStats = block_chain.BlockStats | BlockLowRankStats | PlainStats
