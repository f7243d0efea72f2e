"""Tags of tokens as evidence in EM: a tag owns some of the states, and a tagged token has one of these.

Tags may be known for all, some or none of a sentence's tokens. An E-step over a tagged token looks at the states of its
tag alone; all else is as without tags. EM starts from expected counts in which every word is shared between the tags
as the labelled tokens say, and transitions between the states of two tags weigh as the tags follow each other there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError, short
from undertow.kernels.types import F64, I64
from undertow.models.hmm.em import PlainMStep, Shard
from undertow.models.hmm.init import EMStart
from undertow.models.hmm.params import Params, PlainParams, PlainStats
from undertow.text.corpus import Corpus
from undertow.text.word_classes import CLASSES, word_class

UNSEEN_TOKENS = 1.0  # pseudo-tokens by which a word's tags back off to those of words labelled once
NOISE = 0.5  # how unlike the states of one tag begin


class Tags(NamedTuple):
    """Tags of states: tag i owns the states first[i] .. first[i + 1] − 1."""

    names: list[str]
    first: I64  # (n_tags + 1,)

    def states(self, tag: int) -> slice:
        return slice(int(self.first[tag]), int(self.first[tag + 1]))

    def of_state(self) -> I64:
        """(Z,) the tag of each state."""
        return np.repeat(np.arange(len(self.names)), np.diff(self.first))

    def by_name(self) -> dict[str, I64]:
        return {name: np.arange(self.first[i], self.first[i + 1]) for i, name in enumerate(self.names)}

    def sums(self, states: NDArray[Any]) -> NDArray[Any]:
        """(T, n_tags) probabilities of the tags from those of the states (T, Z)."""
        return np.add.reduceat(states, self.first[:-1], axis=1)


def has_tags(y: Any) -> bool:
    """Whether y are tags of tokens, and not a label for each sentence, as scikit-learn's pipelines pass on."""
    return isinstance(y, list | tuple) and any(isinstance(tags, list | tuple | np.ndarray) for tags in y)


def check_weight(weight: Any) -> None:
    if isinstance(weight, bool) or not isinstance(weight, int | float | np.number) or not 0 <= weight <= 1:
        raise InputError(f"unlabelled_weight={short(weight)} must be a number from 0 to 1.")


def without_empty(X: Any, y: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """Token lists and their tags without empty sentences, which a corpus leaves out."""
    if isinstance(X, Corpus | str | bytes) or not isinstance(X, Iterable):
        return X, y
    X = list(X)
    if len(X) != len(y) or not all(isinstance(s, Sized) for s in X):
        return X, y  # refused later, with the reason
    kept = [i for i, sentence in enumerate(X) if len(sentence)]
    return [X[i] for i in kept], [y[i] for i in kept]


def read_tags(corpus: Corpus, y: Sequence[Any]) -> list[Sequence[Any] | None]:
    """y checked against the sentences of a corpus."""
    if len(y) != corpus.n_sentences:
        raise InputError(f"There are tags for {len(y)} sentences, but {corpus.n_sentences} sentences: give None or a "
                         "list of tags for each.")  # fmt: skip
    lengths = np.diff(corpus.offsets).tolist()
    for i, (tags, n) in enumerate(zip(y, lengths, strict=True)):
        if tags is None:
            continue
        if isinstance(tags, str) or not isinstance(tags, list | tuple | np.ndarray) or len(tags) != n:
            raise InputError(f"The tags of sentence {i} are {short(tags)}: give None, or one tag or None for each of "
                             f"its {n} tokens.")  # fmt: skip
        for tag in tags:
            if tag is not None and not isinstance(tag, str):
                raise InputError(f"Sentence {i} has the tag {short(tag)}: tags are strings, or None if not known.")
    return list(y)


def choose_states(y: Sequence[Sequence[Any] | None], n_states: int) -> Tags:
    """States for the tags of a text in proportion to their tokens, at least one for each."""
    names, counts = np.unique([t for tags in y if tags is not None for t in tags if t is not None], return_counts=True)
    if not len(names):
        raise InputError("No token has a tag: give at least one, or leave out y.")
    if len(names) > n_states:
        raise InputError(f"n_states={n_states} is less than the {len(names)} tags, each of which needs a state: use "
                         "more states.")  # fmt: skip
    sizes = np.ones(len(names), dtype=np.int64)
    for _ in range(n_states - len(names)):  # the next state goes where a state has the most tokens
        sizes[int(np.argmax(counts / sizes))] += 1
    return Tags([str(name) for name in names], np.concatenate(([0], np.cumsum(sizes))))


def tag_ids(tags: Tags, y: Sequence[Sequence[Any] | None], corpus: Corpus) -> NDArray[np.int32]:
    """(T,) the tag of each token, −1 if it is not known."""
    number = {name: i for i, name in enumerate(tags.names)}
    out = np.full(corpus.n_tokens, -1, dtype=np.int32)
    for start, given in zip(corpus.offsets[:-1].tolist(), y, strict=True):
        for i, tag in enumerate(() if given is None else given):
            if tag is not None:
                if str(tag) not in number:
                    raise InputError(f"The tag {short(tag)} is not one of the model's: {', '.join(tags.names)}.")
                out[start + i] = number[str(tag)]
    return out


class TaggedShard(NamedTuple):
    """A shard some of whose tokens have tags."""

    ids: NDArray[np.uint32]
    bounds: I64
    tags: NDArray[np.int32]  # (T,) −1: not known
    first: I64  # as in Tags
    weight: float  # of sequences without any tag

    def statistics(self, params: Params) -> PlainStats:
        """The E-step; the expected counts of sequences without any tag are multiplied by their weight."""
        if self.weight == 1:
            return self._counts(params)
        lengths = np.diff(self.bounds)
        n_known = np.concatenate(([0], np.cumsum(self.tags >= 0)))
        labelled = n_known[self.bounds[1:]] > n_known[self.bounds[:-1]]
        total: PlainStats | None = None
        for which, weight in ((labelled, 1.0), (~labelled, self.weight)):
            if lengths[which].sum() == 0:
                continue
            tokens = np.repeat(which, lengths)
            bounds = np.concatenate(([0], np.cumsum(lengths[which]))).astype(np.int64)
            part = self._replace(ids=self.ids[tokens], tags=self.tags[tokens], bounds=bounds)._counts(params)
            scaled = part._replace(
                initial=part.initial * weight,
                transition=type(part.transition)(*(x * weight for x in part.transition)),
                emission=part.emission * weight,
            )
            total = scaled if total is None else total + scaled
        return self._counts(params) if total is None else total

    def _counts(self, params: Params) -> PlainStats:
        """Pairs of a word and a tag are observed as words whose emissions are zero for the states of other tags."""
        assert isinstance(params, PlainParams)
        V = params.n_words
        pairs, ids = np.unique((self.tags + np.int64(1)) * V + self.ids, return_inverse=True)
        words, tags = pairs % V, pairs // V - 1
        plain = int(np.searchsorted(tags, 0))  # pairs without a tag come first
        rows = []
        for word, tag in zip(words[plain:].tolist(), tags[plain:].tolist(), strict=True):
            row = np.zeros(params.n_states, dtype=params.chain.emission.dtype)
            live = slice(int(self.first[tag]), int(self.first[tag + 1]))
            row[live] = params.chain.emission[word, live]
            rows.append(row)
        found = params.observing(words[:plain], rows).statistics(ids, self.bounds)
        emission = np.zeros((V, params.n_states))
        np.add.at(emission, words, found.emission)
        return found._replace(emission=emission)


def with_tags(chunks: list[list[Shard]], ids: NDArray[np.int32], tags: Tags, weight: float) -> list[list[TaggedShard]]:
    """The same chunks with the tags of their tokens, which come in the order of the text."""
    out, at = [], 0
    for chunk in chunks:
        tagged = []
        for shard in chunk:
            tagged.append(TaggedShard(shard.ids, shard.bounds, ids[at : at + len(shard.ids)], tags.first, weight))
            at += len(shard.ids)
        out.append(tagged)
    return out


def tagged_start(
    start: EMStart, corpus: Corpus, ids: NDArray[np.int32], tags: Tags, weight: float, rng: np.random.Generator
) -> EMStart:
    """Begin EM where words and transitions agree with the tags; `start` brings the form of the transition."""
    params, m_step = start
    assert isinstance(params, PlainParams) and isinstance(m_step, PlainMStep)
    Z, words = params.n_states, np.asarray(corpus.ids)
    V, n_tags, of_state = params.n_words, len(tags.names), tags.of_state()
    known = ids >= 0
    of_word = np.zeros((V, n_tags))
    np.add.at(of_word, (words[known], ids[known]), 1.0)
    share = _tag_shares(of_word, corpus.vocabulary.words)
    split = rng.uniform(1 - NOISE, 1 + NOISE, (V, Z))
    split /= np.add.reduceat(split, tags.first[:-1], axis=1)[:, of_state]
    labelled: F64 = of_word.sum(axis=1)
    tokens: F64 = labelled + weight * (corpus.vocabulary.counts - labelled)
    emission = tokens[:, None] * share[:, of_state] * split
    follow, begin = _tag_pairs(ids, np.asarray(corpus.offsets), n_tags)
    owns = (of_state[None, :] == np.arange(n_tags)[:, None]).astype(params.chain.emission.dtype)
    transition = params.transition.empty_stats()
    before, after = np.divmod(np.arange(n_tags * n_tags), n_tags)
    alpha = owns[before] / owns.sum(axis=1)[before, None]
    steps = np.einsum("pz,pz->p", params.transition.push(alpha), owns[after])
    shares: F64 = np.divide(follow.ravel(), steps, out=np.zeros(len(steps)), where=steps > 0)
    message = (owns[after] * shares[:, None]).astype(alpha.dtype)
    params.transition.accumulate_expected(alpha, message, transition)
    initial = begin[of_state] / np.diff(tags.first)[of_state]
    return EMStart(m_step(PlainStats(0.0, 0, initial, transition, emission)), m_step)


def _tag_shares(of_word: F64, words: Sequence[str]) -> F64:
    """(V, n_tags) p(tag | word): its labelled tokens, backing off to words of like spelling that were labelled once."""
    total = of_word.sum(axis=1, keepdims=True)
    spelling = np.unique([word if word in CLASSES else word_class(word) for word in words], return_inverse=True)[1]
    once = np.where(total == 1, of_word, 0.0)
    of_class = np.zeros((int(spelling.max()) + 1, of_word.shape[1]))
    np.add.at(of_class, spelling, once)
    overall = of_word.sum(axis=0) / of_word.sum()
    rare = (once.sum(axis=0) + overall) / (once.sum() + 1)
    of_class = (of_class + rare) / (of_class.sum(axis=1, keepdims=True) + 1)
    return np.asarray((of_word + UNSEEN_TOKENS * of_class[spelling]) / (total + UNSEEN_TOKENS))


def _tag_pairs(ids: NDArray[np.int32], offsets: NDArray[Any], n_tags: int) -> tuple[F64, F64]:
    """Expected numbers of neighbors (n_tags, n_tags) and of first tokens (n_tags,), one more of each shared by all."""
    follow: F64 = np.full((n_tags, n_tags), 1.0 / n_tags)
    inside = np.ones(len(ids), dtype=np.bool_)
    starts = offsets[:-1][np.diff(offsets) > 0]
    inside[starts] = False
    after = np.flatnonzero(inside & (ids >= 0))
    after = after[ids[after - 1] >= 0]
    np.add.at(follow, (ids[after - 1], ids[after]), 1.0)
    first = ids[starts]
    begin: F64 = np.bincount(first[first >= 0], minlength=n_tags) + np.full(n_tags, 1.0 / n_tags)
    return follow, begin


__all__ = ["TaggedShard", "Tags", "choose_states", "has_tags", "read_tags", "tag_ids", "tagged_start", "with_tags"]
