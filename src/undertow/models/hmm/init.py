"""Where a hidden Markov model of text begins: blocks of words, states within them, emissions and transitions.

Three ways, all from pair counts at lag 1:

- "random": nothing is known but how often words and pairs of blocks come; noise tells the states apart.
- "clusters": blocks from the exchange algorithm; each is cut into parts by its neighbours, a part a state.
- "spectral": word vectors from the singular value decomposition of the whitened moment, clustered by k-means into
  blocks, which the exchange algorithm then improves, and into parts; transitions by non-negative least squares, so
  that together with the emissions they explain the counts.

A word gives the share 1 − softness of its tokens to the state of its part and spreads the rest, with noise, over all
the states of its block: with hard parts alone EM would begin in a corner and hardly leave it. The two factors of a
low-rank transition come from the aggregate Markov model of the pairs of parts (`kernels.nmf`).

Everything is in expected counts, to be smoothed and normalised by the model's own M-step. Layouts are those of
`kernels.block_chain`: states are numbered block by block, and a word has one emission number for each state of its
block, from starts[word] on; with one block that is a (V, Z) table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from undertow.errors import InputError
from undertow.kernels.gaussian.hankel import hankel_svd
from undertow.kernels.gaussian.moments import text_moments
from undertow.kernels.words.exchange import exchange_clusters
from undertow.kernels.words.kmeans import kmeans, spread_centres
from undertow.kernels.words.nmf import aggregate_markov
from undertow.kernels.words.nnls import nonnegative_middle
from undertow.kernels.words.refine import neighbour_features, refine_classes
from undertow.text.lag_counts import LagCounts

Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]
Ints = NDArray[np.int64]

INITS = ("random", "clusters", "spectral")
SOFTNESS = 0.5  # WikiText-2, 1,017 states: valid 283 after 5 passes, 293 from hard parts, and falling faster
CONTEXTS = 128  # classes of neighbours that parts are made by, where the model itself has fewer blocks
MOST_STATES_NNLS = 4096  # beyond, the pairs of parts are taken as they are
NMF_STEPS = 30


class HMMStart(NamedTuple):
    """Expected counts to begin from."""

    word_block: NDArray[np.int32]  # (V,)
    first: Ints  # (G + 1,) block b has the states first[b] .. first[b + 1] - 1
    starts: Ints  # (V + 1,)
    emission: Floats  # (starts[-1],) tokens of each word in each state of its block
    pairs: csr_array  # (Z, Z) steps between parts; what `softness` leaves of them is spread within pairs of blocks
    block_pairs: Ints  # (G, G) steps between blocks
    softness: float
    R: Floats | None  # (Z, F) p(f | z), rows sum to one
    E: Floats | None  # (F, Z) p(z' | f), rows sum to one

    @property
    def n_states(self) -> int:
        return int(self.first[-1])

    @property
    def state_block(self) -> Ints:
        return np.repeat(np.arange(len(self.first) - 1, dtype=np.int64), np.diff(self.first))

    def state_tokens(self) -> Floats:
        """(Z,) expected tokens of each state."""
        word = np.repeat(np.arange(len(self.word_block)), np.diff(self.starts))
        state = self.first[self.word_block[word]] + np.arange(len(word)) - self.starts[word]
        return np.asarray(np.bincount(state, weights=self.emission, minlength=self.n_states), dtype=np.float64)

    def initial(self) -> Floats:
        """(Z,) a start anywhere in the text."""
        tokens = self.state_tokens() + 1e-3
        return np.asarray(tokens / tokens.sum())

    def pair_counts(self, before: NDArray[Any], after: NDArray[Any], rng: np.random.Generator) -> Floats:
        """Expected steps for each pair of blocks (before[p], after[p]), a row-major k×k' matrix behind the other."""
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

    def factor_counts(self) -> tuple[Floats, Floats]:
        """(Z, F) expected steps z → f and (F, Z) expected steps f → z', for a start with a rank."""
        assert self.R is not None and self.E is not None
        steps = self.state_tokens()[:, None] * self.R
        return steps, np.asarray(steps.sum(axis=0)[:, None] * self.E)

    def dense_pairs(self, rng: np.random.Generator) -> Floats:
        """(Z, Z) expected steps: for models whose transition is dense."""
        block, sizes = self.state_block, np.diff(self.first)[self.state_block]
        spread = self.block_pairs[np.ix_(block, block)] / np.outer(sizes, sizes)
        noise = rng.standard_exponential((self.n_states, self.n_states))
        return np.asarray((1 - self.softness) * self.pairs.toarray() + self.softness * spread * noise)


def hmm_start(
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
) -> HMMStart:
    """Blocks, states and expected counts from the pairs at lag 1; blocks that are there already may be given."""
    if init not in INITS:
        raise InputError(f"init={init!r} must be one of {', '.join(INITS)}.")
    _check_sizes(counts, n_states, n_blocks, rank)
    unigram, matrix = counts.vocabulary.counts, counts.matrix(1)
    vectors = word_vectors(counts, rng, n_threads) if init == "spectral" else None
    if word_block is None:
        word_block = _blocks(counts, matrix, n_blocks, init, vectors, rng)
    block = np.asarray(word_block, dtype=np.int32)
    first = np.concatenate(([0], np.cumsum(share_states(block, n_states, n_blocks, _alone(counts, n_blocks)))))
    if init == "random":
        softness, part = 1.0, first[block].astype(np.int32)
    elif vectors is None:
        part = _parts_by_neighbours(matrix, unigram, block, first)
    else:
        part = _parts_by_vectors(vectors, unigram, block, first, rng)
    starts, emission = _soft_emission(unigram, block, first, part, softness, rng)
    between = _between(matrix, part, n_states)
    start = HMMStart(block, first, starts, emission, between, _dense(matrix, block, n_blocks), softness, None, None)
    if init == "spectral" and n_states <= MOST_STATES_NNLS:
        start = start._replace(pairs=_explained(start, part))
    if rank is not None:
        R, E = _factors(start, rank, rng, known=init != "random")
        start = start._replace(R=R, E=E)
    return start


def word_vectors(counts: LagCounts, rng: np.random.Generator, n_threads: int = 1, n_components: int = 50) -> Vectors:
    """(V, ≤ 2h) unit vectors: what comes before and after a word, by the SVD of the whitened lag-1 moment."""
    vocabulary = counts.vocabulary
    kappa = float(vocabulary.counts.sum()) / len(vocabulary)
    moments = text_moments(vocabulary.counts, [counts.matrix(1)], kappa=kappa, n_threads=n_threads)
    h = min(n_components, moments.dimension)
    svd = hankel_svd(moments, h, rng.standard_normal, r=1)
    scale = np.divide(1.0, np.sqrt(moments.mu), out=np.zeros_like(moments.mu), where=moments.mu > 0)
    both = np.concatenate([svd.left[0] * svd.values, svd.right[0] * svd.values], axis=1) * scale[:, None]
    length = np.linalg.norm(both, axis=1, keepdims=True)
    return np.asarray(both / np.where(length > 0, length, 1.0), dtype=np.float32)


def share_states(word_block: NDArray[Any], n_states: int, n_blocks: int, alone: int | None = None) -> Ints:
    """States of each block: equally many, the first blocks one more; the block of the word `alone` has one."""
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
        raise InputError("No sentence has more than one token: a hidden Markov model needs neighbours to learn from.")
    if not 1 <= n_blocks <= len(counts.vocabulary):
        raise InputError(f"n_blocks={n_blocks} must lie between 1 and the number of words, {len(counts.vocabulary)}.")
    if n_states < n_blocks:
        raise InputError(f"n_states={n_states} are too few: each of the {n_blocks} blocks needs one.")
    if rank is not None and not 1 <= rank <= n_states:
        raise InputError(f"rank={rank} must lie between 1 and the number of states, {n_states}.")


def _alone(counts: LagCounts, n_blocks: int) -> int | None:
    """The boundary has a block of its own with a single state, so that a sentence's end forgets everything."""
    return counts.vocabulary.boundary_id if n_blocks > 1 else None


def _blocks(
    counts: LagCounts, matrix: csr_array, n_blocks: int, init: str, vectors: Vectors | None, rng: np.random.Generator
) -> NDArray[np.int32]:
    """The block of each word. Random starts too have clusters for blocks: blocks are not learned later."""
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


def _parts_by_neighbours(
    matrix: csr_array, unigram: NDArray[np.int64], block: NDArray[np.int32], first: Ints
) -> NDArray[np.int32]:
    G = len(first) - 1
    contexts, n_contexts = block, G
    if G < CONTEXTS:
        n_contexts = max(G, min(CONTEXTS, len(unigram) // 2, int(first[-1])))
        if n_contexts > G:
            contexts, _ = exchange_clusters(matrix, unigram, n_contexts)
    return refine_classes(neighbour_features(matrix, contexts, n_contexts), unigram, block, first)[0]


def _parts_by_vectors(
    vectors: Vectors, unigram: NDArray[np.int64], block: NDArray[np.int32], first: Ints, rng: np.random.Generator
) -> NDArray[np.int32]:
    part = first[block].astype(np.int32)
    for b in range(len(first) - 1):
        words = np.flatnonzero(block == b)
        k = int(min(first[b + 1] - first[b], len(words)))
        if k > 1:
            part[words] += _cluster(vectors[words], unigram[words], k, rng)
    return part


def _cluster(X: Vectors, unigram: NDArray[np.int64], k: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """k-means in which a word counts for the root of its tokens: a few words have most of the text."""
    weights = np.sqrt(unigram + 1.0)
    return kmeans(X, weights, X[spread_centres(X, weights, rng.random(k))])[0]


# --- expected counts ------------------------------------------------------------------------------------


def _soft_emission(
    unigram: NDArray[np.int64],
    block: NDArray[np.int32],
    first: Ints,
    part: NDArray[np.int32],
    softness: float,
    rng: np.random.Generator,
) -> tuple[Ints, Floats]:
    lengths = np.diff(first)[block]
    starts = np.concatenate(([0], np.cumsum(lengths)))
    spread = np.repeat(softness * unigram / lengths, lengths)
    emission = spread * rng.standard_exponential(int(starts[-1]))
    emission[starts[:-1] + part - first[block]] += (1 - softness) * unigram
    return starts, emission


def _between(matrix: csr_array, part: NDArray[np.int32], n_states: int) -> csr_array:
    """Steps from part to part; matrix[i, j]: word i came after word j."""
    entries = matrix.tocoo()
    where = (part[entries.col], part[entries.row])
    return csr_array(coo_array((entries.data.astype(np.float64), where), shape=(n_states, n_states)))


def _dense(matrix: csr_array, block: NDArray[np.int32], n_blocks: int) -> Ints:
    return np.asarray(_between(matrix, block, n_blocks).toarray(), dtype=np.int64)


def _explained(start: HMMStart, part: NDArray[np.int32]) -> csr_array:
    """Steps J ≥ 0 between states that explain those between parts, C ≈ M'JM with M[z, c] = p(c | z)."""
    word = np.repeat(np.arange(len(start.word_block)), np.diff(start.starts))
    state = start.first[start.word_block[word]] + np.arange(len(word)) - start.starts[word]
    n = start.n_states
    M = coo_array((start.emission, (state, part[word])), shape=(n, n)).toarray()
    M /= np.maximum(M.sum(axis=1, keepdims=True), 1e-300)
    sizes, C = np.diff(start.first), start.pairs.tocsr()
    spots, values = [], []
    for i in range(len(sizes)):
        own = slice(start.first[i], start.first[i + 1])
        wide = C[own].toarray()
        after = np.unique(start.state_block[C[own].indices])
        for k in np.unique(sizes[after]):  # the blocks of one size, side by side
            states = start.first[after[sizes[after] == k]][:, None] + np.arange(k)
            J = nonnegative_middle(
                wide[:, states].transpose(1, 0, 2), M[own, own], M[states[:, :, None], states[:, None, :]]
            )
            where, row, column = np.nonzero(J)
            spots.append((row + start.first[i], states[where, column]))
            values.append(J[where, row, column])
    rows, columns = (np.concatenate(parts) for parts in zip(*spots, strict=True))
    return csr_array((np.concatenate(values), (rows, columns)), shape=(n, n))


def _factors(start: HMMStart, rank: int, rng: np.random.Generator, *, known: bool) -> tuple[Floats, Floats]:
    """R and E; those of the parts are mixed with those of their blocks, as the emissions are."""
    Z = start.n_states
    tokens = start.state_tokens() + 1e-3
    R = rng.standard_exponential((Z, rank))
    E = rng.standard_exponential((rank, Z)) * tokens
    R, E = R / R.sum(axis=1, keepdims=True), E / E.sum(axis=1, keepdims=True)
    if not known:
        return R, E
    R_part, E_part, _ = aggregate_markov(start.pairs, R, E, NMF_STEPS)
    edges, block = start.first[:-1], start.state_block
    share = tokens / np.add.reduceat(tokens, edges)[block]
    R_block = np.add.reduceat(R_part * share[:, None], edges, axis=0)[block]
    E_block = np.add.reduceat(E_part, edges, axis=1)[:, block] / np.diff(start.first)[block]
    s = start.softness
    R = (1 - s) * R_part + s * R_block * rng.standard_exponential(R.shape)
    E = (1 - s) * E_part + s * E_block * rng.standard_exponential(E.shape)
    return R / R.sum(axis=1, keepdims=True), E / E.sum(axis=1, keepdims=True)
