"""What models give to taggers: vectors, states, posteriors, paths, in the spelling of the model's own text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contract.cases import SENTENCES
from sentences import is_one_sentence
from undertow import LDS, Corpus
from undertow.errors import InputError
from undertow.models.base import Estimator
from undertow.results.tagging import Paths, Posteriors, Representation, States, Vectors, model_features
from undertow.results.tagging.sources import as_representation, as_representations
from undertow.text.vocabulary import Vocabulary


class Chain(Estimator):
    """Stands for any model with states: the state of a token is the length of its word."""

    kind = "length-chain"

    def __init__(self, n_layers: int = 1) -> None:
        self.n_layers = n_layers

    def fit(self, X: Any = None, y: Any = None) -> Chain:
        self.history_ = [0.0]
        return self

    def decode(self, X: Any, method: str = "posterior") -> list[Any]:
        if method == "viterbi":
            return [np.zeros(len(s), dtype=int) for s in X]
        codes = [np.array([len(word) for word in s]) for s in X]
        return codes if self.n_layers == 1 else [np.stack([c, c % 2], axis=1) for c in codes]

    def posterior(self, X: Any) -> list[Any]:
        return [np.array([[0.995, 0.005, 0.0], [0.25, 0.0, 0.75]][: len(s)]) for s in X]

    def transform(self, X: Any) -> list[Any]:
        return [np.ones((len(s), 2), dtype=np.float32) for s in X]

    _tensor_spec = _tensors = _restore = None  # type: ignore[assignment]


class Flat(Chain):
    """Stands for a model whose `transform` gives codes."""

    kind = "flat-codes"

    def transform(self, X: Any) -> list[Any]:
        return [np.zeros(len(s), dtype=np.int32) for s in X]

    def decode(self, X: Any) -> list[Any]:
        return self.transform(X)


class Clusters(Chain):
    kind = "some-clusters"

    def path(self, word: str) -> str:
        if word not in ("the", "bank", "nothing"):
            raise InputError(f"The word {word!r} has no path.")
        return {"the": "0110101", "bank": "10", "nothing": ""}[word]


@pytest.fixture(scope="module")
def lds(tmp_path_factory: pytest.TempPathFactory) -> LDS:
    """A model of text that the words rule has cut, with numbers as a class."""
    place = tmp_path_factory.mktemp("text")
    (place / "a.txt").write_text("The bank (of the river) rose 3.5 feet. It's “wide”, they said.\n" * 30)
    corpus = Corpus.build([place / "a.txt"], place / "a.corpus")
    return LDS(3, n_iter=1, n_full=0, lags=3, ssid_lags=2, kappa=1.0, random_state=0).fit(corpus)


def test_vectors_are_the_models(lds: LDS) -> None:
    sentences = [["The", "bank"], [], ["river"]]
    for view in (None, "smooth"):
        expected = lds.transform(sentences) if view is None else lds.transform(sentences, view)
        ours = Vectors(lds, view, scale=2.0)
        for a, b, rows in zip(ours.vectors(sentences), expected, ours.features(sentences), strict=True):
            np.testing.assert_allclose(a, 2 * b, rtol=1e-6)
            assert [[row[str(i)] for i in range(b.shape[1])] for row in rows] == a.tolist()
    assert Vectors(lds).features([]) == []


def test_tokens_are_looked_up_as_the_model_spells_them(lds: LDS) -> None:
    given = ["The", "-LRB-", "``", "1,000", "’s", "spike-timing", "thirty"]
    assert Vectors(lds).spelled([given]) == [["The", "(", "“", "NUM", "'s", "spike-timing", "thirty"]]
    lowered = LDS(3, n_iter=1, n_full=0, lags=3, ssid_lags=2, kappa=1.0).fit(SENTENCES)
    assert Vectors(lowered).spelled([["3.5", "-LRB-"]]) == [["3.5", "-LRB-"]]  # cut by its user: spelled by its user
    assert Vectors(lowered, respell=True).spelled([["3.5", "-LRB-"]]) == [["NUM", "("]]
    assert Vectors(lds, respell=False).spelled([["3.5", "-LRB-"]]) == [["3.5", "-LRB-"]]
    lowered.tokenizer_ = {"rule": "words", "lower": True, "numbers": "keep", "hyphens": "split"}
    assert Vectors(lowered).spelled([["The", "3.5"]]) == [["the", "3.5"]]


def test_tokens_that_the_rule_cuts_have_what_the_model_says_of_their_head(lds: LDS) -> None:
    given = ["The", "spike-timing-", "of", "3-5", ":-)", "thirty"]
    whole = ["The", "spike", "-", "timing", "-", "of", "NUM", "-", "NUM", ":-)", "thirty"]
    heads = [0, 3, 5, 8, 9, 10]
    for view in ("type", "smooth"):
        cut = Vectors(lds, view, pieces=True)
        assert cut.spelled([given]) == [whole]
        (found,) = cut.vectors([given])
        np.testing.assert_allclose(found, lds.transform([whole], view)[0][heads], rtol=0, atol=0)
        assert cut.options()["pieces"] is True
    assert [len(v) for v in Vectors(lds, pieces=True).vectors([[], ["a-b"], []])] == [0, 1, 0]
    lengths = Chain().fit()
    lengths.vocabulary_ = Vocabulary.from_counts({"the": 1})
    assert States(lengths, respell=True, pieces=True).features([["the", "ab-cdefg"]]) == [[{"3": 1.0}, {"5": 1.0}]]
    assert States(lengths, respell=True).features([["the", "ab-cdefg"]]) == [[{"3": 1.0}, {"8": 1.0}]]
    clusters = Clusters().fit()
    clusters.vocabulary_ = lengths.vocabulary_
    paths = Paths(clusters, prefixes=(4,), respell=True, pieces=True).features([["river-bank", "the"]])
    assert paths == [[{"4=10": 1.0}, {"4=0110": 1.0}]]


def test_a_model_that_is_fitted_later_or_again(lds: LDS, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_features, "MAX_CACHED", 2)
    model = LDS()
    vectors = Vectors(model)
    vars(model).update(vars(lds))
    assert vectors.spelled([["3.5", "10", "-LRB-", "11"]]) == [["NUM", "NUM", "(", "NUM"]]
    model.vocabulary_ = Vocabulary.from_counts({"10": 1})
    assert vectors.spelled([["3.5", "10"]]) == [["NUM", "10"]]


def test_states_posteriors_and_paths() -> None:
    sentences = [["the", "bank"], ["a"], []]
    assert States(Chain().fit()).features(sentences) == [[{"3": 1.0}, {"4": 1.0}], [{"1": 1.0}], []]
    assert States(Chain().fit(), method="viterbi").features([["a"]]) == [[{"0": 1.0}]]
    layers = States(Chain(2).fit()).features(sentences)
    assert layers[0] == [{"0=3": 1.0, "1=1": 1.0}, {"0=4": 1.0, "1=0": 1.0}]
    posteriors = Posteriors(Chain().fit()).features(sentences)
    assert [[set(t) for t in s] for s in posteriors] == [[{"0"}, {"0", "2"}], [{"0"}], []]
    assert posteriors[0][1]["2"] == pytest.approx(0.75)
    paths = Paths(Clusters().fit(), prefixes=(1, 4)).features([["the", "bank", "zzz", "nothing"]])
    assert paths == [[{"1=0": 1.0, "4=0110": 1.0}, {"1=1": 1.0, "4=10": 1.0}, {}, {}]]


def test_a_scale_multiplies_all_numbers_and_leaves_the_same_ones_out() -> None:
    sentences = [["the", "bank"], ["a"], []]
    for kind, model in ((States, Chain(2).fit()), (Posteriors, Chain().fit()), (Paths, Clusters().fit())):
        plain, half = kind(model).features(sentences), kind(model, scale=0.5).features(sentences)
        assert half == [[{name: value / 2 for name, value in token.items()} for token in s] for s in plain]
        assert kind(model, scale=0.5).options()["scale"] == 0.5
    whole, halves = (Posteriors(Chain().fit(), scale=s).vectors([["bank"]])[0] for s in (1.0, 0.5))
    assert halves.tolist() == (whole / 2).tolist()
    assert as_representation(Clusters().fit(), "path", scale=0.5).features([["bank"]])[0][0]["4=10"] == 0.5


def test_a_model_gives_what_it_is_best_at(lds: LDS) -> None:
    assert isinstance(as_representation(lds), Vectors)
    chain = Chain().fit()
    assert isinstance(as_representation(chain), Posteriors)
    chain.n_states = 4096  # type: ignore[attr-defined]
    assert isinstance(as_representation(chain), States), "thousands of numbers a token are too many"
    read = as_representation(lds, "type", scale=3.0, window=1, pieces=True)
    assert isinstance(read, Vectors) and (read.scale, read.window, read.pieces) == (3.0, 1, True)
    assert isinstance(as_representation(Clusters().fit()), Paths)
    assert isinstance(as_representation(Clusters().fit(), "posterior"), Posteriors)
    viterbi = as_representation(Clusters().fit(), "viterbi")
    assert isinstance(viterbi, States) and viterbi.method == "viterbi"
    states = as_representation(Clusters().fit(), "states")
    assert isinstance(states, States) and states.method is None
    smooth = as_representation(lds, "smooth")
    assert isinstance(smooth, Vectors) and smooth.view == "smooth"
    assert as_representation(smooth) is smooth
    assert isinstance(as_representations([Chain().fit()], vectors=True)[0], Vectors)


def test_anything_with_a_name_and_features_will_do() -> None:
    class Length:
        name = "length"

        def features(self, sentences: Any) -> Any:
            return [[{"n": float(len(word))} for word in s] for s in sentences]

    assert isinstance(Length(), Representation)
    assert as_representations(Length())[0].features([["ab"]]) == [[{"n": 2.0}]]


@pytest.mark.parametrize(
    "wrong",
    [
        States,
        lambda lds: Vectors(lds, window=-1),
        lambda lds: Vectors(lds, scale=float("nan")),
        lambda lds: Paths(Clusters().fit(), scale="half"),
        lambda lds: Vectors(Chain().fit(), "smooth"),
        lambda lds: Vectors(lds, respell="yes"),
        lambda lds: Vectors(lds, pieces="last"),
        lambda lds: Vectors(Flat().fit()).vectors([["a"]]),
        lambda lds: States(Flat().fit(), method="viterbi"),
        lambda lds: Posteriors(Chain().fit(), least=1),
        lambda lds: Paths(Clusters().fit(), prefixes=()),
        lambda lds: as_representation("news.lds"),
        lambda lds: as_representations([Vectors(lds), Vectors(lds, "smooth")]),
        lambda lds: Vectors(lds, "sideways").features([["a"]]),
    ],
)
def test_errors_are_one_sentence(lds: LDS, wrong: Any) -> None:
    with pytest.raises(InputError) as e:
        wrong(lds)
    assert is_one_sentence(str(e.value))
