"""Linear interpolation of language models: a weighted mean of their probabilities of each token.

Models of one text that differ in their blocks or seeds make different mistakes about rare words; their mean makes
fewer. The mixture predicts, but has no hidden states of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Protocol, Self

import numpy as np

from undertow.errors import InputError
from undertow.kernels.types import F64
from undertow.models.answers import Gap
from undertow.models.base import Sentences
from undertow.models.constraints import check_random_state
from undertow.questions import mixture
from undertow.questions.best_fill import JointFill
from undertow.questions.evidence import GAP_SIGN, as_evidence
from undertow.questions.explain import Change, Comparison, Surprise, masked_score
from undertow.tables import Table
from undertow.text.corpus import Corpus
from undertow.text.vocabulary import Vocabulary

N_STEPS = 100
TOLERANCE = 1e-7  # nats per token


class LanguageModel(Protocol):
    """A fitted model that gives the probability of each token."""

    @property
    def vocabulary_(self) -> Vocabulary: ...

    def log_probabilities(self, X: Sentences) -> list[F64]: ...


class Interpolation:
    """A mixture of language models: p(token | before) = Σ_i weight_i · p_i(token | before).

    Parameters
    ----------
    models
        Fitted models with one vocabulary and the method `log_probabilities`, such as HMM, LDS or FactorialHMM.
    weights
        One number, at least 0, for each model; None weighs all alike. They are stored so that they sum to one.

    Raises
    ------
    InputError
        If there is no model, a model gives no probabilities of tokens, the vocabularies differ, or the weights do not
        fit.

    Examples
    --------
    >>> from undertow import HMM, FactorialHMM, Interpolation
    >>> text = [["a", "b", "a"], ["b", "a"]]
    >>> models = [HMM(2, n_iter=1, random_state=0).fit(text), FactorialHMM(1, n_iter=1, random_state=0).fit(text)]
    >>> mixture = Interpolation(models, [3, 1])
    >>> mixture.weights.tolist()
    [0.75, 0.25]
    >>> [len(logs) for logs in mixture.log_probabilities(text)]
    [3, 2]
    """

    def __init__(self, models: Sequence[LanguageModel], weights: Sequence[float] | None = None) -> None:
        self.models = list(models)
        if not self.models:
            raise InputError("An interpolation needs at least one model: give a list of fitted ones.")
        for model in self.models:
            if not hasattr(model, "log_probabilities"):
                raise InputError(f"{type(model).__name__} gives no log probabilities of tokens: interpolate others.")
            if not getattr(model, "scores_exactly", True):
                raise InputError(
                    f"This {type(model).__name__} has too many joint states for the probability of each token: "
                    "interpolate one with fewer layers or states."
                )
            if model.vocabulary_.words != self.models[0].vocabulary_.words:
                raise InputError("The models have different vocabularies: fit them to one corpus.")
        given = np.ones(len(self.models)) if weights is None else np.asarray(weights, dtype=np.float64)
        if given.shape != (len(self.models),) or not (given >= 0).all() or not 0 < given.sum() < np.inf:
            raise InputError(
                f"weights={weights!r} must be one number, at least 0, for each of {len(self.models)} models."
            )
        self.weights = given / given.sum()

    @property
    def vocabulary_(self) -> Vocabulary:
        """The vocabulary of the models."""
        return self.models[0].vocabulary_

    def fit(self, X: Sentences) -> Self:
        """Choose the weights that make a text most probable, by EM.

        Parameters
        ----------
        X
            Sentences that the models were not fitted to.

        Returns
        -------
        Interpolation
            The mixture itself.

        Raises
        ------
        InputError
            If there is no token.
        """
        p = np.exp(self._logs(X)[0])
        if not p.size:
            raise InputError("There is no token to choose the weights by: give at least one.")
        before = -np.inf
        for _ in range(N_STEPS):
            joint = self.weights[:, None] * p
            total = joint.sum(axis=0)
            possible = total > 0
            now = float(np.log(total[possible]).mean()) if possible.any() else -np.inf
            if now <= before + TOLERANCE:
                break
            before = now
            self.weights = (joint[:, possible] / total[possible]).mean(axis=1)
            self.weights /= self.weights.sum()
        return self

    def log_probabilities(self, X: Sentences) -> list[F64]:
        """log p(token | tokens before it).

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        list of float64 arrays (n_tokens,)
            One for each sentence.
        """
        logs, lengths = self._logs(X)
        with np.errstate(divide="ignore"):
            weights = np.log(self.weights)[:, None]
        mixed = np.logaddexp.reduce(logs + weights, axis=0) if logs.shape[1] else np.empty(0)
        return np.split(mixed, np.cumsum(lengths)[:-1]) if lengths else []

    # --- questions: one of the models wrote the whole text ----------------------------------------------

    def responsibilities(self, text: Any) -> F64:
        """How probably each model wrote a text, given what is known of it.

        Parameters
        ----------
        text
            Tokens; None or "?" is a gap. A set allows some words, a mapping weighs them (see `Evidence`).

        Returns
        -------
        array (n_models,)
            weight_i p_i(evidence), divided by their sum.

        Raises
        ------
        InputError
            If the text is empty, a model is no chain of states, or all of them hold the evidence impossible.
        """
        return mixture.responsibilities(self.models, self.weights, as_evidence(text, gap_sign=GAP_SIGN))

    def log_evidence(self, text: Any) -> float:
        """Log-probability of a partly known text that one of the models wrote: all ways to fill it together.

        Parameters
        ----------
        text
            As in `fill`.

        Returns
        -------
        float
            −inf if the evidence is impossible.
        """
        return mixture.mixed_log_evidence(self._mixture(), as_evidence(text, gap_sign=GAP_SIGN))

    def fill(self, text: Any, n: int = 10, *, markers: bool = False) -> Table[Gap]:
        """The words of the gaps of a text, each given everything on both sides of it.

        Here one of the models is taken to have written the whole text, and the evidence says how probably each did.

        Parameters
        ----------
        text
            Tokens; None or "?" is a gap. A set allows some words, a mapping weighs them (see `Evidence`).
        n
            How many words for each gap.
        markers
            Whether the unknown word, the boundary word and classes of unknown words are listed too.

        Returns
        -------
        Table of Gap
            `position`, `words` with their probabilities, most probable first, and the probability of `markers` that are
            not listed.

        Raises
        ------
        InputError
            If the text is empty, or a model is no chain of states.
        """
        return mixture.fill(self._mixture(markers), as_evidence(text, gap_sign=GAP_SIGN), n)

    def sample_fill(
        self,
        text: Any,
        n: int = 5,
        *,
        markers: bool = False,
        random_state: int | np.random.Generator | None = None,
    ) -> list[list[str]]:
        """Draw the words of all gaps together, given everything that is known, exactly.

        Parameters
        ----------
        text
            As in `fill`.
        n
            How many texts.
        markers
            Whether the unknown word, the boundary word and classes of unknown words may be drawn.
        random_state
            Seed or generator; None draws differently each time.

        Returns
        -------
        list of list of str
            The text with its gaps filled, n times; each is written by one model, drawn by how probably it wrote what is
            known.
        """
        rng = check_random_state(random_state)
        return mixture.draw_fills(self._mixture(markers), as_evidence(text, gap_sign=GAP_SIGN), n, rng)

    def best_fill(self, text: Any, *, markers: bool = False, max_expansions: int = 2000) -> JointFill:
        """The most probable words of all gaps together, summed over the models and their states.

        Parameters
        ----------
        text
            As in `fill`.
        markers
            Whether the unknown word, the boundary word and classes of unknown words may fill gaps.
        max_expansions
            The search ends after so many partial fills, with the best one so far and `proven` False.

        Returns
        -------
        JointFill
            `tokens`, the filled text; `log_probability` of the fill given the evidence; `proven`.
        """
        return mixture.best_fill(self._mixture(markers), as_evidence(text, gap_sign=GAP_SIGN), max_expansions)

    def compare(self, text: Any, position: int, words: Sequence[str]) -> Table[Comparison]:
        """How well some words fit a position, given both sides.

        Parameters
        ----------
        text
            Tokens, possibly with gaps (None); what stands at the position itself is not looked at.
        position
            Where, from 0.
        words
            Words of the vocabulary.

        Returns
        -------
        Table of Comparison
            `word`, `probability`, `share` among the words given, and `log_odds` against the others, in their order.
        """
        return mixture.compare(self._mixture(), as_evidence(text), position, words)

    def surprise(self, X: Sentences) -> Table[Surprise]:
        """How surprising each token is, given the tokens before it and given all others, in bits.

        Both belong to a text that one of the models wrote, so that they can be compared; `log_probabilities` mixes at
        each token instead.

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        Table of Surprise
            `tokens`, `left_to_right` and `both_sides`, one a sentence.
        """
        return mixture.surprises(self.models, self.weights, X)

    def what_if(self, text: Any, position: int, word: str) -> Table[Change]:
        """What would change at every other position if this one had another word.

        Parameters
        ----------
        text
            Tokens, possibly with gaps (None).
        position
            Which position is changed, from 0.
        word
            Its new word.

        Returns
        -------
        Table of Change
            `position`, `token`, `total_variation` and `divergence` of the distributions of its hidden state, which is
            the model that writes and that model's state, and by how many bits the token becomes more surprising.
        """
        return mixture.what_if(self._mixture(), as_evidence(text), position, word)

    def masked_log_probabilities(self, X: Sentences) -> list[F64]:
        """log p(token | all other tokens of its sentence).

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        list of arrays (n_tokens,)
            One for each sentence.
        """
        sentences = X if isinstance(X, Corpus | list | tuple) else list(X)
        return mixture.masked_log_probabilities(self.models, self.weights, sentences)

    def masked_perplexity(self, X: Sentences) -> float:
        """Perplexity of the tokens, each given all other tokens of its sentence.

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

    def _mixture(self, markers: bool = False) -> mixture.Mixture:
        return mixture.mixture_of(self.models, self.weights, markers)

    def _logs(self, X: Sentences) -> tuple[F64, list[int]]:
        """(models, tokens), and the lengths of the sentences."""
        if not isinstance(X, Corpus | list | tuple) and isinstance(X, Iterable):
            X = list(X)
        lengths: list[int] = []
        rows = []
        for model in self.models:
            parts = model.log_probabilities(X)
            lengths = [len(part) for part in parts]
            rows.append(np.concatenate(parts) if parts else np.empty(0))
        return np.array(rows), lengths

    def score(self, X: Sentences, y: Any = None) -> float:
        """Mean log-probability of a token.

        Parameters
        ----------
        X
            Sentences.
        y
            Ignored.

        Returns
        -------
        float
            In nats.

        Raises
        ------
        InputError
            If there is no token.
        """
        parts = self.log_probabilities(X)
        if not sum(map(len, parts)):
            raise InputError("There is no token to score: give at least one.")
        return float(np.concatenate(parts).mean())

    def perplexity(self, X: Sentences) -> float:
        """exp(−score).

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        float
            At least 1.

        Raises
        ------
        InputError
            If there is no token.
        """
        return float(np.exp(-self.score(X)))

    def probability(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a mixture at each token has no hidden chain that could be summed over.

        Parameters
        ----------
        *args, **kwargs
            As those of `HMM.probability`.

        Raises
        ------
        InputError
            Always.
        """
        raise InputError(
            "An Interpolation mixes its models at every token and has no chain of states to look ahead over: ask one "
            "of its models instead."
        )

    generate = probability
