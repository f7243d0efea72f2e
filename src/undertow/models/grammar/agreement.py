"""A start from trees that several short fits agree on.

Different random starts lead to different trees, and the likelihood does not tell which are better. So a few small
grammars are fitted to a sample of short sentences, each from its own start, and the posterior probabilities of the
spans are averaged over them. For each sentence the tree with the largest sum is taken: it has the most correct
constituents in expectation if every grammar is equally likely to be right. A tree that branches to the right
(to the left with lean="left"), within the parts between punctuation and over them, has a vote too: it is a good guess
where the fits do not agree. The fits read words alone; punctuation joins their trees by rule (`punctuation`).
The grammar itself then begins with some passes over the sample in which trees are fixed and only symbols are hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.engine import Engine, map_reduce
from undertow.engine.blas import one_blas_thread
from undertow.kernels.chart.grammar import GrammarParams, batches_by_length, rank_space
from undertow.kernels.chart.inside import inside
from undertow.kernels.chart.outside import BATCH_FLOATS, outside, span_posteriors
from undertow.kernels.chart.trees import best_tree, posterior_table
from undertow.kernels.types import F64, I64
from undertow.models.fitting import LOGGER
from undertow.models.grammar.em import Fitted, MStep, Shard, em_iterations
from undertow.models.grammar.init import Sizes, random_start, sentence_lengths, word_classes
from undertow.models.grammar.punctuation import WORD, attached, fragments, kinds_of
from undertow.text.corpus import Corpus

SAMPLE_TOKENS = 40_000  # of the sample
SAMPLE_LENGTH = 20  # words of its sentences at most: short ones say most about phrases, and cost least
SMALL = Sizes(40, 80, 40)  # the fits' sizes at most
PASSES = 10  # of each fit over the sample
VOTE = 0.5  # weight of the branching tree, as a share of that of all fits together
TREE_PASSES = 4  # of the grammar itself over the sample with its trees
CHUNK_TOKENS = 4000  # of the sample after which the parameters are renewed


def agreement_start(
    text: Corpus,
    sizes: Sizes,
    n_restarts: int,
    m_step: MStep,
    rng: np.random.Generator,
    n_threads: int,
    engine: Engine | None,
    lean: str,
) -> Fitted:
    """Parameters after the passes over the sample with the trees that `n_restarts` short fits agree on."""
    classes = word_classes(text, sizes.n_preterminals, rng, n_threads)
    start = random_start(sizes, sentence_lengths(text), m_step, rng, classes, lean)
    kinds = kinds_of(text.vocabulary.words)
    sentences = sample(text, kinds)
    if not sentences:
        return start
    small = Sizes(*map(min, sizes, SMALL))
    if small.n_preterminals < sizes.n_preterminals:
        classes = word_classes(text, small.n_preterminals, rng, n_threads)
    bare = [s[kinds[s] == WORD] for s in sentences]
    used, ids = np.unique(np.concatenate(bare), return_inverse=True)
    lengths: I64 = np.array([len(s) for s in bare], dtype=np.int64)
    if classes is not None:  # those that the sample has
        classes = np.unique(classes[used], return_inverse=True)[1].astype(np.int64)
    of_sample = MStep.of(np.bincount(ids), 1.0)
    starts = [random_start(small, lengths, of_sample, rng, classes, lean) for _ in range(n_restarts)]
    tables = map_reduce(partial(short_fit, of_sample, ids, lengths), starts, _add, engine=engine)
    for table, sentence in zip(tables, sentences, strict=True):
        add_vote(table, VOTE * n_restarts, lean, fragments(kinds[sentence]))
    trees = [attached(best_tree(table), kinds[s]) for table, s in zip(tables, sentences, strict=True)]
    flat = np.concatenate(sentences)
    all_lengths = np.array([len(s) for s in sentences], dtype=np.int64)
    chunks = [[shard] for shard in cut(flat, all_lengths, np.concatenate(trees)[:, ::2])]
    fit = start
    for step in em_iterations(start, m_step, chunks, TREE_PASSES, engine):
        fit = step.params
    return fit._replace(params=with_all_words(fit, start, m_step, np.unique(flat)))


def sample(text: Corpus, kinds: NDArray[np.int8]) -> list[NDArray[np.uint32]]:
    """Sentences of 2 to SAMPLE_LENGTH words from all over the text, with about SAMPLE_TOKENS words.

    Punctuation, by the kinds of the words, is not counted, but part of them.
    """
    edges = np.asarray(text.offsets, dtype=np.int64)
    n_words = np.concatenate(([0], np.cumsum(kinds[text.ids] == WORD)))
    lengths = np.diff(n_words[edges])
    short = np.flatnonzero((lengths > 1) & (lengths <= SAMPLE_LENGTH))
    if not len(short):
        return []
    share = min(1.0, SAMPLE_TOKENS / float(lengths[short].sum()))
    kept = short[np.unique(np.arange(0, len(short), 1 / share).astype(np.int64))]
    return [np.array(text.ids[edges[i] : edges[i + 1]]) for i in kept]


@one_blas_thread()  # in worker processes too
def short_fit(m_step: MStep, ids: I64, lengths: I64, fit: Fitted) -> list[F64]:
    """Fit a grammar to sentences of these lengths, over their words alone, from any start.

    For each sentence (N, N + 1) the posterior probabilities of its spans.
    """
    chunks = [[shard] for shard in cut(ids, lengths)]
    for step in em_iterations(fit, m_step, chunks, PASSES):
        fit = step.params
    LOGGER.info("a fit to %d short sentences: %s", len(lengths), step.remark)
    return posterior_tables(fit.params, ids, lengths)


def posterior_tables(p: GrammarParams, ids: I64, lengths: I64) -> list[F64]:
    """For each sentence (N, N + 1) the posterior probabilities of its spans, in float32 charts."""
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    tables: list[F64] = [np.empty(0)] * len(lengths)
    space = rank_space(p, np.arange(p.n_words))
    for batch in batches_by_length(lengths, p.rank, BATCH_FLOATS):
        chart = inside(ids[bounds[batch][:, None] + np.arange(lengths[batch[0]])], space)
        posteriors = span_posteriors(chart, outside(chart, space))
        for b, i in enumerate(batch.tolist()):
            tables[i] = posterior_table(chart, posteriors, b)
    return tables


def add_vote(table: F64, weight: float, lean: str, parts: Sequence[tuple[int, int]]) -> None:
    """Add the tree that branches to one side, within the parts of a sentence and over them, to its table (N, N + 1)."""
    n = len(table)
    for begin, end in parts:
        if lean == "right":
            table[begin:end, end] += weight
            table[begin, n] += weight if end < n else 0.0
        elif lean == "left":
            table[begin, begin + 1 : end + 1] += weight
            table[0, end] += weight if begin > 0 else 0.0


def _add(a: list[F64], b: list[F64]) -> list[F64]:
    return [x + y for x, y in zip(a, b, strict=True)]


def cut(ids: NDArray[Any], lengths: I64, spans: I64 | None = None) -> list[Shard]:
    """Whole sentences in parts of about CHUNK_TOKENS words."""
    edges = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    part = edges[:-1] // CHUNK_TOKENS
    out = []
    for first, last in zip(
        np.flatnonzero(np.diff(part, prepend=-1)), np.flatnonzero(np.diff(part, append=-1)) + 1, strict=True
    ):
        begin, end = int(edges[first]), int(edges[last])
        # a tree of N words has N − 1 constituents
        own = None if spans is None else spans[begin - first : end - last]
        out.append(Shard(ids[begin:end], edges[first : last + 1] - begin, own))
    return out


def with_all_words(fit: Fitted, start: Fitted, m_step: MStep, words: NDArray[np.uint32]) -> GrammarParams:
    """The parameters after the passes over the sample, with the emissions of its words and, for those it lacks, the
    preterminals that `start` has for them, all weighed by their numbers in the whole text."""
    shares = start.params.emission.astype(np.float64)
    shares[words] = fit.params.emission[words]
    shares *= fit.symbol_counts[len(fit.params.rules) :]
    total = shares.sum(axis=1, keepdims=True)
    counts = m_step.word_counts[:, None] * np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
    return fit.params._replace(emission=m_step.emission(counts))


__all__ = ["add_vote", "agreement_start", "cut", "posterior_tables", "sample", "short_fit", "with_all_words"]
