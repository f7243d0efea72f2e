"""Vectors of tokens by a network that predicts each word of a text from the words around it.

The network and its gradient are in `kernels.words.context_network`; here it is trained and asked. Words begin with
their near PMI vectors, so that little text is enough for a start.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from undertow.engine import Engine, count_workers
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError, short
from undertow.kernels.adam import AdamState, adam_start, adam_step
from undertow.kernels.lanes import equal_runs, ordered_map
from undertow.kernels.types import F32, F64, I64
from undertow.kernels.words.context_network import (
    ContextNetwork,
    Gradient,
    Windows,
    WordTables,
    gradient,
    log_probabilities,
    padded,
    queries,
    segment_windows,
    step_rows,
)
from undertow.models import similar_words
from undertow.models.answers import Gap, Neighbor, gap_of
from undertow.models.base import (
    Estimator,
    LittleTextWarning,
    SavedState,
    TensorSpec,
    as_corpus,
    check_engine,
    encode_sentences,
    warn_of_many_components,
)
from undertow.models.constraints import CALLBACKS, N_JOBS, RANDOM_STATE, Constraint, Whole, check_random_state
from undertow.models.fitting import (
    Callback,
    CheckpointSource,
    Iteration,
    interrupts_raise,
    open_checkpoint,
    run_iterations,
)
from undertow.questions.evidence import GAP_SIGN, as_evidence
from undertow.questions.explain import masked_score
from undertow.questions.fill import check_number
from undertow.results.pmi_vectors import NEAR_LAGS, PMIVectors, unit_rows
from undertow.tables import Table
from undertow.text.casing import most_frequent_casing
from undertow.text.corpus import Corpus
from undertow.text.vocabulary import Vocabulary

VIEWS = ("features", "context", "word")
# chosen on train files, see experiments/results/tagging_default.md
BATCH_TOKENS = 1024  # fewer where the text is short, so that there are enough steps
LEAST_BATCHES = 200  # of a pass
LANES = 2  # parts of a batch, in threads if there are any; the result does not depend on the threads
PART_TOKENS = 1 << 18  # tokens between two reports
SEGMENT = 256  # tokens of a sentence that are read together at the most
RATE, BETA_2, ROW_RATE = 2e-3, 0.99, 0.1  # of Adam for the network, of AdaGrad for the words; both fall to 0
POWER = 0.75  # words are drawn by their counts to this power
START_SIZE = 0.3  # root of the mean squared number of a word's vector at the start
LARGEST_WEIGHT = 1e6  # beyond any that training leaves; sums of larger ones could overflow
ASK_TOKENS = 1 << 12  # tokens that are asked at a time, so that memory does not grow with the text
SCORE_TOKENS = 1 << 8  # the same where each has a probability for every word


class TrainingState(NamedTuple):
    """Where training is."""

    n_done: int  # parts of passes
    seed: int  # of the order of the text
    network: ContextNetwork
    tables: WordTables
    adam: AdamState
    squares: tuple[F64, F64, F64]  # Σ mean squared gradient of each word, by table


class Chance(NamedTuple):
    """The words drawn for a batch, and log(m r) of every word."""

    drawn: I64
    log_rate: F32


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
        The vectors of each word: as a neighbor, and as the word that is predicted.
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
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_components": Whole(1, 10_000),
        "window": Whole(1, 100),
        "n_hidden": Whole(1, 100_000),
        "n_iter": Whole(1, 10_000),
        "n_drawn": Whole(1, 1_000_000),
        "min_count": Whole(0),
        "random_state": RANDOM_STATE,
        "n_jobs": N_JOBS,
        "callbacks": CALLBACKS,
    }

    network_: ContextNetwork
    tables_: WordTables
    tokenizer_: dict[str, Any] | None

    def __init__(
        self,
        n_components: int = 128,
        *,
        window: int = 5,
        n_hidden: int = 256,
        n_iter: int = 1,
        n_drawn: int = 1024,
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
        with one_blas_thread(), open_checkpoint(checkpoint, self, corpus, rng) as at:
            state = at.state if at.state is not None else self._start(corpus, ids, rng)
            text = padded(ids, corpus.offsets, self.window, len(casing))
            parts = -(-corpus.n_tokens // PART_TOKENS)
            result = run_iterations(
                self._iterations(text, np.asarray(corpus.offsets), state, parts, rng),
                n_iter=self.n_iter * parts,
                callbacks=self.callbacks,
                checkpoint=at,
            )
        self.network_, self.tables_ = result.params
        self.vocabulary_, self.tokenizer_ = corpus.vocabulary, corpus.manifest.get("tokenizer")
        self.history_ = result.history
        self._derive()
        return self

    def _derive(self) -> None:
        """What questions need and the saved arrays determine."""
        self._casing = usual_casings(self.vocabulary_)
        self._unit_words = unit_rows(self.tables_.inputs[:-1])

    def _start(self, corpus: Corpus, ids: I64, rng: np.random.Generator) -> TrainingState:
        """Words begin with their near PMI vectors, the network at random."""
        V, d, k = len(corpus.vocabulary), self.n_components, self.n_hidden
        counts = np.bincount(ids, minlength=V)
        read = Corpus(ids.astype(np.uint32), corpus.offsets, corpus.vocabulary.with_counts(counts))
        start = PMIVectors(d, contexts="near", lags=NEAR_LAGS, random_state=rng, n_jobs=self.n_jobs)
        with interrupts_raise(), warnings.catch_warnings():
            warnings.simplefilter("ignore", LittleTextWarning)  # `fit` has warned
            near = start.fit(read).vectors_
        inputs = np.zeros((V + 1, d), dtype=np.float32)
        inputs[:V] = near * (START_SIZE / max(float(np.sqrt(np.square(near).mean())), 1e-9))

        def uniform(n_in: int, n_out: int) -> F32:
            bound = 1 / np.sqrt(n_in)
            return rng.uniform(-bound, bound, (n_in, n_out)).astype(np.float32)

        biases = [np.zeros(k, dtype=np.float32) for _ in range(2)]
        net = ContextNetwork(uniform(2 * self.window * d, k), biases[0], uniform(k, k), biases[1], uniform(2 * k, d))
        outputs = 0.01 * rng.standard_normal((V, d), dtype=np.float32)
        bias = np.log((counts + 1) / (counts + 1).sum()).astype(np.float32)
        squares = (np.zeros(V + 1), np.zeros(V), np.zeros(V))
        return TrainingState(
            0, int(rng.integers(1 << 32)), net, WordTables(inputs, outputs, bias), adam_start(net), squares
        )

    def _iterations(
        self, text: Windows, bounds: I64, state: TrainingState, n_parts: int, rng: np.random.Generator
    ) -> Iterator[Iteration[tuple[ContextNetwork, WordTables]]]:
        """Parts of passes: each pass reads all segments of the text in an order of its own."""
        begin, length = segments(bounds)
        counts = np.bincount(text.ids[text.position], minlength=len(state.tables.bias))
        rate = counts**POWER / (counts**POWER).sum()
        cumulative = np.cumsum(rate)
        log_rate = np.log(self.n_drawn * np.maximum(rate, 1e-30)).astype(np.float32)
        n_threads = min(count_workers(self.n_jobs), LANES)
        n_all = self.n_iter * n_parts
        for i in range(state.n_done, n_all):
            # the order of a pass is that of its number, so that a part needs nothing of those before it
            order = np.random.default_rng([state.seed, i // n_parts]).permutation(len(begin))
            edges = equal_runs(np.concatenate(([0], np.cumsum(length[order]))), n_parts)
            mine = order[edges[i % n_parts] : edges[i % n_parts + 1]]
            cost = np.concatenate(([0], np.cumsum(length[mine])))
            batches = equal_runs(cost, max(round(int(cost[-1]) / BATCH_TOKENS), LEAST_BATCHES // n_parts))
            loss = 0.0
            for b in range(len(batches) - 1):
                some = mine[batches[b] : batches[b + 1]]
                left = 1 - (i + b / (len(batches) - 1)) / n_all
                drawn = np.searchsorted(cumulative, rng.random(self.n_drawn) * cumulative[-1], side="right")
                chance = Chance(drawn, log_rate)
                state, more = self._step(text, begin[some], length[some], chance, state, left, n_threads)
                loss += more
            state = state._replace(n_done=i + 1)
            now = state._replace(tables=_copy(state.tables), squares=_copy(state.squares))  # steps change them in place
            yield Iteration(-loss / float(cost[-1]), (now.network, now.tables), state=partial(_same, now))

    def _step(
        self, text: Windows, begin: I64, length: I64, chance: Chance, state: TrainingState, left: float, n_threads: int
    ) -> tuple[TrainingState, float]:
        """One batch: the parts of its gradient in threads, added up in their order."""
        net, tables, n = state.network, state.tables, int(length.sum())
        edges = equal_runs(np.concatenate(([0], np.cumsum(length))), LANES)
        windows = [
            segment_windows(text, begin[a:b], length[a:b], self.window) for a, b in zip(edges, edges[1:], strict=False)
        ]

        def lane(own: Windows) -> Gradient:
            return gradient(net, tables, own, chance.drawn, chance.log_rate)

        found = list(ordered_map(lane, windows, n_threads))
        down = ContextNetwork(*(sum(parts) / np.float32(n) for parts in zip(*(g.network for g in found), strict=True)))
        net, adam = adam_step(net, down, state.adam, RATE * left, beta2=BETA_2)
        target = np.concatenate([own.ids[own.position] for own in windows])
        places = np.concatenate([own.ids for own in windows])
        words = np.concatenate([target, chance.drawn])
        outputs = np.concatenate([*(g.targets for g in found), sum(g.drawn for g in found)])
        bias = np.concatenate([*(g.target_bias for g in found), sum(g.drawn_bias for g in found)])
        rate = ROW_RATE * left
        step_rows(tables.inputs, state.squares[0], places, np.concatenate([g.inputs for g in found]), rate)
        step_rows(tables.outputs, state.squares[1], words, outputs, rate)
        step_rows(tables.bias[:, None], state.squares[2], words, bias[:, None], rate)
        return state._replace(network=net, adam=adam), sum(g.loss for g in found)

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
        text, bounds = self._read(X)
        parts = []
        if view != "word":
            parts.append(unit_rows(np.concatenate([q for _, q in self._queries(text)])))
        if view != "context":
            parts.append(self._unit_words[text.ids[text.position]])
        return _cut(np.hstack(parts), bounds)

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
        text, bounds = self._read(X)
        found = [
            log_probabilities(self.tables_, part)[np.arange(len(part)), text.ids[position[a : a + SCORE_TOKENS]]]
            for position, q in self._queries(text)
            for a in range(0, len(q), SCORE_TOKENS)
            for part in [q[a : a + SCORE_TOKENS]]
        ]
        return _cut(np.concatenate([np.zeros(0), *found]), bounds)

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
        odd = next((token for token in tokens if token is not None and not isinstance(token, str)), None)
        if not len(tokens) or odd is not None:
            raise InputError(
                f"The text must be words, and None for a gap; {short(odd) if len(tokens) else 'it is empty'}."
            )
        where = [t for t, token in enumerate(tokens) if token is None]
        read, _ = self._read([[self.vocabulary_.unknown if token is None else token for token in tokens]])
        [(_, q)] = self._queries(Windows(read.ids, read.position[where]))
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

    def _read(self, X: Any) -> tuple[Windows, I64]:
        """The sentences as ids in the casing that the network knows, and where each begins."""
        sentences = encode_sentences(self.vocabulary_, X)
        bounds = np.cumsum([0, *map(len, sentences)])
        ids = np.concatenate([np.zeros(0, dtype=np.uint32), *sentences])
        return padded(self._casing[ids], bounds, self.window, len(self.vocabulary_)), bounds

    def _queries(self, text: Windows) -> Iterator[tuple[I64, F32]]:
        """What is expected at the tokens, some at a time; one part at least."""
        with one_blas_thread():
            for a in range(0, max(len(text.position), 1), ASK_TOKENS):
                some = text.position[a : a + ASK_TOKENS]
                yield some, queries(self.network_, self.tables_.inputs, Windows(text.ids, some)).query

    # --- saving -----------------------------------------------------------------------------------------

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        assert state.n_words is not None
        V, d, k, W = state.n_words, *(state.params[name] for name in ("n_components", "n_hidden", "window"))
        shapes = {
            "around": (2 * W * d, k), "around_bias": (k,), "middle": (k, k), "middle_bias": (k,), "query": (2 * k, d),
            "inputs": (V + 1, d), "outputs": (V, d), "bias": (V,),
        }  # fmt: skip
        return {name: TensorSpec("float32", shape) for name, shape in shapes.items()}

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return self.network_._asdict() | self.tables_._asdict()

    def _fitted_scalars(self) -> dict[str, Any]:
        return {"tokenizer": self.tokenizer_}

    @classmethod
    def _check_values(cls, tensors: Mapping[str, NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        if not all(np.abs(tensors[name]).max(initial=0.0) <= LARGEST_WEIGHT for name in cls._tensor_spec(state)):
            raise InputError("a weight of the network is larger than any that training leaves.")

    def _restore(self, tensors: Mapping[str, NDArray[Any]], state: SavedState) -> None:
        self.network_ = ContextNetwork(*(tensors[name] for name in ContextNetwork._fields))
        self.tables_ = WordTables(*(tensors[name] for name in WordTables._fields))
        self.tokenizer_ = state.fitted["tokenizer"]
        self._derive()


def usual_casings(vocabulary: Vocabulary) -> I64:
    """(V,) the id of each word in the casing in which the text mostly has it."""
    out = np.arange(len(vocabulary))
    for i in range(vocabulary.n_special, len(vocabulary)):
        found = most_frequent_casing(vocabulary.words[i], vocabulary)
        if found is not None:
            out[i] = vocabulary.id(found)
    return out


def segments(bounds: I64) -> tuple[I64, I64]:
    """Where runs of at most `SEGMENT` tokens of one sentence begin, and their lengths."""
    lengths = np.diff(bounds)
    n = -(-lengths // SEGMENT)
    number = np.arange(int(n.sum())) - np.repeat(np.cumsum(n) - n, n)
    begin = np.repeat(bounds[:-1], n) + SEGMENT * number
    return begin, np.minimum(np.repeat(bounds[1:], n) - begin, SEGMENT)


def _cut(rows: NDArray[Any], bounds: I64) -> list[Any]:
    """The rows of each sentence."""
    return [rows[a:b] for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]


def _copy(arrays: Any) -> Any:
    copies = [a.copy() for a in arrays]
    return arrays._make(copies) if hasattr(arrays, "_make") else tuple(copies)


def _same(state: TrainingState) -> TrainingState:
    return state


__all__ = ["ContextVectors"]
