"""The component "undertow" inside real pipelines of spaCy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("spacy", reason="spaCy is not installed")

import spacy
from numpy.testing import assert_allclose, assert_array_equal
from spacy.tokens import Doc, DocBin, Token
from spacy.training import Example

from contract.cases import SENTENCES
from sentences import is_one_sentence
from undertow import HMM, LDS, Corpus, FactorialHMM
from undertow.adapters import spacy_pipe  # registers the factory where the installation does not know the entry point
from undertow.errors import FormatError, InputError

TEXTS = ["the river runs to the sea", "money in  the bank", "", "   ", "the dragon"]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Directories of saved models."""
    root = tmp_path_factory.mktemp("models")
    models = {
        "lds": LDS(3, n_iter=3, n_full=1, lags=3, ssid_lags=2, kappa=1.0, random_state=0, n_jobs=1),
        "wide": LDS(12, n_iter=3, n_full=1, lags=3, ssid_lags=2, kappa=1.0, random_state=0, n_jobs=1),
        "hmm": HMM(4, n_iter=4, random_state=0),
        "fhmm": FactorialHMM(n_layers=2, n_states=3, n_iter=3, random_state=0),
    }
    for name, model in models.items():
        model.fit(SENTENCES).save(root / name)
    return {name: str(root / name) for name in models}


def pipeline(place: str, **config: Any) -> Any:
    nlp = spacy.blank("en")
    nlp.add_pipe("undertow", config={"model": place, **config})
    return nlp


def words(doc: Doc) -> list[str]:
    return [token.text for token in doc if not token.is_space]


@pytest.mark.parametrize("name", ["lds", "hmm", "fhmm"])
def test_tensors_vectors_and_states(name: str, places: dict[str, str]) -> None:
    nlp = pipeline(places[name])
    model = nlp.get_pipe("undertow").undertow_model
    for doc in [*map(nlp, TEXTS), *nlp.pipe(TEXTS, batch_size=2)]:
        at = [token.i for token in doc if not token.is_space]
        assert doc.tensor.shape == (len(doc), nlp.get_pipe("undertow").width) and doc.tensor.dtype == np.float32
        assert_allclose(doc.tensor[at], model.transform([words(doc)])[0], rtol=1e-5, atol=1e-6)
        assert doc.user_data["undertow"] == {"kind": name, "view": None}
        for token in doc:
            assert_array_equal(token.vector, doc.tensor[token.i])
            assert token.has_vector and (not token.is_space or (token._.state is None and not token.vector.any()))
        if len(doc):
            assert_allclose(doc.vector, doc.tensor.mean(axis=0), rtol=1e-6)
            assert_allclose(doc[1:].vector, doc.tensor[1:].mean(axis=0), rtol=1e-6) if len(doc) > 1 else None
        states = [doc[i]._.state for i in at]
        if name == "hmm":
            assert states == model.decode([words(doc)], "posterior")[0].tolist()
        elif name == "fhmm":
            assert states == model.decode([words(doc)], "viterbi")[0].tolist()
        else:
            assert set(states) <= {None}


def test_vectors_are_those_of_the_model_even_where_the_vocabulary_has_some(places: dict[str, str]) -> None:
    nlp = pipeline(places["lds"], view="smooth")
    nlp.vocab.set_vector("the", np.ones(7, dtype=np.float32))
    doc = nlp("the river is wide")
    assert doc[0].vector.shape == (3,) and doc[1:3].vector.shape == (3,) and doc.vector.shape == (3,)
    cosine = doc[0].vector @ doc[1].vector  # of unit vectors
    assert_allclose(doc[0].similarity(doc[1]), cosine, rtol=1e-4)
    assert_allclose(doc[:1].similarity(doc[1:2]), cosine, rtol=1e-4)
    assert doc.user_data["undertow"]["view"] == "smooth"


def test_sentences_of_spacy_are_read_one_by_one(places: dict[str, str]) -> None:
    nlp = pipeline(places["hmm"])
    nlp.add_pipe("sentencizer", first=True)
    doc = nlp("the river is wide . money in the bank .")
    model = nlp.get_pipe("undertow").undertow_model
    halves = ["the river is wide .".split(), "money in the bank .".split()]
    assert_allclose(doc.tensor, np.concatenate(model.transform(halves)), rtol=1e-5)
    assert not np.allclose(doc.tensor, model.transform([halves[0] + halves[1]])[0], atol=1e-4)


def test_tokens_are_looked_up_as_the_models_text_has_them(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the old river is 300 miles long. It's a long river .\n" * 30)
    corpus = Corpus.build([tmp_path / "a.txt"], tmp_path / "c", vocab_size=None)
    HMM(4, n_iter=4, random_state=0).fit(corpus).save(tmp_path / "m.hmm")
    nlp = pipeline(str(tmp_path / "m.hmm"))
    doc = nlp("the river is 1,234 miles long")
    assert "1,234" in words(doc)
    expected = nlp.get_pipe("undertow").undertow_model.transform([["the", "river", "is", "NUM", "miles", "long"]])[0]
    assert_allclose(doc.tensor, expected, rtol=1e-5)


def test_pipelines_on_disk_and_as_bytes(places: dict[str, str], tmp_path: Path) -> None:
    HMM(4, n_iter=4, random_state=0).fit(SENTENCES).save(tmp_path / "gone.hmm")
    nlp = pipeline(str(tmp_path / "gone.hmm"), view="posterior")
    doc = nlp(TEXTS[0])
    nlp.to_disk(tmp_path / "pipeline")
    nlp.to_disk(tmp_path / "pipeline")  # again, over itself
    data = nlp.to_bytes()
    (tmp_path / "gone.hmm").rename(tmp_path / "elsewhere.hmm")
    for again in (spacy.load(tmp_path / "pipeline"), spacy.blank("en").from_config(nlp.config).from_bytes(data)):
        assert_array_equal(again(TEXTS[0]).tensor, doc.tensor)
        assert [t._.state for t in again(TEXTS[0])] == [t._.state for t in doc]
    with pytest.raises(FormatError, match=r"gone\.hmm") as e:  # a copy that was not given the model's files
        spacy.blank("en").from_config(nlp.config)(TEXTS[0])
    assert is_one_sentence(str(e.value))
    box = DocBin(store_user_data=True, docs=[doc])
    box.from_bytes(box.to_bytes())
    [stored] = box.get_docs(nlp.vocab)
    assert [t._.state for t in stored] == [t._.state for t in doc]


def test_bytes_cannot_leave_the_folder(places: dict[str, str]) -> None:
    import srsly

    pipe = pipeline(places["hmm"]).get_pipe("undertow")
    with pytest.raises(FormatError, match="evil"):
        pipe.from_bytes(srsly.msgpack_dumps({"../evil": b""}))


@pytest.mark.parametrize("name", ["lds", "hmm"])
def test_two_processes(name: str, places: dict[str, str]) -> None:
    nlp = pipeline(places[name])
    texts = [" ".join(s) for s in SENTENCES] * 3
    alone = list(nlp.pipe(texts))
    for doc, expected in zip(nlp.pipe(texts, n_process=2, batch_size=4), alone, strict=True):
        assert_allclose(doc.tensor, expected.tensor, rtol=1e-5)  # the last bits depend on what is read together
        assert_array_equal(doc[0].vector, doc.tensor[0])
        assert [t._.state for t in doc] == [t._.state for t in expected]


def test_errors_go_to_the_handler(places: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    nlp = pipeline(places["hmm"])
    seen: list[str] = []
    nlp.set_error_handler(lambda name, pipe, docs, error: seen.append(f"{name}: {error}"))
    monkeypatch.setattr(nlp.get_pipe("undertow").undertow_model, "transform", lambda *_, **__: 1 / 0)
    assert list(nlp.pipe(TEXTS)) == [] and seen == ["undertow: division by zero"]


def test_another_packages_state_is_not_overwritten(places: dict[str, str]) -> None:
    Token.set_extension("state", getter=lambda token: "Ohio", force=True)
    try:
        with pytest.raises(InputError, match=r"token\._\.state") as e:
            pipeline(places["hmm"])
        assert is_one_sentence(str(e.value))
    finally:
        Token.set_extension("state", default=None, force=True)


# --- Docs where token lists are expected ----------------------------------------------------------------


def test_docs_are_token_lists(places: dict[str, str]) -> None:
    from undertow import DocumentEncoder

    nlp = spacy.blank("en")
    docs = [nlp(text) for text in ["the river runs  to the sea", "money in the bank"]]
    lists = [words(doc) for doc in docs]
    assert [len(w) for w in lists] == [6, 4] and len(docs[0]) == 7
    model = HMM(3, n_iter=2, random_state=0).fit(docs)
    assert model.history_ == HMM(3, n_iter=2, random_state=0).fit(lists).history_
    assert_array_equal(np.concatenate(model.transform(docs)), np.concatenate(model.transform(lists)))
    assert_array_equal(model.transform([docs[0][:2]])[0], model.transform([lists[0][:2]])[0])
    assert Corpus.from_sentences(docs).vocabulary == Corpus.from_sentences(lists).vocabulary
    assert_allclose(DocumentEncoder(model).fit_transform(docs), DocumentEncoder(model).fit_transform(lists), rtol=1e-6)
    with pytest.raises(InputError, match="not Doc"):
        model.transform(docs[0])


# --- trained components ---------------------------------------------------------------------------------

VERBS = {"runs", "is", "went", "sat", "ran", "save"}


def train(nlp: Any, examples: list[Example], steps: int) -> None:
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.1
    for _ in range(steps):
        nlp.update(examples, sgd=optimizer, annotates=["undertow"])


def test_a_tagger_of_spacy_learns_from_the_vectors(places: dict[str, str]) -> None:
    nlp = pipeline(places["wide"])
    width = nlp.get_pipe("undertow").width
    tok2vec = {"@architectures": "undertow.DocTensor.v1", "width": width}
    nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": tok2vec}})
    examples = []
    for sentence in SENTENCES:
        tags = ["V" if word in VERBS else "O" for word in sentence]
        examples.append(Example.from_dict(nlp.make_doc(" ".join(sentence)), {"tags": tags}))
    train(nlp, examples, 60)
    scores = nlp.evaluate(examples)
    assert scores["tag_acc"] > 0.95  # all "O" would be right for 0.85 of the tokens
    assert nlp("a wide river runs to the sea")[3].tag_ == "V"


def test_a_text_classifier_of_spacy_learns_from_the_vectors(places: dict[str, str], tmp_path: Path) -> None:
    nlp = pipeline(places["wide"])
    tok2vec = {"@architectures": "undertow.DocTensor.v1", "width": nlp.get_pipe("undertow").width}
    architecture = {"@architectures": "spacy.TextCatReduce.v1", "tok2vec": tok2vec, "exclusive_classes": True}
    reduce = {"use_reduce_mean": True, "use_reduce_max": False, "use_reduce_first": False, "use_reduce_last": False}
    nlp.add_pipe("textcat", config={"model": {**architecture, **reduce}})
    examples = [
        Example.from_dict(
            nlp.make_doc(" ".join(s)), {"cats": {"money": float("bank" in s), "other": float("bank" not in s)}}
        )
        for s in SENTENCES
    ]
    train(nlp, examples, 60)
    nlp.to_disk(tmp_path / "trained")
    again = spacy.load(tmp_path / "trained")
    for example in examples:
        doc = again(example.text)
        assert max(doc.cats, key=doc.cats.get) == max(example.reference.cats, key=example.reference.cats.get)


def test_a_doc_without_vectors_is_refused_by_what_reads_them(places: dict[str, str]) -> None:
    layer = spacy_pipe.doc_tensor(3)
    with pytest.raises(InputError, match="annotating_components") as e:
        layer.predict([spacy.blank("en")("the river")])
    assert is_one_sentence(str(e.value))
