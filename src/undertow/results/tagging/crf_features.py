"""From sentences to the arrays that a CRF reads: one dictionary of attributes, one dense matrix.

A source gives features of items: of word types (spelling) or of tokens (representations, extra columns). A token reads
those of its neighbors too, under names that say how far away they are: `-1:l=the`, `hmm-states[1]:17`. So a name is
made once for every feature and offset, and the rows of tokens are put together from tables.

Sources whose `dense` is true come as one matrix; beyond the ends of a sentence their neighbors are 0.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from undertow.errors import InputError, short
from undertow.kernels.chain.crf import I32, Tokens
from undertow.kernels.chain.token_network import shifted
from undertow.kernels.types import F32, I64
from undertow.results.tagging.base import token_batches
from undertow.results.tagging.token_features import Features, Representation, SparseRows
from undertow.results.tagging.word_features import (
    OUTSIDE,
    TEMPLATES,
    Template,
    letter_features,
    neighbor_features,
    own_features,
    shape,
    shorten,
)
from undertow.text.vocabulary import check_word

BATCH_TOKENS = 1 << 15  # models are queried with so many tokens at a time
MAX_CACHED = 500_000  # word types whose features are kept
MOST_NUMBERS = 512  # of a representation that a CRF reads as sparse features: of more a network reads nothing

Extra = Iterable[Sequence[Any]] | None


class Block(NamedTuple):
    """Features of the token `offset` places away: row item[t + offset] of a table, under the attributes' own ids."""

    item: I64  # (N,)
    bounds: I64  # (items + 1,)
    feature: I32
    value: F32  # empty if all are 1
    attribute: I32  # feature → attribute, −1 for one that the tagger does not know
    offset: int
    outside: int  # the item of a position outside the sentence, or −1 for none


class Names:
    """Features of one source, and the attribute that each is at each offset."""

    def __init__(self, prefixes: Mapping[int, str], attributes: dict[str, int]) -> None:
        self.prefixes, self.attributes = prefixes, attributes
        self.ids: dict[str, int] = {}
        self.attribute = {offset: array("i") for offset in prefixes}

    def id(self, name: str, grow: bool) -> int:
        found = self.ids.get(name)
        if found is None:
            found = self.ids[name] = len(self.ids)
            known = self.attributes
            for offset, prefix in self.prefixes.items():
                full = prefix + name
                self.attribute[offset].append(known.setdefault(full, len(known)) if grow else known.get(full, -1))
        return found

    def blocks(self, item: I64, bounds: I64, feature: I32, value: F32, outside: int = -1) -> list[Block]:
        return [
            Block(item, bounds, feature, value, _as_array(attribute), offset, outside)
            for offset, attribute in self.attribute.items()
        ]


class WordTable:
    """Spelling features of word types, found once each."""

    def __init__(self, names: Names, describe: Any) -> None:
        self.names, self.describe = names, describe
        self.bounds, self.features = array("q", [0]), array("i")

    def add(self, word: str, grow: bool) -> None:
        self.features.extend([self.names.id(name, grow) for name in self.describe(word)])
        self.bounds.append(len(self.features))

    def blocks(self, item: I64, outside: int = -1) -> list[Block]:
        no_values = np.zeros(0, dtype=np.float32)
        bounds = np.array(self.bounds, dtype=np.int64)
        return self.names.blocks(item, bounds, _as_array(self.features), no_values, outside)


class JoinedTable:
    """What joined features read of word types: their lower cases, or their short shapes, as numbers."""

    def __init__(self, describe: Any) -> None:
        self.describe = describe
        self.ids: dict[str, int] = {}
        self.of_type = array("i")

    def add(self, word: str) -> None:
        self.of_type.append(self.ids.setdefault(self.describe(word), len(self.ids)))

    def block(self, template: Template, around: dict[int, I64], attributes: dict[str, int], grow: bool) -> Block:
        """The feature that each token has; `around` are the word types at its places."""
        of_type = np.array(self.of_type, dtype=np.int64)
        columns = [of_type[around[place]] for place in template.places]
        code = columns[0]
        for column in columns[1:]:
            code = code * len(self.ids) + column
        _, first, item = np.unique(code, return_index=True, return_inverse=True)
        spelling = list(self.ids)
        names = [
            template.name + " ".join([spelling[k] for k in row])
            for row in zip(*(column[first].tolist() for column in columns), strict=True)
        ]
        known = [attributes.setdefault(n, len(attributes)) if grow else attributes.get(n, -1) for n in names]
        each = np.arange(len(names) + 1, dtype=np.int64)
        attribute, no_values = np.array(known, dtype=np.int32), np.zeros(0, dtype=np.float32)
        rows = item.reshape(-1).astype(np.int64)
        return Block(rows, each, each[:-1].astype(np.int32), no_values, attribute, 0, -1)


class FeatureReader:
    """Turns sentences into `Tokens`.

    Parameters
    ----------
    features
        Representations.
    window
        Neighbors to each side, unless a representation has a window of its own.
    lexical
        Whether the spelling is read.
    attributes
        Name → id; grows while a tagger learns.
    letters
        Whether more of the letters of a word is read, as for spans.
    network
        Whether a network reads the vectors of all representations that have any, not the dense ones alone; of sparse
        ones those of at most 512 numbers.
    """

    def __init__(
        self,
        features: Sequence[Representation],
        window: int,
        lexical: bool,
        attributes: dict[str, int],
        letters: bool = False,
        network: bool = False,
    ) -> None:
        self.network = network
        self.window, self.lexical, self.attributes, self.letters = window, lexical, attributes, letters
        vectors = [f for f in features if getattr(f, "dense", False)]
        self._network_only = [f for f in vectors if network and getattr(f, "network_only", False)]
        self.dense = [f for f in vectors if f not in self._network_only]
        self.sparse = [f for f in features if not getattr(f, "dense", False)]
        self._beside: list[Representation] | None = None if network else []  # None: not known yet
        self._forget()

    def _forget(self) -> None:
        near = {o: f"{o}:" for o in range(-self.window, self.window + 1) if o}
        self.types: dict[str, int] = {}
        self.own = WordTable(Names({0: ""}, self.attributes), self._own)
        self.near = WordTable(Names(near, self.attributes), neighbor_features)
        self.lower, self.short = JoinedTable(str.lower), JoinedTable(lambda word: shorten(shape(word)))
        self.names = {f.name: Names(_prefixes(f.name, window_of(f, self.window)), self.attributes) for f in self.sparse}
        self.extra = Names(_prefixes("extra", self.window), self.attributes)

    def read(self, sentences: list[list[str]], extra: list[list[dict[str, float]]] | None, grow: bool) -> Tokens:
        """The sentences as arrays; names of attributes that are new join them only if they may `grow`."""
        parts, first = [], 0
        for batch in token_batches(sentences, BATCH_TOKENS):
            more = None if extra is None else extra[first : first + len(batch)]
            parts.append(self._read_batch(batch, more, grow))
            first += len(batch)
        bounds = np.cumsum([0, *map(len, sentences)]).astype(np.int64)
        # without tokens the number of dense columns is unknown
        parts = [p for p in parts if len(p[0]) > 1] or [self._read_batch([], None if extra is None else [], grow)]
        widths = {(dense.shape[1], more.shape[1]) for *_, dense, more in parts}
        if len(widths) > 1:
            raise InputError("The vectors of one text have different widths: correct the representation's vectors.")
        counts = np.concatenate([np.diff(row) for row, *_ in parts])
        row = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        return Tokens(
            bounds,
            row,
            np.concatenate([attribute for _, attribute, *_ in parts]),
            _joined_values(parts),
            np.concatenate([dense for *_, dense, _ in parts]),
            np.concatenate([more for *_, more in parts]) if self.network else None,
        )

    def _read_batch(
        self, batch: list[list[str]], extra: list[list[dict[str, float]]] | None, grow: bool
    ) -> tuple[I64, I32, F32, F32, F32]:
        bounds = np.cumsum([0, *map(len, batch)]).astype(np.int64)
        blocks = self._spelling(batch, bounds, grow)
        each = np.arange(bounds[-1])
        for f in self.sparse:
            rows = sparse_rows(f, batch)
            blocks += _token_blocks(self.names[f.name], rows, each, grow)
        if extra is not None:
            blocks += _token_blocks(self.extra, rows_of_dicts("extra", extra, batch), each, grow)
        row, attribute, value = assemble(blocks, bounds)
        more = [matrix for matrix, _ in self._matrices(self._read_by_network(batch), batch, bounds)]
        dense = [shifted(m, bounds, o) for m, w in self._matrices(self.dense, batch, bounds) for o in range(-w, w + 1)]
        return row, attribute, value, _columns(dense, int(bounds[-1])), _columns(more, int(bounds[-1]))

    def _spelling(self, batch: list[list[str]], bounds: I64, grow: bool) -> list[Block]:
        if len(self.types) > MAX_CACHED:
            self._forget()
        types = self.types
        words: Iterable[str] = dict.fromkeys(w for tokens in batch for w in tokens) if self.lexical else ()
        for word in (OUTSIDE, *words):
            if word not in types:
                types[word] = len(types)
                self.own.add(word, grow)
                if self.window and self.lexical:
                    self.near.add(word, grow)
                    self.lower.add(word)
                    self.short.add(word)
        if not self.lexical:  # the bias alone, which every word type has
            item = np.zeros(sum(map(len, batch)), dtype=np.int64)
            return self.own.blocks(item)
        item = np.array([types[w] for tokens in batch for w in tokens], dtype=np.int64)
        blocks = self.own.blocks(item) + self.near.blocks(item, types[OUTSIDE])
        if self.window and len(item):
            around = {0: item, **{place: _beside(item, bounds, place, types[OUTSIDE]) for place in (-1, 1)}}
            blocks += [
                (self.short if template.of_shape else self.lower).block(template, around, self.attributes, grow)
                for template in TEMPLATES
            ]
        return blocks

    def _own(self, word: str) -> list[str]:
        """Features of a token's own word; the type of a position outside the sentence carries the bias alone."""
        if not word:
            return ["bias"]
        return ["bias", *own_features(word), *(letter_features(word) if self.letters else [])]

    def _read_by_network(self, batch: list[list[str]]) -> list[Representation]:
        """What the network alone reads as vectors: also sparse ones, but those of thousands of states are too large."""
        if self._beside is None:
            sentence = next((tokens for tokens in batch if tokens), None)
            if sentence is None:
                return []
            with_vectors: list[Any] = [f for f in self.sparse if hasattr(f, "vectors")]
            small = [f for f in with_vectors if f.vectors([sentence])[0].shape[1] <= MOST_NUMBERS]
            self._beside = [*small, *self._network_only]
        return self._beside

    def _matrices(
        self, features: Sequence[Representation], batch: list[list[str]], bounds: I64
    ) -> Iterable[tuple[F32, int]]:
        """The vectors of each representation, and its window."""
        for f in features:
            arrays = f.vectors(batch)  # type: ignore[attr-defined]
            if [len(a) for a in arrays] != np.diff(bounds).tolist():
                raise _not_one_each(f.name)
            filled = [np.asarray(a, dtype=np.float32) for a in arrays if len(a)] or [np.zeros((0, 0), dtype=np.float32)]
            matrix = np.concatenate(filled)
            _check_finite(f.name, matrix)
            yield matrix, window_of(f, self.window)


def _beside(item: I64, bounds: I64, place: int, outside: int) -> I64:
    """The item one place before (−1) or after (1) each token in its sentence, `outside` where there is none."""
    out = np.full_like(item, outside)
    filled = bounds[:-1][np.diff(bounds) > 0], bounds[1:][np.diff(bounds) > 0] - 1
    if place < 0:
        out[1:] = item[:-1]
        out[filled[0]] = outside
    else:
        out[:-1] = item[1:]
        out[filled[1]] = outside
    return out


def window_of(f: Representation, default: int) -> int:
    own: int | None = getattr(f, "window", None)
    return default if own is None else own


def _prefixes(name: str, window: int) -> dict[int, str]:
    return {offset: f"{name}[{offset}]:" for offset in range(-window, window + 1)}


def _token_blocks(names: Names, rows: SparseRows, each: I64, grow: bool) -> list[Block]:
    local = np.array([names.id(name, grow) for name in rows.names], dtype=np.int32)
    feature = local[rows.ids] if len(rows.ids) else np.zeros(0, dtype=np.int32)
    return names.blocks(each, np.asarray(rows.bounds, dtype=np.int64), feature, rows.values)


def sparse_rows(f: Representation, sentences: list[list[str]]) -> SparseRows:
    """A representation's features as arrays, refused if they are not finite numbers for every token."""
    fast = getattr(f, "sparse_rows", None)
    if fast is None:
        return rows_of_dicts(f.name, f.features(sentences), sentences)
    rows: SparseRows = fast(sentences)
    if len(rows.bounds) != sum(map(len, sentences)) + 1:
        raise _not_one_each(f.name)
    _check_finite(f.name, rows.values)
    return rows


def rows_of_dicts(name: str, features: Features, sentences: Sequence[Sequence[str]]) -> SparseRows:
    if [len(rows) for rows in features] != [len(tokens) for tokens in sentences]:
        raise _not_one_each(name)
    known: dict[str, int] = {}
    ids, values, counts = array("q"), array("f"), [0]
    for rows in features:
        for token in rows:
            counts.append(len(token))
            for key, value in token.items():
                ids.append(known.setdefault(key, len(known)))
                values.append(value)
    out = SparseRows(list(known), np.cumsum(counts), np.array(ids, dtype=np.int64), np.array(values, dtype=np.float32))
    _check_finite(name, out.values)
    return out


def _not_one_each(name: str) -> InputError:
    return InputError(f"The features {name!r} do not come one for every token: correct its features method.")


def _check_finite(name: str, values: npt.NDArray[Any]) -> None:
    if not np.isfinite(values).all():
        raise InputError(f"A number of the features {name!r} is not finite: correct its features method.")


def checked_extra(extra: Any, sentences: list[list[str]]) -> list[list[dict[str, float]]] | None:
    """Extra columns as features: per token a word, several words, or a dict of name → word or number.

    Parameters
    ----------
    extra
        None, or for each sentence a list with an entry for each token.
    sentences
        The tokens.

    Returns
    -------
    list of lists of dicts, or None
        Feature → number for each token.
    """
    if extra is None:
        return None
    out = [[_entry(value, i, j) for j, value in enumerate(row)] for i, row in enumerate(extra)]
    if len(out) != len(sentences):
        raise InputError(f"There are {len(sentences)} sentences and {len(out)} lists of extra: give one per sentence.")
    for i, (row, tokens) in enumerate(zip(out, sentences, strict=True)):
        if len(row) != len(tokens):
            raise InputError(
                f"Sentence {i} has {len(tokens)} tokens and {len(row)} entries of extra: give one a token."
            )
    return out


def _entry(value: Any, i: int, j: int) -> dict[str, float]:
    if isinstance(value, str):
        value = {"": value}
    elif isinstance(value, list | tuple):
        value = {str(column): word for column, word in enumerate(value)}
    elif not isinstance(value, Mapping):
        raise InputError(
            f"The extra of token {j} of sentence {i} is {short(value)}: give a word, a list of words, or a dict."
        )
    out = {}
    for name, content in value.items():
        if isinstance(content, str):
            check_word(content, f"extra of token {j} of sentence {i}")
            out[f"{name}={content}"] = 1.0
        elif isinstance(content, int | float | np.integer | np.floating):
            out[f"{name}"] = float(content)
        else:
            raise InputError(
                f"The extra of token {j} of sentence {i} is {short(content)}: its values are words or numbers."
            )
    return out


# --- arrays ---------------------------------------------------------------------------------------------


def _as_array(values: array[int]) -> I32:
    return np.array(values, dtype=np.int32)  # a copy: the array may grow


def _columns(matrices: list[F32], n: int) -> F32:
    """Matrices of n rows side by side."""
    return np.concatenate(matrices, axis=1) if matrices else np.zeros((n, 0), dtype=np.float32)


def _joined_values(parts: list[tuple[I64, I32, F32, F32, F32]]) -> F32:
    if not any(len(value) for _, _, value, *_ in parts):
        return np.zeros(0, dtype=np.float32)
    return np.concatenate([v if len(v) else np.ones(len(a), dtype=np.float32) for _, a, v, *_ in parts])


def assemble(blocks: list[Block], bounds: I64) -> tuple[I64, I32, F32]:
    """The attributes of each token from all blocks, as rows; the values are empty if all are 1."""
    n = int(bounds[-1])
    counts = np.zeros(n + 1, dtype=np.int64)
    for b in blocks:
        _count(b.item, b.bounds, b.feature, b.attribute, bounds, b.offset, b.outside, counts)
    row = np.cumsum(counts)
    attribute = np.empty(row[-1], dtype=np.int32)
    has_values = any(len(b.value) and not (b.value == 1).all() for b in blocks)
    value = np.ones(row[-1] if has_values else 0, dtype=np.float32)
    at = row[:-1].copy()
    for b in blocks:
        _fill(b.item, b.bounds, b.feature, b.value, b.attribute, bounds, b.offset, b.outside, at, attribute, value)
    return row, attribute, value


@njit(cache=True, nogil=True)
def _source(item: Any, t: Any, low: Any, high: Any, offset: int, outside: int) -> Any:
    return item[t + offset] if low <= t + offset < high else outside


@njit(cache=True, nogil=True)
def _count(
    item: Any, rows: Any, feature: Any, attribute: Any, bounds: Any, offset: int, outside: int, counts: Any
) -> None:
    for s in range(len(bounds) - 1):
        for t in range(bounds[s], bounds[s + 1]):
            i = _source(item, t, bounds[s], bounds[s + 1], offset, outside)
            if i >= 0:
                for f in range(rows[i], rows[i + 1]):
                    counts[t + 1] += attribute[feature[f]] >= 0


@njit(cache=True, nogil=True)
def _fill(
    item: Any, rows: Any, feature: Any, values: Any, attribute: Any, bounds: Any, offset: int, outside: int,
    at: Any, out: Any, out_value: Any,
) -> None:  # fmt: skip
    for s in range(len(bounds) - 1):
        for t in range(bounds[s], bounds[s + 1]):
            i = _source(item, t, bounds[s], bounds[s + 1], offset, outside)
            if i >= 0:
                for f in range(rows[i], rows[i + 1]):
                    a = attribute[feature[f]]
                    if a >= 0:
                        out[at[t]] = a
                        if len(out_value) and len(values):
                            out_value[at[t]] = values[f]
                        at[t] += 1
