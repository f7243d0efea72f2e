"""Parameters of a hidden Markov model of text, with blocks and without.

z_1 ~ initial, z_t ~ transition(z_{t-1}), x_t ~ emission(z_t). `BlockParams` is a chain whose states emit only the words
of their block; in `PlainParams` any state may emit any word. Both keep the protocol `HMMParams`, so that other modules
need not ask which one they have.

A plain chain is not kept as one block, because the kernels of block chains are made for few live states: on 16,600
tokens an E-step with one block took 12 times as long at 80 states and 28 times at 512 (low rank: 6 times at both), and
`smoothed` gave a fifth and a fifteenth of the tokens a second (low rank: a quarter). Log-likelihoods agreed to 2e-10.
Besides, a band has no form with blocks, and transitions are smoothed towards other means.

A word that was never seen in training is emitted by every state with the same probability: it is a missing
observation, which says nothing about the state but still has the probability of an unseen word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain import inference as discrete_chain
from undertow.kernels.chain import sparse as block_chain
from undertow.kernels.chain import sparse_low_rank as block_low_rank
from undertow.kernels.chain.block_operators import BlockLowRank, PairSparse
from undertow.kernels.chain.blocks import (
    Blocks,
    largest_emission,
    live_firsts,
    offsets,
    weighted_emission,
    word_probabilities,
    word_probability_rows,
)
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.leave_one_out import log_both_sides_plain
from undertow.kernels.chain.operators import LowRank, add_stats
from undertow.kernels.chain.sampling import ChainTables, FeatureTables, PairTables, block_tables, chain_tables
from undertow.kernels.chain.small import viterbi_logs
from undertow.kernels.chain.smoothing import check_rows, check_sums
from undertow.kernels.chain.sparse import BlockPosterior, Messages
from undertow.kernels.chain.viterbi import viterbi_blocks
from undertow.kernels.types import F32, F64, I64

MOST_STATES_VITERBI = 4096  # of a plain chain without a low rank


class Emission(NamedTuple):
    """p(word | state); `dense` is (Z, V), for small models."""

    params: HMMParams

    def dense(self) -> F32:
        return self.params.dense_emission()


class HMMParams(Protocol):
    """What models and questions ask of the parameters. Texts are flat ids with the bounds of independent sequences."""

    @property
    def initial(self) -> F32: ...

    @property
    def transition(self) -> Any: ...

    @property
    def n_states(self) -> int: ...

    @property
    def n_words(self) -> int: ...

    def dense_emission(self) -> F32:
        """(Z, V) emission probabilities, for small models."""

    def statistics(self, ids: NDArray[Any], bounds: I64) -> Any:
        """The expected counts of an E-step, a NamedTuple with `+`."""

    def filtered(self, ids: NDArray[Any], bounds: I64) -> BlockPosterior:
        """p(z_t | x_≤t) over the live states of each token."""

    def smoothed(self, ids: NDArray[Any], bounds: I64) -> BlockPosterior:
        """p(z_t | x) over the live states of each token."""

    def best_path(self, ids: NDArray[Any], bounds: I64) -> I64:
        """(T,) states of the most probable paths; for a low-rank transition those of the joint path with the features.

        Sequences without a possible path have states −1.
        """

    def sampling_tables(self, drawable: NDArray[np.bool_], block_masses: F32 | None) -> Any:
        """Alias tables for `sampling.sample`; only the words marked in `drawable` (V,) are drawn."""

    def first_live(self, ids: NDArray[Any]) -> I64:
        """(T,) the first state that can emit each word."""

    def predicted(self, word: int, filtered: F32) -> F32:
        """(Z,) distribution of the state after a word, from the distribution over the states that can emit it."""

    def word_probabilities(self, states: NDArray[Any]) -> F64:
        """(V,) p(word) from a distribution over all states."""

    def emission_of(self, state: int) -> tuple[I64, F32]:
        """The words that a state emits and their probabilities."""

    def live_emission(self, word: int) -> tuple[slice, F32]:
        """The states that can emit a word, and with which probability; one number if it is the same for all."""

    def word_rows(self, states: NDArray[Any]) -> NDArray[Any]:
        """(n, V) p(word) from distributions (n, Z), in the precision of the parameters."""

    def observing(self, words: I64, rows: Sequence[NDArray[Any]]) -> Params:
        """The chain whose words are these: some of its own, then evidence, each (Z,) one likelihood a state."""

    def weighted_emission(self, weights: NDArray[Any]) -> F64:
        """(Z,) Σ_w weight_w p(w | z), the likelihood of evidence that weighs the words."""

    def largest_emission(self, weights: NDArray[Any]) -> tuple[F64, I64]:
        """(Z,) the largest weight_w p(w | z), and its word."""

    def messages(self, ids: NDArray[Any], bounds: I64) -> Messages:
        """What each token and all after it say about its state."""

    def log_both_sides(self, ids: NDArray[Any], bounds: I64) -> F64:
        """(T,) log p(x_t | all other tokens of its sequence); −inf in sequences of probability zero."""

    def pulled(self, word: int, message: F32) -> F32:
        """(Z,) T·message: from what a word and all after it say, over its live states, to the state before it."""

    def check(self) -> None:
        """Raise InputError unless all rows that should be distributions are."""


class BlockParams(NamedTuple):
    """A chain with blocks: emission numbers are laid out word by word, one for each state of the word's block."""

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

    def best_path(self, ids: NDArray[Any], bounds: I64) -> I64:
        return viterbi_blocks(ids, bounds, self.blocks, self.transition, self.initial, self.emission)

    def sampling_tables(self, drawable: NDArray[np.bool_], block_masses: F32 | None) -> PairTables | FeatureTables:
        return block_tables(self.blocks, self.transition, self.emission, drawable, block_masses)

    def first_live(self, ids: NDArray[Any]) -> I64:
        return live_firsts(self.blocks, ids)

    def predicted(self, word: int, filtered: F32) -> F32:
        return self.transition.push_from(int(self.blocks.word_block[word]), filtered)

    def word_probabilities(self, states: NDArray[Any]) -> F64:
        return word_probabilities(self.blocks, states, self.emission)

    def emission_of(self, state: int) -> tuple[I64, F32]:
        block, first, starts = self.blocks
        b = int(np.searchsorted(first, state, side="right")) - 1
        words = np.flatnonzero(block == b)
        return words, self.emission[starts[words] + state - first[b]]

    def live_emission(self, word: int) -> tuple[slice, F32]:
        starts = self.blocks.starts
        return self.blocks.live(int(self.blocks.word_block[word])), self.emission[starts[word] : starts[word + 1]]

    def word_rows(self, states: NDArray[Any]) -> NDArray[Any]:
        return word_probability_rows(self.blocks, states, self.emission)

    def observing(self, words: I64, rows: Sequence[NDArray[Any]]) -> BlockParams:
        """A row with states of one block has that block; all others leave all states alive."""
        block, first, starts = self.blocks
        of, parts = block[words].tolist(), [self.emission[starts[w] : starts[w + 1]] for w in np.asarray(words)]
        for row in rows:
            alive = np.flatnonzero(row)
            ends = np.searchsorted(first, alive[[0, -1]], side="right") - 1 if len(alive) else np.array([0, 0])
            one_block = ends[0] == ends[1] and self.blocks.n_blocks > 1
            of.append(int(ends[0]) if one_block else -1)
            part = row[first[ends[0]] : first[ends[0] + 1]] if one_block else row
            same = not one_block and bool((row == row[0]).all())
            parts.append(np.asarray(part[:1] if same else part, dtype=np.float32))
        lengths = [len(part) for part in parts]
        blocks = Blocks(np.array(of, dtype=np.int32), first, offsets(lengths))
        return self._replace(blocks=blocks, emission=np.concatenate(parts))

    def weighted_emission(self, weights: NDArray[Any]) -> F64:
        return weighted_emission(self.blocks, self.emission, weights)

    def largest_emission(self, weights: NDArray[Any]) -> tuple[F64, I64]:
        return largest_emission(self.blocks, self.emission, weights)

    def messages(self, ids: NDArray[Any], bounds: I64) -> Messages:
        fn: Any = block_chain.messages_blocks if self._pairs else block_low_rank.messages_low_rank
        return fn(ids, bounds, self.blocks, self.transition, self.emission)  # type: ignore[no-any-return]

    def log_both_sides(self, ids: NDArray[Any], bounds: I64) -> F64:
        fn: Any = block_chain.log_both_sides_blocks if self._pairs else block_low_rank.log_both_sides_low_rank
        return fn(ids, bounds, self.blocks, self.transition, self.initial, self.emission)  # type: ignore[no-any-return]

    def pulled(self, word: int, message: F32) -> F32:
        return self.transition.pull_to(int(self.blocks.word_block[word]), message)

    def check(self) -> None:
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
    """Expected counts of a chain without blocks; additive."""

    log_likelihood: float
    n_tokens: int
    initial: F64
    transition: Any
    emission: F64

    def __add__(self, other: Any) -> PlainStats:
        return add_stats(self, other)


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

    def best_path(self, ids: NDArray[Any], bounds: I64) -> I64:
        initial, transition, emission = self.chain
        if isinstance(transition, LowRank):  # as one block: the joint path with the features
            blocks = Blocks.of(np.zeros(self.n_words, dtype=np.int32), np.array([self.n_states]))
            T = BlockLowRank(blocks.first, transition.R, np.ascontiguousarray(transition.E.T))
            return viterbi_blocks(ids, bounds, blocks, T, initial, emission.ravel())
        if self.n_states > MOST_STATES_VITERBI:
            raise InputError("Viterbi needs the whole transition matrix here, too large: use method='posterior'.")
        with np.errstate(divide="ignore"):
            scores = np.log(emission[np.asarray(ids, dtype=np.int64)].astype(np.float64))
        paths, _ = viterbi_logs(scores, np.asarray(bounds), initial.astype(float), transition.dense().astype(float))
        return paths.astype(np.int64)

    def sampling_tables(self, drawable: NDArray[np.bool_], block_masses: F32 | None) -> ChainTables:
        emission = np.where(drawable[:, None], self.chain.emission, np.float32(0))
        return chain_tables(self.chain._replace(emission=emission))

    def first_live(self, ids: NDArray[Any]) -> I64:
        return np.zeros(len(ids), dtype=np.int64)

    def predicted(self, word: int, filtered: F32) -> F32:
        return np.asarray(self.transition.push(np.asarray(filtered)[None, :])[0])

    def word_probabilities(self, states: NDArray[Any]) -> F64:
        return np.asarray(self.chain.emission @ np.asarray(states, dtype=np.float64))

    def emission_of(self, state: int) -> tuple[I64, F32]:
        return np.arange(self.n_words), self.chain.emission[:, state]

    def live_emission(self, word: int) -> tuple[slice, F32]:
        return slice(0, self.n_states), self.chain.emission[word]

    def word_rows(self, states: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.asarray(states, dtype=self.chain.emission.dtype) @ self.chain.emission.T)

    def observing(self, words: I64, rows: Sequence[NDArray[Any]]) -> PlainParams:
        emission = self.chain.emission
        table = np.empty((len(words) + len(rows), self.n_states), dtype=emission.dtype)
        table[: len(words)] = emission[words]
        for i, row in enumerate(rows):
            table[len(words) + i] = row
        return PlainParams(self.chain._replace(emission=table))

    def weighted_emission(self, weights: NDArray[Any]) -> F64:
        used = np.flatnonzero(weights)
        if 2 * len(used) > self.n_words:  # without a copy of the rows
            return np.asarray(np.asarray(weights, dtype=self.chain.emission.dtype) @ self.chain.emission, np.float64)
        return np.asarray(np.asarray(weights)[used] @ self.chain.emission[used], dtype=np.float64)

    def largest_emission(self, weights: NDArray[Any]) -> tuple[F64, I64]:
        best, word = np.full(self.n_states, -1.0), np.zeros(self.n_states, dtype=np.int64)
        for w in np.flatnonzero(weights).tolist():
            p = weights[w] * self.chain.emission[w].astype(np.float64)
            word[p > best] = w
            np.maximum(best, p, out=best)
        return best, word

    def messages(self, ids: NDArray[Any], bounds: I64) -> Messages:
        log_scale, values = discrete_chain.messages(np.asarray(ids, dtype=np.int64), bounds, self.chain)
        return Messages(log_scale, self._at(ids), values.ravel())

    def log_both_sides(self, ids: NDArray[Any], bounds: I64) -> F64:
        return log_both_sides_plain(np.asarray(ids, dtype=np.int64), np.asarray(bounds), self.chain)

    def pulled(self, word: int, message: F32) -> F32:
        return np.asarray(self.transition.pull(np.asarray(message)[None, :])[0])

    def check(self) -> None:
        discrete_chain.check_params(self.chain)


Params = BlockParams | PlainParams
KINDS: tuple[type[HMMParams], ...] = (BlockParams, PlainParams)  # the type checker compares both with the protocol
