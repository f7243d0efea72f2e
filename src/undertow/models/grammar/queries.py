"""Queries on a fitted grammar, over sentences given as ids. Charts are in float64 here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chart.grammar import GrammarParams, RankSpace, batches_by_length, rank_space, termination
from undertow.kernels.chart.inside import Chart, inside
from undertow.kernels.chart.outside import BATCH_FLOATS, Outside, outside, span_posteriors
from undertow.kernels.chart.prefix import prefix_log_probabilities, prefix_space
from undertow.kernels.chart.trees import (
    Derivation,
    best_derivation,
    best_tree,
    draw_derivation,
    max_space,
    posterior_table,
)
from undertow.kernels.types import F32, F64, I64
from undertow.models.grammar.trees import Constituent, Tree

LONGEST = 256  # tokens of a sentence that a query takes
BYTES_A_NUMBER = 48  # six tables of float64 for each span and feature
NS_A_PRODUCT = 0.7  # inside and outside: per feature of a span, split point or other feature
WORTH_A_WARNING = (1 << 30, 30.0)  # bytes, seconds, of one sentence
GAP = -1  # stands for a token that may be any word


class Cost(NamedTuple):
    """Memory and time of one sentence, roughly."""

    n_bytes: int
    seconds: float


def cost(length: int, rank: int) -> Cost:
    spans = length * (length + 1) // 2
    return Cost(spans * rank * BYTES_A_NUMBER, NS_A_PRODUCT * 1e-9 * rank * spans * (6 * rank + length))


def check_lengths(sentences: Sequence[NDArray[Any]]) -> int:
    """Length of the longest sentence, which must be at most LONGEST."""
    longest = 0
    for number, ids in enumerate(sentences, 1):
        if len(ids) > LONGEST:
            raise InputError(
                f"Sentence {number} has {len(ids):,} tokens, and a chart grows with the square of the length: "
                f"split it into sentences of at most {LONGEST}."
            )
        longest = max(longest, len(ids))
    return longest


class Batch(NamedTuple):
    """Sentences of equal length with their chart."""

    at: I64  # (B,) which sentences
    ids: I64  # (B, N) words
    rows: I64  # (B, N) the same as rows of the space's word tables
    space: RankSpace
    chart: Chart


def batches(params: GrammarParams, sentences: Sequence[NDArray[Any]]) -> Iterator[Batch]:
    """The sentences that are not empty, by falling length; the id GAP stands for a missing word."""
    flat = np.concatenate([np.asarray(s, dtype=np.int64) for s in sentences]) if sentences else np.empty(0, np.int64)
    if not len(flat):
        return
    words = np.unique(flat[flat != GAP])
    space = rank_space(params, words, gap=True, dtype=np.float64)
    lengths = np.array([len(s) for s in sentences])
    for at in batches_by_length(lengths, params.rank, BATCH_FLOATS):
        ids = np.stack([np.asarray(sentences[i], dtype=np.int64) for i in at])
        rows = np.where(ids == GAP, len(words), np.searchsorted(words, ids))
        yield Batch(at, ids, rows, space, inside(rows, space))


def log_likelihoods(params: GrammarParams, sentences: Sequence[NDArray[Any]]) -> F64:
    """(sentences,) log-probability of each whole sentence; zero for an empty one."""
    out = np.zeros(len(sentences))
    for batch in batches(params, sentences):
        out[batch.at] = batch.chart.log_likelihood
    return out


def word_log_probabilities(params: GrammarParams, sentences: Sequence[NDArray[Any]]) -> list[F64]:
    """For each sentence the log-probability of each word given those before it, and last that of its end."""
    out = [np.empty(0)] * len(sentences)
    prefix: Any = None
    for batch in batches(params, sentences):
        if prefix is None:
            prefix = prefix_space(batch.space, termination(params))
        prefixes = prefix_log_probabilities(batch.rows, batch.chart, batch.space, prefix)
        logs = np.concatenate([prefixes, batch.chart.log_likelihood[:, None]], axis=1)
        with np.errstate(invalid="ignore"):  # after a word of probability zero, all are
            steps = np.where(np.isneginf(logs[:, 1:]), -np.inf, np.diff(logs, axis=1))
        for b, i in enumerate(batch.at.tolist()):
            out[i] = np.minimum(steps[b], 0.0)
    return out


# --- trees ----------------------------------------------------------------------------------------------


def parse(
    params: GrammarParams, sentences: Sequence[NDArray[Any]], words: Sequence[list[str]], method: str
) -> list[Tree]:
    """The tree of each sentence by minimum Bayes risk ("mbr") or of its most probable derivation ("viterbi")."""
    out = [Tree([], [], [])] * len(sentences)
    best: Any = max_space(params) if method == "viterbi" else None
    for batch in batches(params, sentences):
        around = outside(batch.chart, batch.space)
        posteriors = span_posteriors(batch.chart, around)
        for b, i in enumerate(batch.at.tolist()):
            table = posterior_table(batch.chart, posteriors, b)
            if method == "viterbi":
                found, _ = best_derivation(params, best, batch.ids[b])
            else:
                found = labelled(params, batch, around, b, best_tree(table))
            out[i] = as_tree(params, words[i], found, table)
    return out


def span_tables(params: GrammarParams, sentences: Sequence[NDArray[Any]]) -> list[F64]:
    """(N, N + 1) posterior probability of every span of each sentence."""
    out = [np.zeros((0, 1))] * len(sentences)
    for batch in batches(params, sentences):
        posteriors = span_posteriors(batch.chart, outside(batch.chart, batch.space))
        for b, i in enumerate(batch.at.tolist()):
            out[i] = np.minimum(posterior_table(batch.chart, posteriors, b), 1.0)
    return out


def as_tree(params: GrammarParams, words: list[str], found: Derivation, table: F64) -> Tree:
    """A derivation with the posterior probabilities (N, N + 1) of its spans."""
    constituents = [
        Constituent(i, k, j, symbol, min(float(table[i, j]), 1.0))
        for (i, k, j), symbol in zip(found.spans.tolist(), found.symbols.tolist(), strict=True)
    ]
    return Tree(words, constituents, (found.tags - params.n_nonterminals).tolist())


def labelled(params: GrammarParams, batch: Batch, around: Outside, b: int, spans: I64) -> Derivation:
    """A tree with the most probable symbol of each of its spans by itself."""
    n, chart = params.n_nonterminals, batch.chart
    symbols = []
    for i, _, j in spans.tolist():
        row = chart.row(b, i, j)
        out = (
            params.start[:n]
            if j - i == chart.n
            else around.L[row] @ params.left[:, :n] + around.R[row] @ params.right[:, :n]
        )
        symbols.append(int(np.argmax(out * (params.rules @ chart.G[row]))))
    tags = n + tag_posteriors(params, batch, around)[b].argmax(axis=1)
    return Derivation(spans, np.array(symbols, dtype=np.int64), tags)


def draw_trees(
    params: GrammarParams, ids: NDArray[Any], words: list[str], n: int, rng: np.random.Generator
) -> list[Tree]:
    """Trees of one possible sentence, drawn from the posterior."""
    for batch in batches(params, [ids]):
        table = posterior_table(batch.chart, span_posteriors(batch.chart, outside(batch.chart, batch.space)), 0)
        return [
            as_tree(
                params,
                words,
                draw_derivation(params, batch.space, batch.chart, batch.ids[0], rng.random(5 * len(ids))),
                table,
            )
            for _ in range(n)
        ]
    return [Tree([], [], [])] * n


# --- tokens ---------------------------------------------------------------------------------------------


def outside_tags(params: GrammarParams, batch: Batch, around: Outside) -> F64:
    """(B, N, m) outside probability of each preterminal at each token, scaled for each token."""
    n, chart = params.n_nonterminals, batch.chart
    if chart.n == 1:
        return np.broadcast_to(params.start[n:].astype(np.float64), (chart.size, 1, params.n_preterminals))
    tokens = chart.width(1)
    out = around.L[tokens] @ params.left[:, n:].astype(np.float64)
    out += around.R[tokens] @ params.right[:, n:].astype(np.float64)
    return out.reshape(chart.size, chart.n, -1)


def tag_posteriors(params: GrammarParams, batch: Batch, around: Outside) -> F64:
    """(B, N, m) posterior of the preterminal of each token; uniform in an impossible sentence."""
    emission = np.where((batch.ids == GAP)[:, :, None], 1.0, params.emission[batch.ids])
    return normalized(outside_tags(params, batch, around) * emission)


def normalized(weights: F64) -> F64:
    """Weights scaled to sum to one along the last axis; uniform where all are zero."""
    total = weights.sum(axis=-1, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1.0), 1.0 / weights.shape[-1])


def features(params: GrammarParams, sentences: Sequence[NDArray[Any]], view: str) -> list[F32]:
    """For each token, the posterior of its preterminal ("posterior") or of its parent's feature and side ("parent")."""
    width = params.n_preterminals if view == "posterior" else 2 * params.rank
    out = [np.zeros((0, width), dtype=np.float32)] * len(sentences)
    for batch in batches(params, sentences):
        chart, around = batch.chart, outside(batch.chart, batch.space)
        if view == "posterior":
            values = tag_posteriors(params, batch, around)
        elif chart.n == 1:  # a sentence of one word has no rule
            values = np.zeros((chart.size, 1, width))
        else:
            tokens = chart.width(1)
            sides = np.hstack([around.L[tokens] * chart.L[tokens], around.R[tokens] * chart.R[tokens]])
            values = normalized(sides.reshape(chart.size, chart.n, width))
        for b, i in enumerate(batch.at.tolist()):
            out[i] = values[b].astype(np.float32)
    return out


def gap_distributions(params: GrammarParams, ids: NDArray[Any]) -> list[F64]:
    """(V,) distribution of the word at each GAP of a sentence given all its other words, from left to right."""
    for batch in batches(params, [ids]):
        if not batch.chart.z[0] > 0:
            raise InputError("The other words of the sentence have probability zero, so the gap has no distribution.")
        tags = tag_posteriors(params, batch, outside(batch.chart, batch.space))[0]
        return [normalized(params.emission @ tags[i]) for i in np.flatnonzero(batch.ids[0] == GAP)]
    return []


# --- rules ----------------------------------------------------------------------------------------------


def symbol_words(params: GrammarParams, symbol: int) -> F64:
    """(V,) p(word | symbol); of a nonterminal, of all the words it derives."""
    n = params.n_nonterminals
    if symbol >= n:
        return np.asarray(params.emission[:, symbol - n], dtype=np.float64)
    # expected number of each preterminal below the nonterminal: x = children + x' through the rules
    below = (params.rules @ (params.left + params.right)).astype(np.float64)  # (n, n + m) children of each nonterminal
    spread = np.linalg.solve(np.eye(n) * 1.0000001 - below[:, :n], below[:, n:])[symbol]
    return normalized(params.emission @ np.maximum(spread, 0.0))


def typical_rules(params: GrammarParams, symbol_counts: F64, n_rules: int) -> list[tuple[float, float, int, int, int]]:
    """(uses, p(A → B C), A, B, C) of the most used rules; the table of all is made one nonterminal at a time."""
    left, right = params.left.astype(np.float64), params.right.astype(np.float64)
    found: list[tuple[float, float, int, int, int]] = []
    size = left.shape[1]
    for a, (row, used) in enumerate(zip(params.rules, symbol_counts, strict=False)):
        p = (left.T * row) @ right  # (n + m, n + m)
        flat = p.ravel()
        top = np.argpartition(-flat, min(n_rules, len(flat) - 1))[:n_rules]
        found += [(float(used * flat[x]), float(flat[x]), a, *divmod(int(x), size)) for x in top]
        found = sorted(found, key=lambda rule: (-rule[0], rule[2:]))[:n_rules]
    return found


__all__ = [
    "GAP",
    "LONGEST",
    "check_lengths",
    "cost",
    "draw_trees",
    "features",
    "gap_distributions",
    "log_likelihoods",
    "normalized",
    "parse",
    "span_tables",
    "symbol_words",
    "typical_rules",
    "word_log_probabilities",
]
