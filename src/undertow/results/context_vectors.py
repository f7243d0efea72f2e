"""Vectors of tokens by a network that predicts each word of a text from the words around it.

The network and its gradient are in `kernels.words.context_network`; here it is trained and asked. Words begin with
their near PMI vectors, so that little text is enough for a start. Rare and unknown words are read by their letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from undertow.engine import Engine
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError, short
from undertow.kernels.types import F32, F64, I64
from undertow.kernels.words.context_network import (
    ContextNetwork,
    Windows,
    WordTables,
    log_probabilities,
    padded,
    queries,
)
from undertow.models import similar_words
from undertow.models.answers import Gap, Neighbor, gap_of
from undertow.models.base import (
    Estimator,
    SavedState,
    TensorSpec,
    as_corpus,
    check_engine,
    encode_sentences,
    warn_of_many_components,
)
from undertow.models.constraints import CALLBACKS, N_JOBS, RANDOM_STATE, Constraint, Flag, Whole, check_random_state
from undertow.models.fitting import (
    Callback,
    CheckpointSource,
    open_checkpoint,
    run_iterations,
    run_last_step,
)
from undertow.questions.evidence import GAP_SIGN, as_evidence
from undertow.questions.explain import masked_score
from undertow.questions.fill import check_number
from undertow.results import context_training as training
from undertow.results.letters import LetterVectors, learn_letters, smoothed
from undertow.results.pmi_vectors import unit_rows
from undertow.tables import Table
from undertow.text.casing import most_frequent_casing
from undertow.text.corpus import Corpus
from undertow.text.letters import N_PLACES, has_letter
from undertow.text.tokenizer import checked_sentences
from undertow.text.vocabulary import Vocabulary

VIEWS = ("features", "context", "word")
LARGEST_WEIGHT = 1e6  # beyond any that training leaves; sums of larger ones could overflow
ASK_TOKENS = 1 << 12  # tokens that are asked at a time, so that memory does not grow with the text
SCORE_TOKENS = 1 << 8  # the same where each has a probability for every word


class ContextVectors(Estimator):
    """Vectors of tokens in their context, by a network that predicts each word from the words around it.

    The network sees the words before and after a token, but not the token: its vector "context" says what kind of word
    is expected there. The vector "word" is that of the word itself, as the network reads it as a neighbor. A `Tagger`
    reads both.

    Parameters
    ----------
    n_components
        Numbers of each of the two vectors.
    window
        Words to each side that the network reads.
    n_hidden
        Units of each of its two hidden layers.
    n_iter
        Passes over the text.
    n_drawn
        Other words that each word is told from in training, drawn anew for every thousand tokens.
    letters
        Whether what a word's letters say is a part of its vector as a neighbor: the rarer the word, the more; all of it
        for words that the text does not have. Without, these are the unknown word.
    min_count
        Words seen less often are left out of `neighbors`.
    random_state
        Seed or generator.
    n_jobs
        Number of threads; None for 1, −1 for all cores. More than two gain nothing. It does not change the result.
    callbacks
        Functions of a `TrainingEvent`, called for every 262,144 tokens and after each pass.

    Attributes
    ----------
    network_ : ContextNetwork
        The weights that all words share.
    tables_ : WordTables
        The vectors of each word: as a neighbor, with what its letters say, and as the word that is predicted.
    letters_ : LetterVectors or None
        What letters say about the vector of a neighbor; None if `letters` is False, or if Ctrl-C came while that was
        learned.
    history_ : list of float
        The mean log-probability of a word among those drawn, after each part of a pass.
    vocabulary_ : Vocabulary
        The words.
    tokenizer_ : dict or None
        The rule by which the text was split into tokens, if known.

    Examples
    --------
    >>> from undertow import ContextVectors
    >>> text = [["the", "cat", "sleeps"], ["the", "dog", "sleeps"], ["a", "cat", "runs"], ["a", "dog", "runs"]] * 50
    >>> model = ContextVectors(4, window=2, n_hidden=8, min_count=1, random_state=0).fit(text)
    >>> model.transform([["the", "cat"]])[0].shape
    (2, 8)
    >>> [gap] = model.fill(["the", None, "sleeps"], n=2)
    >>> sorted(found.word for found in gap.words)
    ['cat', 'dog']
    """

    kind = "context"
    added_params: ClassVar[Mapping[str, Any]] = {"letters": False}
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_components": Whole(1, 10_000),
        "window": Whole(1, 100),
        "n_hidden": Whole(1, 100_000),
        "n_iter": Whole(1, 10_000),
        "n_drawn": Whole(1, 1_000_000),
        "letters": Flag(),
        "min_count": Whole(0),
        "random_state": RANDOM_STATE,
        "n_jobs": N_JOBS,
        "callbacks": CALLBACKS,
    }

    network_: ContextNetwork
    tables_: WordTables
    letters_: LetterVectors | None
    tokenizer_: dict[str, Any] | None

    def __init__(
        self,
        n_components: int = 128,
        *,
        window: int = 5,
        n_hidden: int = 256,
        n_iter: int = 1,
        n_drawn: int = 1024,
        letters: bool = True,
        min_count: int = 20,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.n_components = n_components
        self.window = window
        self.n_hidden = n_hidden
        self.n_iter = n_iter
        self.n_drawn = n_drawn
        self.letters = letters
        self.min_count = min_count
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.callbacks = callbacks

    # --- fitting ----------------------------------------------------------------------------------------

    def fit(
        self,
        X: Corpus | Iterable[Sequence[str]],
        y: Any = None,
        *,
        engine: Engine | None = None,
        checkpoint: CheckpointSource = None,
    ) -> Self:
        """Train the network on a text; Ctrl-C keeps the last finished part of a pass.

        Parameters
        ----------
        X
            A corpus or token lists.
        y
            Ignored.
        engine
            Refused: the network is trained on this machine.
        checkpoint
            A directory for the state of an unfinished fit, from which the same call goes on.

        Returns
        -------
        ContextVectors
            The fitted object itself.

        Raises
        ------
        InputError
            If no two words of the text stand beside each other.
        """
        self._check_params()
        check_engine("ContextVectors", engine)
        corpus = as_corpus(X)
        rng = check_random_state(self.random_state)
        warn_of_many_components(self.n_components, corpus.n_tokens, stacklevel=2)
        casing = usual_casings(corpus.vocabulary)
        ids = casing[np.asarray(corpus.ids)]
        sizes = training.Sizes(*(getattr(self, name) for name in training.Sizes._fields))
        with one_blas_thread(), open_checkpoint(checkpoint, self, corpus, rng) as at:
            state = at.state if at.state is not None else training.start(corpus, ids, sizes, rng)
            text = padded(ids, corpus.offsets, self.window, len(casing))
            result = run_iterations(
                training.parts_of_passes(text, np.asarray(corpus.offsets), state, sizes, rng),
                n_iter=self.n_iter * training.n_parts_of(corpus.n_tokens),
                callbacks=self.callbacks,
                checkpoint=at,
            )
            network, tables = result.params
            read: tuple[WordTables, LetterVectors | None] = tables, None
            if self.letters:
                read = run_last_step(
                    lambda: _with_letters(tables, corpus.vocabulary, casing),
                    result._replace(interrupted=False),  # it takes seconds: letters are learned after Ctrl-C too
                    default=read,
                    unit="part",
                )
                at.interrupted |= read[1] is None
        self.vocabulary_, self.tokenizer_ = corpus.vocabulary, corpus.manifest.get("tokenizer")
        self.network_, (self.tables_, self.letters_) = network, read
        self.history_ = result.history
        self._casing = casing
        self._derive()
        return self

    def _derive(self) -> None:
        """What questions need and the saved arrays determine."""
        self._unit_words = unit_rows(self.tables_.inputs[:-1])

    # --- queries ----------------------------------------------------------------------------------------

    def transform(self, X: Corpus | Iterable[Sequence[str]], view: str = "features") -> list[F32]:
        """The vectors of the tokens, each of unit length.

        Parameters
        ----------
        X
            Sentences. A word outside the vocabulary is read as the unknown word, or as its class if the vocabulary has
            classes of unknown words; a word that begins with a capital in the casing in which the text mostly has it.
        view
            "context": what is expected at the token, given the words around it. "word": the word itself, wherever it
            stands. "features": both side by side.

        Returns
        -------
        list of float32 arrays (n_tokens, d)
            One for each sentence.

        Raises
        ------
        InputError
            If there is no such view.
        """
        self._check_fitted()
        if view not in VIEWS:
            raise InputError(f"view={short(view)} must be one of {', '.join(VIEWS)}.")
        text = self._read(X)
        parts = []
        if view != "word":
            parts.append(unit_rows(np.concatenate([q for _, q in self._queries(text)])))
        if view != "context":
            parts.append(unit_rows(text.vectors[text.windows.ids[text.windows.position]]))
        return _cut(np.hstack(parts), text.bounds)

    def masked_log_probabilities(self, X: Corpus | Iterable[Sequence[str]]) -> list[F64]:
        """The log-probability of each token, given the words around it.

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        list of arrays (n_tokens,)
            One for each sentence.
        """
        self._check_fitted()
        text = self._read(X)
        found = [
            log_probabilities(self.tables_, part)[np.arange(len(part)), text.words[at + a : at + a + len(part)]]
            for at, q in self._queries(text)
            for a in range(0, len(q), SCORE_TOKENS)
            for part in [q[a : a + SCORE_TOKENS]]
        ]
        return _cut(np.concatenate([np.zeros(0), *found]), text.bounds)

    def masked_perplexity(self, X: Corpus | Iterable[Sequence[str]]) -> float:
        """Perplexity of the tokens, each given the words around it.

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        float
            The inverse of the geometric mean of their probabilities.

        Raises
        ------
        InputError
            If there is no token.
        """
        return float(np.exp(-masked_score(self.masked_log_probabilities(X))))

    def fill(self, text: Sequence[str | None], n: int = 10, *, markers: bool = False) -> Table[Gap]:
        """The most probable words of each gap, given the words around it.

        Parameters
        ----------
        text
            Tokens, with None for a gap. Beside a gap, another gap is read as an unknown word.
        n
            How many words.
        markers
            List the markers of unknown words and of sentence boundaries among the words.

        Returns
        -------
        Table of Gap
            One for each gap.

        Raises
        ------
        InputError
            If the text is not a list of words and gaps, or n is not a whole number.
        """
        self._check_fitted()
        check_number(n)
        tokens = as_evidence(text, gap_sign=GAP_SIGN).tokens
        if not len(tokens):
            raise InputError("The text is empty: give at least one token or gap.")
        odd = next((token for token in tokens if token is not None and not isinstance(token, str)), None)
        if odd is not None:
            raise InputError(f"The text has {short(odd)} where a word is expected: give words, and None for a gap.")
        where = [t for t, token in enumerate(tokens) if token is None]
        read = self._read([[self.vocabulary_.unknown if token is None else token for token in tokens]])
        gaps = Windows(read.windows.ids, read.windows.position[where])
        [(_, q)] = self._queries(read._replace(windows=gaps))
        found = np.exp(log_probabilities(self.tables_, q.astype(np.float64)))
        return Table(Gap, (gap_of(self.vocabulary_, t, p, int(n), markers) for t, p in zip(where, found, strict=True)))

    def word_vectors(self) -> F32:
        """Vectors of the words as neighbors, of unit length.

        Returns
        -------
        float32 array (V, d)
            In the order of the vocabulary; a word that begins with a capital has that of its usual casing.
        """
        self._check_fitted()
        return self._unit_words[self._casing]

    def __getitem__(self, word: str) -> F32:
        """The vector (d,) of a word."""
        self._check_fitted()
        vector: F32 = self._unit_words[self._casing[self._word_id(word)]]
        return vector

    def neighbors(self, word: str, n: int = 10, *, position: int | None = None) -> Table[Neighbor]:
        """The words most like a word.

        Parameters
        ----------
        word
            A word of the vocabulary.
        n
            How many.
        position
            Leave it out: `fill` tells which words are expected in a context.

        Returns
        -------
        Table of Neighbor
            Words seen at least `min_count` times, nearest first.

        Raises
        ------
        InputError
            If the word is not in the vocabulary, or n is not a whole number.
        """
        self._check_fitted()
        if not isinstance(word, str) or position is not None:
            raise InputError(
                "ContextVectors have neighbors of a word: give one word; fill tells what a context expects."
            )
        Whole(0).check("neighbors", "n", n)
        itself = int(self._casing[self._word_id(word)])
        other = np.flatnonzero(self._casing != np.arange(len(self._casing)))  # casings that stand for another word
        unit = self._unit_words
        return similar_words.neighbors(unit, self.vocabulary_, unit[itself], [itself, *other], int(n), self.min_count)

    def _read(self, X: Any) -> _Text:
        X = X if isinstance(X, Corpus) else list(checked_sentences(X))
        sentences = encode_sentences(self.vocabulary_, X)
        bounds = np.cumsum([0, *map(len, sentences)])
        ids = self._casing[np.concatenate([np.zeros(0, dtype=np.uint32), *sentences])]
        vectors, read, beyond = self.tables_.inputs, ids, len(self.vocabulary_)
        if self.letters_ is not None:
            at, words = _unseen(self.vocabulary_, X, ids)
            place = {word: i for i, word in enumerate(dict.fromkeys(words))}
            if place:  # rows of the text's words alone: a table of all words is not copied for a few new ones
                known, read = np.unique(np.append(ids, beyond), return_inverse=True)
                vectors, beyond, read = vectors[known], len(known) - 1, read[:-1]
                read[at] = [len(known) + place[word] for word in words]
                vectors = np.concatenate([vectors, self.letters_.of(list(place))])
        return _Text(padded(read, bounds, self.window, beyond), ids, bounds, vectors)

    def _queries(self, text: _Text) -> Iterator[tuple[int, F32]]:
        """What is expected at the tokens, some at a time, and the number of the first; one part at least."""
        ids, position = text.windows
        with one_blas_thread():
            for a in range(0, max(len(position), 1), ASK_TOKENS):
                some = Windows(ids, position[a : a + ASK_TOKENS])
                yield a, queries(self.network_, text.vectors, some).query

    # --- saving -----------------------------------------------------------------------------------------

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        assert state.n_words is not None
        V, d, k, W = state.n_words, *(state.params[name] for name in ("n_components", "n_hidden", "window"))
        shapes = {
            "around": (2 * W * d, k), "around_bias": (k,), "middle": (k, k), "middle_bias": (k,), "query": (2 * k, d),
            "inputs": (V + 1, d), "outputs": (V, d), "bias": (V,),
        }  # fmt: skip
        if state.fitted["letters"]:
            shapes |= {"letter_slopes": (N_PLACES, d), "letter_mean": (d,)}
        return {name: TensorSpec("float32", shape) for name, shape in shapes.items()}

    def _tensors(self) -> dict[str, NDArray[Any]]:
        letters = {} if self.letters_ is None else {f"letter_{k}": v for k, v in self.letters_._asdict().items()}
        return self.network_._asdict() | self.tables_._asdict() | letters

    def _fitted_scalars(self) -> dict[str, Any]:
        return {"tokenizer": self.tokenizer_, "letters": self.letters_ is not None}

    @classmethod
    def _upgrade(cls, state: SavedState) -> SavedState:
        before = super()._upgrade(state)
        # earlier versions had none, and then those that the parameter named
        return before._replace(fitted={"letters": before.params["letters"], **before.fitted})

    @classmethod
    def _check_values(cls, tensors: Mapping[str, NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        if not all(np.abs(tensors[name]).max(initial=0.0) <= LARGEST_WEIGHT for name in cls._tensor_spec(state)):
            raise InputError("a weight of the network is larger than any that training leaves.")

    def _restore(self, tensors: Mapping[str, NDArray[Any]], state: SavedState) -> None:
        self.network_ = ContextNetwork(*(tensors[name] for name in ContextNetwork._fields))
        self.tables_ = WordTables(*(tensors[name] for name in WordTables._fields))
        self.letters_ = None
        if state.fitted["letters"]:
            self.letters_ = LetterVectors(tensors["letter_slopes"], tensors["letter_mean"])
        self.tokenizer_ = state.fitted["tokenizer"]
        self._casing = usual_casings(self.vocabulary_)
        self._derive()


def _with_letters(tables: WordTables, vocabulary: Vocabulary, casing: I64) -> tuple[WordTables, LetterVectors]:
    """What letters say about the vectors of neighbors, and the tables with what they say about the text's own words."""
    counts: F64 = np.bincount(casing, weights=vocabulary.counts, minlength=len(casing)).astype(np.float64)
    counts[: vocabulary.n_special] = 0
    own = np.flatnonzero(counts)  # words that are read in another casing have none
    own = own[np.array([has_letter(vocabulary.words[i]) for i in own.tolist()], dtype=np.bool_)]
    words = [vocabulary.words[i] for i in own.tolist()]
    letters = learn_letters(words, tables.inputs[own], counts[own])
    inputs = tables.inputs.copy()
    inputs[own] = smoothed(letters, words, tables.inputs[own], counts[own])
    return tables._replace(inputs=inputs), letters


def usual_casings(vocabulary: Vocabulary) -> I64:
    """(V,) the id of each word in the casing in which the text mostly has it."""
    out = np.arange(len(vocabulary))
    for i in range(vocabulary.n_special, len(vocabulary)):
        found = most_frequent_casing(vocabulary.words[i], vocabulary)
        if found is not None:
            out[i] = vocabulary.id(found)
    return out


class _Text(NamedTuple):
    """Sentences as the network reads them."""

    windows: Windows  # of numbers of rows of `vectors`: words, the place beyond the ends, words by their letters
    words: I64  # (tokens,) ids in the vocabulary
    bounds: I64  # where each sentence begins
    vectors: F32  # (rows, d) of all words, or of those that the text has


def _unseen(vocabulary: Vocabulary, X: Any, ids: I64) -> tuple[I64, list[str]]:
    """Which tokens are words with letters that the vocabulary does not have, and these words."""
    at = np.flatnonzero(ids < vocabulary.n_special)
    if isinstance(X, Corpus):
        if X.vocabulary == vocabulary:
            return at[:0], []
        own = np.asarray(X.ids)[at]
        words = [X.vocabulary.words[i] if i >= X.vocabulary.n_special else "" for i in own.tolist()]
    else:
        flat = [word for sentence in X for word in sentence]
        words = [flat[t] for t in at.tolist()]
    new = [has_letter(word) and word not in vocabulary for word in words]
    return at[new], [word for word, is_new in zip(words, new, strict=True) if is_new]


def _cut(rows: NDArray[Any], bounds: I64) -> list[Any]:
    """The rows of each sentence."""
    return [rows[a:b] for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]


__all__ = ["ContextVectors"]
