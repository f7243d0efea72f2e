"""What the estimators' base does beyond the contract: foreign corpora, messages, scikit-learn's search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contract.cases import CASES, OTHER_SENTENCES, SENTENCES, Case
from contract.reference import DeletedInterpolation
from undertow.errors import InputError, NotFittedError
from undertow.models.base import Estimator, as_corpus, encode_sentences
from undertow.models.constraints import check_callbacks, check_random_state
from undertow.text.corpus import Corpus
from undertow.text.vocabulary import Vocabulary


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_model_is_one_class_over_estimator(case: Case) -> None:
    """No mixins: a class that is cut into files by inheritance has to be read in all of them at once."""
    assert type(case.make()).__mro__[1:] == Estimator.__mro__


def test_a_foreign_corpus_is_translated_by_words_and_roles() -> None:
    here = Vocabulary(["<unk>", "</s>", "river", "bank"], [0, 0, 1, 1], boundary=True)
    # its unknown word is spelled like a word of ours, its boundary like none
    there = Vocabulary(["river", "<end>", "bank", "sea"], [0, 0, 1, 1], boundary=True)
    corpus = Corpus(np.array([0, 1, 2, 3], dtype=np.uint32), np.array([0, 2, 4]), there)
    encoded = encode_sentences(here, corpus)
    assert [ids.tolist() for ids in encoded] == [[0, 1], [3, 0]]
    assert all(ids.dtype == np.uint32 for ids in encoded)
    plain = Vocabulary(["<unk>", "river", "bank"], [0, 1, 1])
    assert [ids.tolist() for ids in encode_sentences(plain, corpus)] == [[0, 0], [2, 0]]


def test_a_corpus_passes_the_door_as_it_is_unless_it_is_empty() -> None:
    corpus = Corpus.from_sentences(SENTENCES)
    assert as_corpus(corpus) is corpus
    empty = Corpus(np.empty(0, dtype=np.uint32), np.zeros(1, dtype=np.int64), corpus.vocabulary)
    with pytest.raises(InputError, match="no tokens"):
        as_corpus(empty)


@pytest.mark.parametrize("text", [None, 3, "the river", b"the river", {"the": 1}, {("the", "river"): 1}])
def test_the_door_says_what_it_wants(text: Any) -> None:
    with pytest.raises(InputError, match=f"not {type(text).__name__}: give for example"):
        as_corpus(text)


def test_the_door_names_the_sentence_in_few_words() -> None:
    with pytest.raises(InputError, match=r"Sentence 1 is a string, 'x+\.\.\., not a list of tokens") as caught:
        as_corpus([["fine"], "x" * 10_000])
    assert len(str(caught.value)) < 200


def test_random_state() -> None:
    rng = np.random.default_rng(0)
    assert check_random_state(rng) is rng
    assert check_random_state(5).random() == np.random.default_rng(5).random()
    assert check_random_state(None).random() != check_random_state(None).random()
    with pytest.raises(InputError, match=r"random_state=-1 .* non-negative integer"):
        check_random_state(-1)


def test_callbacks() -> None:
    assert check_callbacks(None) == () and check_callbacks([print]) == (print,)
    with pytest.raises(InputError, match="a list of functions"):
        check_callbacks(print)


def test_repr_shows_what_was_chosen() -> None:
    assert repr(DeletedInterpolation(3, smoothing=0.1)) == "DeletedInterpolation(n_iter=3)"


def test_attributes_before_and_after_fit() -> None:
    model = DeletedInterpolation(2, random_state=0)
    assert not hasattr(model, "weights_")
    with pytest.raises(NotFittedError, match=r"DeletedInterpolation is not fitted yet: call fit first"):
        _ = model.weights_
    with pytest.raises(AttributeError, match="wieghts") as caught:
        _ = model.fit(SENTENCES).wieghts_  # type: ignore[attr-defined]
    assert not isinstance(caught.value, NotFittedError), "a misspelt attribute of a fitted model"


def test_grid_search_finds_a_parameter() -> None:
    from sklearn.model_selection import GridSearchCV

    text = (SENTENCES + OTHER_SENTENCES) * 2
    search = GridSearchCV(DeletedInterpolation(3, random_state=0), {"smoothing": [1e-3, 1.0]}, cv=2)
    search.fit(text)
    assert search.best_params_["smoothing"] in (1e-3, 1.0) and np.isfinite(search.best_score_)
    assert len(search.best_estimator_.transform(text)) == len(text)
