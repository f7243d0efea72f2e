"""What all taggers share: checks of sentences and tags, evaluation, and saving with the models they read."""

from __future__ import annotations

import abc
import copy
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from undertow.engine import Engine
from undertow.errors import InputError, short
from undertow.kernels.types import F32
from undertow.models.base import Estimator, SavedState, Sentences, TensorSpec
from undertow.results.tagging import packed_models
from undertow.results.tagging.model_features import ModelFeatures
from undertow.results.tagging.scores import Report, accuracy_by_group, span_scores, token_accuracy
from undertow.results.tagging.sources import ADAPTERS, FeatureSources, as_representations
from undertow.results.tagging.spans import SCHEMES, scheme_of
from undertow.results.tagging.token_features import Representation
from undertow.text.corpus import Corpus
from undertow.text.tokenizer import checked_sentences
from undertow.text.vocabulary import Vocabulary, check_word

LEAST_KNOWN = 0.05  # share of tokens with a known tag; other tag sets may share a few tags: CoNLL-U's two share SYM
LONG_SENTENCES = 150  # tokens on average: far above any text that was divided into sentences
BATCH_TOKENS = 1 << 13  # features of so many tokens are held as Python objects at a time


TaggerInput = Sentences | Iterable[F32]  # token lists, or the vectors of each sentence
TagLists = Iterable[Sequence[str]]


class BaseTagger(Estimator):
    """What all taggers share. `fit(X, y)` takes token lists and tag lists, `predict(X)` gives tag lists.

    Attributes
    ----------
    labels_ : list of str
        The tags, sorted.
    scheme_ : str or None
        How the tags mark spans ("iob1", "iob2", "bilou" or "bioes"); None if they mark none.
    features_ : list of Representation
        What the tagger reads. Models in it are saved with the tagger, and shared by its clones.
    tokenizer_ : dict or None
        The rule by which running text is split into tokens for this tagger.
    columns_ : dict or None
        Where words and tags stood in the files it learned from ("tags", "column" and "format"), if known.
    """

    unsaved_params: ClassVar[frozenset[str]] = frozenset({"callbacks", "features"})

    features: FeatureSources
    labels_: list[str]
    scheme_: str | None
    features_: list[Representation]
    tokenizer_: dict[str, Any] | None
    columns_: dict[str, Any] | None

    @abc.abstractmethod
    def fit(self, X: TaggerInput, y: TagLists, *, engine: Engine | None = None) -> Self:
        """Learn to tag from labelled sentences.

        Parameters
        ----------
        X
            Token lists; for a LocalTagger without features, an array (n_tokens, d) for each sentence.
        y
            A list of tags for each sentence.
        engine
            Refused: taggers are trained in this process.

        Returns
        -------
        BaseTagger
            The tagger itself.

        Raises
        ------
        InputError
            If a parameter is not allowed, or the sentences and tags do not fit.
        """

    @abc.abstractmethod
    def predict(self, X: TaggerInput) -> list[list[str]]:
        """Tag sentences.

        Parameters
        ----------
        X
            Sentences, as in `fit`.

        Returns
        -------
        list of lists of str
            A tag for each token.
        """

    def score(self, X: TaggerInput, y: TagLists) -> float:
        """Share of the tokens with the right tag.

        Parameters
        ----------
        X
            Sentences, as in `fit`.
        y
            A list of tags for each sentence.

        Returns
        -------
        float
            From 0 to 1.

        Raises
        ------
        InputError
            If there is no token, or hardly any tag is one of the tagger's.
        """
        return self._scored(X, y)[0].tokens["all"].accuracy or 0.0

    def evaluate(self, X: TaggerInput, y: TagLists) -> Report:
        """Evaluate the tagger on labelled sentences.

        Parameters
        ----------
        X
            Sentences, as in `fit`.
        y
            A list of tags for each sentence.

        Returns
        -------
        Report
            Accuracy on all, unseen and rare words; precision, recall and F1 of spans if the tags mark spans.

        Raises
        ------
        InputError
            If there is no token, or hardly any tag is one of the tagger's.
        """
        return self._scored(X, y)[0]

    def _scored(self, X: TaggerInput, y: TagLists, **inputs: Any) -> tuple[Report, list[list[str]]]:
        self._check_fitted()
        sentences: list[Any] = list(X.token_lists()) if isinstance(X, Corpus) else list(X)
        gold = checked_tags(y, [len(s) for s in sentences])
        if not any(gold):
            raise InputError("There is no token to score: give at least one.")
        self._check_same_tags(gold)
        predicted = self.predict(sentences, **inputs)
        return self._report(sentences, gold, predicted), predicted

    def _report(self, sentences: Sequence[Any], gold: list[list[str]], predicted: list[list[str]]) -> Report:
        """The scores of predicted tags."""
        words = vars(self).get("vocabulary_")
        if words is None:
            tokens = {"all": token_accuracy(gold, predicted)}
        else:
            tokens = accuracy_by_group(sentences, gold, predicted, words)
        spans = None
        if self.scheme_ is not None:
            if not all(t == "O" for s in gold for t in s) and scheme_of(gold) is None:
                raise InputError(f"This tagger knows spans in {self.scheme_.upper()}, and these tags mark none.")
            spans = span_scores(gold, predicted)
        return Report(tokens, spans)

    def _check_same_tags(self, gold: list[list[str]]) -> None:
        """Refuse tags of another set, of which hardly any token has one that the tagger could give."""
        times = Counter(tag for tags in gold for tag in tags)
        known = sum(times[tag] for tag in self.labels_)
        if known < LEAST_KNOWN * times.total():
            raise InputError(
                f"Only {known} of {times.total()} tokens have a tag ({_shortened(sorted(times))}) that is known to the "
                f"tagger ({_shortened(self.labels_)}): give tags of its set (on the command line: --tags)."
            )

    def _set_common(
        self, X: Sequence[Sequence[str]] | None, y: list[list[str]], features: list[Representation]
    ) -> None:
        self.labels_ = sorted({tag for tags in y for tag in tags})
        self.scheme_ = scheme_of(y)
        self.features_ = features
        self.columns_ = None
        self.tokenizer_ = next((_rule(f) for f in features if _rule(f)), None)
        if X is not None:
            counts = Counter(word for words in X for word in words)
            self.vocabulary_ = Vocabulary.from_counts(counts)

    # --- scikit-learn -----------------------------------------------------------------------------------

    def __sklearn_clone__(self) -> Self:
        shared = self.unsaved_params  # callbacks and models: there is no use in copying them
        return type(self)(**{k: v if k in shared else copy.deepcopy(v) for k, v in self.get_params().items()})

    # --- saving -----------------------------------------------------------------------------------------

    def _packed_models(self) -> list[Estimator]:
        """The models behind the features, each once."""
        models: list[Estimator] = []
        for f in self.features_:
            if not isinstance(f, ModelFeatures) or type(f) is not ADAPTERS.get(f.adapter) or not _is_ours(f.model):
                raise InputError(
                    f"A tagger with the features {f.name!r} cannot be saved: undertow can write those that Vectors, "
                    "States, Posteriors and Paths make of its own models."
                )
            if not any(f.model is m for m in models):
                models.append(f.model)
        return models

    def _fitted_scalars(self) -> dict[str, Any]:
        models = self._packed_models()
        features = []
        for f in self.features_:
            assert isinstance(f, ModelFeatures)
            number = next(i for i, m in enumerate(models) if m is f.model)
            features.append({"adapter": f.adapter, "model": number, "options": f.options()})
        return {
            "labels": self.labels_,
            "scheme": self.scheme_,
            "tokenizer": self.tokenizer_,
            "columns": self.columns_,
            "features": features,
            "models": [packed_models.pack(m, "")[0] for m in models],
        }

    @classmethod
    def _upgrade(cls, state: SavedState) -> SavedState:
        models = [packed_models.upgrade(record) for record in state.fitted["models"]]
        features = [
            {**f, "options": {**ADAPTERS[f["adapter"]].added_options, **f["options"]}} for f in state.fitted["features"]
        ]
        fitted = {**state.fitted, "models": models, "features": features}
        return super()._upgrade(state)._replace(fitted=fitted)

    def _packed_tensors(self) -> dict[str, npt.NDArray[Any]]:
        return {
            k: t for i, m in enumerate(self._packed_models()) for k, t in packed_models.pack(m, _prefix(i))[1].items()
        }

    @classmethod
    def _packed_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        records = state.fitted["models"]
        return {k: t for i, r in enumerate(records) for k, t in packed_models.packed_spec(r, _prefix(i)).items()}

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        labels = state.fitted["labels"]
        if not labels or not all(isinstance(x, str) for x in labels) or labels != sorted(set(labels)):
            raise InputError("the labels are not a sorted list of strings.")
        for label in labels:
            check_word(label, "label")
        if state.fitted["scheme"] not in (None, *SCHEMES):
            raise InputError(f"the scheme {short(state.fitted['scheme'])} of the tags is unknown.")
        super()._check_values(tensors, state)

    def _restore_common(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        fitted = state.fitted
        models = [packed_models.unpack(r, tensors, _prefix(i)) for i, r in enumerate(fitted["models"])]
        restored: list[Representation] = [
            ADAPTERS[f["adapter"]](models[f["model"]], **f["options"]) for f in fitted["features"]
        ]
        self.labels_ = fitted["labels"]
        self.scheme_ = fitted["scheme"]
        self.tokenizer_ = fitted["tokenizer"]
        self.columns_ = checked_columns(fitted.get("columns"))  # taggers of earlier versions do not say
        self.features_ = restored
        self.features = restored or None


def _shortened(tags: list[str], n: int = 5) -> str:
    """The first tags, each cut if it is long."""
    shown = [tag if len(tag) <= 20 else f"{tag[:19]}…" for tag in tags[:n]]
    return ", ".join(shown + ["…"] * (len(tags) > n))


def _prefix(number: int) -> str:
    return f"features.{number}."


def _is_ours(model: object) -> bool:
    return isinstance(model, Estimator) and not isinstance(model, BaseTagger)


def _rule(representation: Representation) -> dict[str, Any] | None:
    own = getattr(getattr(representation, "model", None), "tokenizer_", None)
    if not own or own.get("rule") == "callable":
        return None
    # a tagger reads words as they are written; the representation spells them for the model
    return {**own, "numbers": "keep", "lower": False}


# --- checks of input ------------------------------------------------------------------------------------


def checked_columns(columns: dict[str, Any] | None) -> dict[str, Any] | None:
    """The columns of a saved tagger."""
    if columns is not None and set(columns) - {"multiword"} != {"tags", "column", "format"}:
        raise InputError("The columns are not those of tags and words and a format.")
    return columns


def checked_words(X: Any) -> list[list[str]]:
    """Token lists (or a Corpus) with every word checked."""
    sentences = list(X.token_lists()) if isinstance(X, Corpus) else list(checked_sentences(X))
    known: set[str] = set()
    for i, tokens in enumerate(sentences):
        for j, token in enumerate(tokens):
            if token not in known:
                check_word(token, f"token {j} of sentence {i}")
                known.add(token)
    return sentences


def checked_tags(y: Any, lengths: Sequence[int]) -> list[list[str]]:
    """Tag lists that fit sentences of these lengths."""
    if y is None:
        raise InputError("A tagger needs tags: give y, a list of tags for every sentence.")
    tags = list(checked_sentences(y))
    if len(tags) != len(lengths):
        raise InputError(
            f"There are {len(lengths)} sentences and {len(tags)} lists of tags: give one list per sentence."
        )
    known: set[str] = set()
    for i, (sentence, n) in enumerate(zip(tags, lengths, strict=True)):
        if len(sentence) != n:
            raise InputError(f"Sentence {i} has {n} tokens and {len(sentence)} tags: give one tag per token.")
        for j, tag in enumerate(sentence):
            if tag not in known:
                check_word(tag, f"tag {j} of sentence {i}")
                known.add(tag)
    return tags


def check_trainable(y: list[list[str]]) -> None:
    if not any(y):
        raise InputError("There is no token to learn from: give at least one sentence with tags.")


class LabelsWarning(UserWarning):
    """Labelled sentences are such as a mistake in a file makes them."""


def warn_of_odd_labels(X: list[list[str]], y: list[list[str]], stacklevel: int) -> None:
    """Warn of exchanged columns, sentences that were not divided, and tags that are all the same."""
    words, labels = ({item for sentence in items for item in sentence} for items in (X, y))
    n_tokens = sum(map(len, X))
    why = None
    if len(labels) == 1:
        tag = short(next(iter(labels)))
        why = f"All tokens have the tag {tag}, so there is nothing to learn: choose another column (--tags)."
    elif len(labels) > len(words):
        why = (
            f"There are more different tags ({len(labels):,}) than different words ({len(words):,}): if words and tags "
            "are exchanged, exchange them back (--column, --tags)."
        )
    elif n_tokens > LONG_SENTENCES * len(X):
        why = (
            f"The labelled sentences have {n_tokens / len(X):,.0f} tokens on average: divide them (in a file by empty "
            "lines), as each is read and held out as a whole."
        )
    if why is not None:
        warnings.warn(why, LabelsWarning, stacklevel=stacklevel + 1)


def check_features(features: FeatureSources, *, vectors: bool = False) -> list[Representation]:
    """The representations of the parameter `features`; their models must be fitted."""
    out = as_representations(features, vectors=vectors)
    for f in out:
        if isinstance(f, ModelFeatures) and isinstance(f.model, Estimator):
            f.model._check_fitted()
    return out


def token_batches(sentences: list[list[str]], n_tokens: int = BATCH_TOKENS) -> list[list[list[str]]]:
    """Sentences in lists of about `n_tokens` tokens."""
    out: list[list[list[str]]] = []
    n_held = n_tokens
    for tokens in sentences:
        if n_held >= n_tokens:
            out.append([])
            n_held = 0
        out[-1].append(tokens)
        n_held += len(tokens)
    return out


def as_matrix(a: Any, i: int) -> F32:
    """The vectors of sentence i: two axes, finite."""
    array = np.asarray(a, dtype=np.float32)
    if array.ndim != 2 or not np.isfinite(array).all():
        raise InputError(
            f"Sentence {i} is not an array of finite numbers with a row for each token: give the output of transform."
        )
    return array
