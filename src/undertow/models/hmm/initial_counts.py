"""Expected counts that EM starts from: blocks of words, states within them, emissions and transitions.

Three methods, all from pair counts at lag 1:

- "random": only the counts of words and block pairs are used; noise makes the states differ.
- "clusters": blocks from the exchange algorithm, each split into one part per state by the neighbors of its words.
- "spectral": word vectors from the singular value decomposition of the whitened moment, clustered by k-means into
  blocks, which the exchange algorithm then improves, and into parts; transitions by non-negative least squares, so
  that together with the emissions they explain the counts.

A word gives the share 1 − softness of its tokens to the state of its part and spreads the rest, with noise, over all
states of its block: from hard parts alone EM starts in a corner of the parameter space and hardly leaves it. The two
factors of a low-rank transition come from the aggregate Markov model of the pairs of parts (`kernels.words.nmf`).

All results are expected counts; the M-step of the model smooths and normalizes them. Layouts are those of
`kernels.chain.blocks`: states are numbered block by block, and a word has one emission number for each state
of its block, from starts[word] on; with one block that is a (V, Z) table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from undertow.errors import InputError
from undertow.kernels.gaussian.hankel import hankel_svd
from undertow.kernels.gaussian.moments import text_moments
from undertow.kernels.types import F32, F64, I64
from undertow.kernels.words.exchange import exchange_clusters
from undertow.kernels.words.kmeans import kmeans, spread_centers
from undertow.kernels.words.nmf import aggregate_markov
from undertow.kernels.words.nnls import nonnegative_middle
from undertow.kernels.words.refine import neighbor_features, refine_classes
from undertow.text.lag_counts import LagCounts

INITS = ("random", "clusters", "spectral")
SOFTNESS = 0.5  # WikiText-2, 1,017 states: validation perplexity 283 after 5 passes, against 293 from hard parts
N_CONTEXTS = 128  # classes of neighbors that split blocks into parts, if the model has fewer blocks
MOST_STATES_NNLS = 4096  # above this, least squares is skipped and the counts of pairs of parts are used
NMF_STEPS = 30


class InitialCounts(NamedTuple):
    """Expected counts that EM starts from."""

    word_block: NDArray[np.int32]  # (V,)
    first: I64  # (G + 1,) block b has the states first[b] .. first[b + 1] - 1
    starts: I64  # (V + 1,)
    emission: F64  # (starts[-1],) tokens of each word in each state of its block
    pairs: csr_array  # (Z, Z) transitions between parts, of which the share 1 − softness is used
    block_pairs: I64  # (G, G) transitions between blocks, of which the share softness is spread over their states
    softness: float
    R: F64 | None  # (Z, F) p(f | z), rows sum to one
    E: F64 | None  # (F, Z) p(z' | f), rows sum to one

    @property
    def n_states(self) -> int:
        return int(self.first[-1])

    @property
    def state_block(self) -> I64:
        return np.repeat(np.arange(len(self.first) - 1, dtype=np.int64), np.diff(self.first))

    def state_tokens(self) -> F64:
        """(Z,) expected tokens of each state."""
        word = np.repeat(np.arange(len(self.word_block)), np.diff(self.starts))
        state = self.first[self.word_block[word]] + np.arange(len(word)) - self.starts[word]
        return np.asarray(np.bincount(state, weights=self.emission, minlength=self.n_states), dtype=np.float64)

    def initial(self) -> F64:
        """(Z,) initial distribution: that of the state of any token."""
        tokens = self.state_tokens() + 1e-3
        return np.asarray(tokens / tokens.sum())

    def pair_counts(self, before: NDArray[Any], after: NDArray[Any], rng: np.random.Generator) -> F64:
        """Expected transitions for each pair of blocks (before[p], after[p]): row-major k×k' matrices, concatenated."""
        sizes, G = np.diff(self.first), len(self.first) - 1
        lengths = sizes[before] * sizes[after]
        starts = np.concatenate(([0], np.cumsum(lengths)))
        out = rng.standard_exponential(starts[-1])
        out *= np.repeat(self.softness * self.block_pairs[before, after] / lengths, lengths)
        which = np.full((G, G), -1, dtype=np.int64)
        which[before, after] = np.arange(len(before))
        steps, block = self.pairs.tocoo(), self.state_block
        i, j = block[steps.row], block[steps.col]
        kept = which[i, j] >= 0
        i, j, row, column = i[kept], j[kept], steps.row[kept], steps.col[kept]
        at = starts[which[i, j]] + (row - self.first[i]) * sizes[j] + (column - self.first[j])
        np.add.at(out, at, (1 - self.softness) * steps.data[kept])
        return np.asarray(out)

    def factor_counts(self) -> tuple[F64, F64]:
        """(Z, F) expected counts of z → f and (F, Z) of f → z', if there is a rank."""
        assert self.R is not None and self.E is not None
        steps = self.state_tokens()[:, None] * self.R
        return steps, np.asarray(steps.sum(axis=0)[:, None] * self.E)

    def dense_pairs(self, rng: np.random.Generator) -> F64:
        """(Z, Z) expected transitions, for a dense transition matrix."""
        block, sizes = self.state_block, np.diff(self.first)[self.state_block]
        spread = self.block_pairs[np.ix_(block, block)] / np.outer(sizes, sizes)
        noise = rng.standard_exponential((self.n_states, self.n_states))
        return np.asarray((1 - self.softness) * self.pairs.toarray() + self.softness * spread * noise)


def initial_counts(
    counts: LagCounts,
    n_states: int,
    *,
    n_blocks: int = 1,
    rank: int | None = None,
    init: str = "clusters",
    rng: np.random.Generator,
    softness: float = SOFTNESS,
    word_block: NDArray[Any] | None = None,
    n_threads: int = 1,
) -> InitialCounts:
    """Blocks, states and expected counts from the pairs at lag 1; `word_block` (V,) gives blocks that are known."""
    if init not in INITS:
        raise InputError(f"init={init!r} must be one of {', '.join(INITS)}.")
    _check_sizes(counts, n_states, n_blocks, rank)
    unigram, matrix = counts.vocabulary.counts, counts.matrix(1)
    vectors = word_vectors(counts, rng, n_threads) if init == "spectral" else None
    if word_block is None:
        word_block = _blocks(counts, matrix, n_blocks, init, vectors, rng)
    block = np.asarray(word_block, dtype=np.int32)
    first = np.concatenate(([0], np.cumsum(states_per_block(block, n_states, n_blocks, _alone(counts, n_blocks)))))
    if init == "random":
        softness, part = 1.0, first[block].astype(np.int32)
    elif vectors is None:
        part = _parts_by_neighbors(matrix, unigram, block, first)
    else:
        part = _parts_by_vectors(vectors, unigram, block, first, rng)
    starts, emission = _soft_emission(unigram, block, first, part, softness, rng)
    between = _between(matrix, part, n_states)
    result = InitialCounts(
        block, first, starts, emission, between, _block_pairs(matrix, block, n_blocks), softness, None, None
    )
    if init == "spectral" and n_states <= MOST_STATES_NNLS:
        result = result._replace(pairs=_least_squares_pairs(result, part))
    if rank is not None:
        R, E = _factors(result, rank, rng, fit_pairs=init != "random")
        result = result._replace(R=R, E=E)
    return result


def word_vectors(counts: LagCounts, rng: np.random.Generator, n_threads: int = 1, n_components: int = 50) -> F32:
    """(V, ≤ 2h) unit vectors of the contexts before and after a word, by SVD of the whitened lag-1 moment."""
    vocabulary = counts.vocabulary
    kappa = float(vocabulary.counts.sum()) / len(vocabulary)
    moments = text_moments(vocabulary.counts, [counts.matrix(1)], kappa=kappa, n_threads=n_threads)
    h = min(n_components, moments.dimension)
    svd = hankel_svd(moments, h, rng.standard_normal, r=1)
    scale = np.divide(1.0, np.sqrt(moments.mu), out=np.zeros_like(moments.mu), where=moments.mu > 0)
    both = np.concatenate([svd.left[0] * svd.values, svd.right[0] * svd.values], axis=1) * scale[:, None]
    length = np.linalg.norm(both, axis=1, keepdims=True)
    return np.asarray(both / np.where(length > 0, length, 1.0), dtype=np.float32)


def states_per_block(word_block: NDArray[Any], n_states: int, n_blocks: int, alone: int | None = None) -> I64:
    """(G,) numbers of states: equal, or one more in the first blocks; the block of the word `alone` has one state."""
    sizes = np.zeros(n_blocks, dtype=np.int64)
    others = np.arange(n_blocks)
    if alone is not None:
        sizes[word_block[alone]] = 1
        others = others[others != word_block[alone]]
        n_states -= 1
    if len(others):
        sizes[others] = n_states // len(others)
        sizes[others[: n_states % len(others)]] += 1
    return sizes


# --- blocks and their parts -----------------------------------------------------------------------------


def _check_sizes(counts: LagCounts, n_states: int, n_blocks: int, rank: int | None) -> None:
    if counts.nnz(1) == 0:
        raise InputError("No sentence has more than one token: a hidden Markov model learns from neighboring words.")
    if not 1 <= n_blocks <= len(counts.vocabulary):
        raise InputError(f"n_blocks={n_blocks} must be between 1 and the number of words, {len(counts.vocabulary)}.")
    if n_states < n_blocks:
        raise InputError(f"n_states={n_states} is too small: each of the {n_blocks} blocks needs a state.")
    if rank is not None and not 1 <= rank <= n_states:
        raise InputError(f"rank={rank} must be between 1 and the number of states, {n_states}.")


def _alone(counts: LagCounts, n_blocks: int) -> int | None:
    """The boundary word gets a block with a single state, so that no information passes the end of a sentence."""
    return counts.vocabulary.boundary_id if n_blocks > 1 else None


def _blocks(
    counts: LagCounts, matrix: csr_array, n_blocks: int, init: str, vectors: F32 | None, rng: np.random.Generator
) -> NDArray[np.int32]:
    """The block of each word: clusters even for init="random", because EM does not change the blocks."""
    unigram, alone = counts.vocabulary.counts, _alone(counts, n_blocks)
    if n_blocks == 1:
        return np.zeros(len(unigram), dtype=np.int32)
    fixed = None if alone is None else [alone]
    start = None
    if vectors is not None:
        others = np.arange(len(unigram)) != (-1 if alone is None else alone)
        shift = int(alone is not None)
        start = np.zeros(len(unigram), dtype=np.int32)
        start[others] = shift + _cluster(vectors[others], unigram[others], n_blocks - shift, rng)
    return exchange_clusters(matrix, unigram, n_blocks, start=start, fixed=fixed)[0]


def _parts_by_neighbors(matrix: csr_array, unigram: I64, block: NDArray[np.int32], first: I64) -> NDArray[np.int32]:
    G = len(first) - 1
    contexts, n_contexts = block, G
    if G < N_CONTEXTS:
        n_contexts = max(G, min(N_CONTEXTS, len(unigram) // 2, int(first[-1])))
        if n_contexts > G:
            contexts, _ = exchange_clusters(matrix, unigram, n_contexts)
    return refine_classes(neighbor_features(matrix, contexts, n_contexts), unigram, block, first)[0]


def _parts_by_vectors(
    vectors: F32, unigram: I64, block: NDArray[np.int32], first: I64, rng: np.random.Generator
) -> NDArray[np.int32]:
    part = first[block].astype(np.int32)
    for b in range(len(first) - 1):
        words = np.flatnonzero(block == b)
        k = int(min(first[b + 1] - first[b], len(words)))
        if k > 1:
            part[words] += _cluster(vectors[words], unigram[words], k, rng)
    return part


def _cluster(X: F32, unigram: I64, k: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """k-means with words weighted by the square root of their counts, so that frequent words do not dominate."""
    weights = np.sqrt(unigram + 1.0)
    return kmeans(X, weights, X[spread_centers(X, weights, rng.random(k))])[0]


# --- expected counts ------------------------------------------------------------------------------------


def _soft_emission(
    unigram: I64,
    block: NDArray[np.int32],
    first: I64,
    part: NDArray[np.int32],
    softness: float,
    rng: np.random.Generator,
) -> tuple[I64, F64]:
    lengths = np.diff(first)[block]
    starts = np.concatenate(([0], np.cumsum(lengths)))
    spread = np.repeat(softness * unigram / lengths, lengths)
    emission = spread * rng.standard_exponential(int(starts[-1]))
    emission[starts[:-1] + part - first[block]] += (1 - softness) * unigram
    return starts, emission


def _between(matrix: csr_array, part: NDArray[np.int32], n_states: int) -> csr_array:
    """Transitions between parts, from matrix[i, j]: how often word i came after word j."""
    entries = matrix.tocoo()
    where = (part[entries.col], part[entries.row])
    return csr_array(coo_array((entries.data.astype(np.float64), where), shape=(n_states, n_states)))


def _block_pairs(matrix: csr_array, block: NDArray[np.int32], n_blocks: int) -> I64:
    return np.asarray(_between(matrix, block, n_blocks).toarray(), dtype=np.int64)


def _least_squares_pairs(counts: InitialCounts, part: NDArray[np.int32]) -> csr_array:
    """Transitions J ≥ 0 between states such that C ≈ M'JM, C being those between parts and M[z, c] = p(c | z)."""
    word = np.repeat(np.arange(len(counts.word_block)), np.diff(counts.starts))
    state = counts.first[counts.word_block[word]] + np.arange(len(word)) - counts.starts[word]
    n = counts.n_states
    M = coo_array((counts.emission, (state, part[word])), shape=(n, n)).toarray()
    M /= np.maximum(M.sum(axis=1, keepdims=True), 1e-300)
    sizes, C = np.diff(counts.first), counts.pairs.tocsr()
    spots, values = [], []
    for i in range(len(sizes)):
        own = slice(counts.first[i], counts.first[i + 1])
        wide = C[own].toarray()
        after = np.unique(counts.state_block[C[own].indices])
        for k in np.unique(sizes[after]):  # blocks of equal size are solved together
            states = counts.first[after[sizes[after] == k]][:, None] + np.arange(k)
            J = nonnegative_middle(
                wide[:, states].transpose(1, 0, 2), M[own, own], M[states[:, :, None], states[:, None, :]]
            )
            where, row, column = np.nonzero(J)
            spots.append((row + counts.first[i], states[where, column]))
            values.append(J[where, row, column])
    rows, columns = (np.concatenate(parts) for parts in zip(*spots, strict=True))
    return csr_array((np.concatenate(values), (rows, columns)), shape=(n, n))


def _factors(counts: InitialCounts, rank: int, rng: np.random.Generator, *, fit_pairs: bool) -> tuple[F64, F64]:
    """R and E; those of the parts are mixed with those of their blocks, like the emissions."""
    Z = counts.n_states
    tokens = counts.state_tokens() + 1e-3
    R = rng.standard_exponential((Z, rank))
    E = rng.standard_exponential((rank, Z)) * tokens
    R, E = R / R.sum(axis=1, keepdims=True), E / E.sum(axis=1, keepdims=True)
    if not fit_pairs:
        return R, E
    R_part, E_part, _ = aggregate_markov(counts.pairs, R, E, NMF_STEPS)
    edges, block = counts.first[:-1], counts.state_block
    share = tokens / np.add.reduceat(tokens, edges)[block]
    R_block = np.add.reduceat(R_part * share[:, None], edges, axis=0)[block]
    E_block = np.add.reduceat(E_part, edges, axis=1)[:, block] / np.diff(counts.first)[block]
    s = counts.softness
    R = (1 - s) * R_part + s * R_block * rng.standard_exponential(R.shape)
    E = (1 - s) * E_part + s * E_block * rng.standard_exponential(E.shape)
    return R / R.sum(axis=1, keepdims=True), E / E.sum(axis=1, keepdims=True)
