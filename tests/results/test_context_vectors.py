"""Vectors by a network that predicts words: what it learns, what it says, and how it is saved and continued."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from cli_runner import failed, run
from oracles.context_network import log_probability, query_of
from sealing import edit_sealed
from sentences import is_one_sentence
from undertow import ContextVectors, Corpus, CRFTagger, PMIVectors, load
from undertow.errors import InputError
from undertow.kernels.words.context_network import ContextNetwork, WordTables
from undertow.models.base import LittleTextWarning
from undertow.models.checkpoint import Checkpoint
from undertow.models.fitting import InterruptedFitWarning
from undertow.results import context_training, context_vectors
from undertow.results.context_training import segments
from undertow.results.tagging import Vectors

NOUNS, VERBS = "cat dog cow hen".split(), "runs sleeps eats".split()


def sentences(seed: int = 0, n: int = 600) -> list[list[str]]:
    """Who is where decides what they do: the word two places before tells animals from things."""
    rng = np.random.default_rng(seed)
    text = []
    for _ in range(n):
        if rng.random() < 0.5:
            text.append(["a", "quick", str(rng.choice(NOUNS)), str(rng.choice(VERBS))])
        else:
            text.append(["a", "heavy", str(rng.choice(["stone", "rock", "brick"])), "falls"])
    return text


def fitted(seed: int = 0, **params: object) -> ContextVectors:
    settings = {"n_components": 8, "window": 2, "n_hidden": 12, "n_iter": 4, "n_drawn": 16, "min_count": 1}
    return ContextVectors(**(settings | {"random_state": seed} | params)).fit(sentences())  # type: ignore[arg-type]


def exact(model: ContextVectors, new: Sequence[str] = ()) -> tuple[ContextNetwork, WordTables]:
    """The network and the tables, with rows for new words by their letters behind the last."""
    net = ContextNetwork(*(w.astype(float) for w in model.network_))
    tables = WordTables(*(w.astype(float) for w in model.tables_))
    said = [] if model.letters_ is None else [model.letters_.of(list(new))]
    return net, tables._replace(inputs=np.vstack([tables.inputs, *said]))


@pytest.mark.parametrize("letters", [True, False])
def test_answers_are_those_of_the_network_token_by_token(letters: bool) -> None:
    model = fitted(letters=letters)
    net, tables = exact(model, ["zebra", "stones"])
    X = [["a", "quick", "cat", "falls"], ["zebra"], [], ["stone", "a", "stones", "12"], ["zebra", "stones"]]
    ids = [model.vocabulary_.encode(s).tolist() for s in X]
    beyond = len(model.vocabulary_) + 1
    row = {"zebra": beyond, "stones": beyond + 1} if letters else {}
    logs = model.masked_log_probabilities(X)
    context = model.transform(X, "context")
    for words, s, own_logs, vectors in zip(X, ids, logs, context, strict=True):
        assert len(own_logs) == len(vectors) == len(s)
        read = [row.get(word, i) for word, i in zip(words, s, strict=True)]
        for t in range(len(s)):
            around = [*read[:t], s[t], *read[t + 1 :]]  # the word to predict is one of the vocabulary
            assert own_logs[t] == pytest.approx(log_probability(net, tables, around, t), abs=1e-4)
            q = query_of(net, tables, around, t)
            assert_allclose(vectors[t], q / np.linalg.norm(q), atol=1e-4)
    flat = np.concatenate(logs)
    assert model.masked_perplexity(X) == pytest.approx(np.exp(-flat.mean()), rel=1e-6)
    for both, own, word in zip(model.transform(X), context, model.transform(X, "word"), strict=True):
        assert_array_equal(np.hstack([own, word]), both)
    assert_allclose(np.linalg.norm(model.word_vectors()[model.vocabulary_.id("cat")]), 1, rtol=1e-5)
    assert_array_equal(model["cat"], model.transform([["cat"]], "word")[0][0])
    cat = tables.inputs[model.vocabulary_.id("cat")]
    assert_allclose(model["cat"], cat / np.linalg.norm(cat), rtol=1e-4)
    stones = tables.inputs[row.get("stones", model.vocabulary_.unknown_id)]
    stones = stones / max(np.linalg.norm(stones), 1e-9)  # the unknown word of a text without any has no vector
    assert_allclose(model.transform([["stones"]], "word")[0][0], stones, rtol=1e-4, atol=1e-5)
    assert model.transform([]) == [] and model.transform([[]])[0].shape == (0, 16)


def test_rare_words_have_more_of_what_their_letters_say() -> None:
    text = [["a", "quick", "cat", "runs"]] * 300 + [["a", "Quick", "cats", "runs"]] * 3
    found, plain = (
        ContextVectors(4, window=2, n_hidden=4, n_drawn=8, min_count=1, letters=letters, random_state=0).fit(text)
        for letters in (True, False)
    )
    vocabulary = found.vocabulary_
    for word, count in (("cat", 300), ("cats", 3), ("quick", 303)):  # `Quick` is read as `quick`
        own, said = plain.tables_.inputs[vocabulary.id(word)], found.letters_.of([word])[0]  # type: ignore[union-attr]
        assert_allclose(found.tables_.inputs[vocabulary.id(word)], (count * own + 5 * said) / (count + 5), rtol=1e-4)
    for a, b in ((found.tables_.outputs, plain.tables_.outputs), (found.network_.around, plain.network_.around)):
        assert_array_equal(a, b)
    assert_array_equal(found.tables_.inputs[-1], plain.tables_.inputs[-1])


def test_numbers_keep_their_vectors_and_a_text_of_numbers_has_no_letters() -> None:
    settings: dict[str, Any] = {"window": 2, "n_hidden": 4, "n_drawn": 8, "min_count": 1, "random_state": 0}
    text = [["a", "quick", "12", "runs"]] * 30 + [["a", "7", ".", "runs"]] * 3
    found, plain = (ContextVectors(4, letters=letters, **settings).fit(text) for letters in (True, False))
    for word in ("12", "7", "."):
        assert_array_equal(found[word], plain[word])
    assert (found["runs"] != plain["runs"]).any()
    rare = Corpus.from_sentences([*text, ["a", "slow", "hen", "runs"]], min_count=3)
    found, plain = (ContextVectors(4, letters=letters, **settings).fit(rare) for letters in (True, False))
    unknown = rare.vocabulary.unknown_id
    assert rare.vocabulary.counts[unknown] == 2 and plain.tables_.inputs[unknown].any()
    assert_array_equal(found.tables_.inputs[unknown], plain.tables_.inputs[unknown])
    numbers = [["1", "2", "3", "."], ["1", "3", "."]] * 20
    found, plain = (ContextVectors(2, letters=letters, **settings).fit(numbers) for letters in (True, False))
    assert_array_equal(found.tables_.inputs, plain.tables_.inputs)
    assert_array_equal(found.transform([["zebra"]], "word")[0], 0)
    assert np.isfinite(found.masked_perplexity([["1", "zebra", "3"]]))


def test_ctrl_c_while_letters_are_learned_keeps_the_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    plain = fitted(letters=False)
    with monkeypatch.context() as patch:
        patch.setattr(context_vectors, "learn_letters", interrupted)
        with pytest.warns(InterruptedFitWarning, match="what was finished is kept"):
            model = fitted()
        again = fitted_on_rain()
        with pytest.warns(InterruptedFitWarning):
            again.fit(sentences())
    assert model.letters_ is None
    for a, b in zip((*model.network_, *model.tables_), (*plain.network_, *plain.tables_), strict=True):
        assert_array_equal(a, b)
    assert again["cat"].shape == (3,) and "rain" not in again and again.transform([["cat", "rain"]])[0].shape == (2, 6)
    model.save(tmp_path / "m")
    found = load(tmp_path / "m")
    assert found.letters_ is None and found.letters
    assert_array_equal(found.transform([["cat", "zebra"]])[0], plain.transform([["cat", "zebra"]])[0])
    with pytest.warns(InterruptedFitWarning):  # in the passes: letters are learned from what there is
        assert fitted(callbacks=[interrupted]).letters_ is not None


def test_after_ctrl_c_while_letters_are_learned_the_same_call_learns_them(tmp_path: Path) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    def fit() -> ContextVectors:
        settings: dict[str, Any] = {"window": 2, "n_hidden": 12, "n_drawn": 16, "random_state": 0}
        return ContextVectors(8, **settings).fit(sentences(), checkpoint=Checkpoint(tmp_path / "work", every_seconds=0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context_vectors, "learn_letters", interrupted)
        with pytest.warns(InterruptedFitWarning):
            assert fit().letters_ is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context_training, "_step", interrupted)  # all steps are done already
        found = fit()
    assert found.letters_ is not None and not (tmp_path / "work").exists()
    for a, b in zip((*found.tables_, *found.letters_), (*(whole := fit()).tables_, *whole.letters_), strict=True):
        assert_array_equal(a, b)


def fitted_on_rain() -> ContextVectors:
    model = ContextVectors(3, window=1, n_hidden=4, n_drawn=4, letters=False, random_state=1)
    return model.fit([["rain", "falls", "again"], ["rain", "stops", "again"]] * 30).set_params(letters=True)


def test_a_corpus_of_another_vocabulary_is_read_as_its_words() -> None:
    model = fitted()
    X = [["a", "heavy", "stones", "falls"], ["12", "zebra", "cat", "zebra"]]
    for found, known in zip(model.transform(Corpus.from_sentences(X)), model.transform(X), strict=True):
        assert_array_equal(found, known)
    rare = Corpus.from_sentences([["stones", "a"], ["a", "a"]], min_count=2)  # its unknown words have no letters
    for found, known in zip(model.transform(rare), model.transform([["<unk>", "a"], ["a", "a"]]), strict=True):
        assert_array_equal(found, known)
    assert model.transform(iter(X))[0].shape == (4, 16)


def test_unknown_words_are_read_by_their_letters() -> None:
    """Animals begin with their own letters, things with others; the new words of both stand in no text."""
    rng = np.random.default_rng(0)
    animals = [f"cat{end}" for end in ("a", "e", "i", "o", "u", "am", "em", "im")]
    things = [f"stone{end}" for end in ("a", "e", "i", "o", "u", "am", "em", "im")]
    text = [["a", "quick", str(rng.choice(animals)), "runs"] for _ in range(400)]
    text += [["a", "heavy", str(rng.choice(things)), "falls"] for _ in range(400)]
    model = ContextVectors(8, window=2, n_hidden=12, n_drawn=16, n_iter=4, min_count=1, random_state=0).fit(text)
    new = [found[0] for found in model.transform([["catum"], ["stoneum"]], "word")]
    near = {kind: np.stack([model[word] for word in words]) for kind, words in (("cat", animals), ("stone", things))}
    assert (near["cat"] @ new[0]).min() > (near["stone"] @ new[0]).max()
    assert (near["stone"] @ new[1]).min() > (near["cat"] @ new[1]).max()
    plain = ContextVectors(8, window=2, n_hidden=12, n_drawn=16, letters=False, random_state=0).fit(text)
    a, b = plain.transform([["catum"], ["stoneum"]], "word")
    assert_array_equal(a, b)


def test_a_model_without_letters_loads_as_one_of_before(tmp_path: Path) -> None:
    model = fitted(letters=False)
    model.save(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert "letter_slopes" not in (tmp_path / "m" / "model.safetensors").read_bytes()[:2000].decode("latin1")
    assert config["params"].pop("letters") is False
    assert ContextVectors._current_params(config["params"])["letters"] is False
    edit_sealed(tmp_path / "m" / "config.json", lambda c: (c["params"].pop("letters"), c["fitted"].pop("letters")))
    old = load(tmp_path / "m")
    assert old.letters_ is None and not old.letters
    assert_array_equal(old.transform([["cat", "zebra"]])[0], model.transform([["cat", "zebra"]])[0])


def test_another_parameter_after_the_fit_does_not_change_what_is_saved(tmp_path: Path) -> None:
    for letters in (True, False):
        model = fitted(letters=letters).set_params(letters=not letters)
        model.save(tmp_path / f"{letters}")
        found = load(tmp_path / f"{letters}")
        assert (found.letters_ is not None) == letters
        assert_array_equal(found.transform([["cat", "zebra"]])[0], model.transform([["cat", "zebra"]])[0])


def test_a_table_of_all_words_is_not_copied_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = fitted(), []
    ask = context_vectors.queries
    monkeypatch.setattr(
        context_vectors, "queries", lambda net, vectors, text: seen.append(vectors) or ask(net, vectors, text)
    )
    model.transform([["a", "zebra", "a", "cat", "zebras"], ["cat"]])
    model.transform([["a", "cat"]])
    assert len(seen[0]) == 2 + 2 + 2  # two words of the text, the unknown one, the place beyond the ends, two new words
    assert seen[1] is model.tables_.inputs


def test_it_learns_what_a_context_expects() -> None:
    model = fitted(n_iter=8)
    [gap] = model.fill(["a", "quick", None, "sleeps"], n=4)
    assert gap.position == 2 and {w.word for w in gap.words} == set(NOUNS)
    assert sum(w.probability for w in gap.words) > 0.9
    first, last = model.fill(["a", "heavy", None, None], n=3)
    assert {w.word for w in first.words} == {"stone", "rock", "brick"} and last.words[0].word == "falls"
    assert model.history_[-1] > model.history_[0]
    assert {n.word for n in model.neighbors("cat", 3)} == set(NOUNS) - {"cat"}
    # the best there is: nouns are one of four, verbs one of three, things one of three, half of the sentences each
    best = (2 * np.log(2) + np.log(4) + np.log(3) + np.log(3)) / 8
    assert np.log(model.masked_perplexity(sentences(1))) < best + 0.15


def test_threads_long_sentences_and_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = fitted(n_jobs=1), fitted(n_jobs=2)
    for a, b in zip((*one.network_, *one.tables_), (*two.network_, *two.tables_), strict=True):
        assert_array_equal(a, b)
    X = sentences(3, 40)
    expected = one.transform(X), one.masked_log_probabilities(X)
    monkeypatch.setattr(context_vectors, "ASK_TOKENS", 7)
    monkeypatch.setattr(context_vectors, "SCORE_TOKENS", 3)
    for found, known in zip((one.transform(X), one.masked_log_probabilities(X)), expected, strict=True):
        for a, b in zip(found, known, strict=True):
            assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert any((a != b).any() for a, b in zip(one.network_, fitted(1).network_, strict=True))


def test_words_begin_with_their_near_pmi_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_training, "ROW_RATE", 0.0)
    model = fitted(letters=False)
    near = PMIVectors(8, contexts="near", lags=2, random_state=0).fit(sentences())
    words = near.vocabulary_.words[near.vocabulary_.n_special :]
    found = np.stack([model[word] for word in words])
    assert_allclose(found @ found.T, (u := np.stack([near[word] for word in words])) @ u.T, atol=1e-2)


def test_what_a_part_gave_is_not_changed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_training, "PART_TOKENS", 600)
    kept = []
    run_all = context_vectors.run_iterations

    def watched(iterations: Any, **how: Any) -> Any:
        def told() -> Any:
            for now in iterations:
                kept.append((now.params, [w.copy() for part in now.params for w in part]))
                yield now

        return run_all(told(), **how)

    monkeypatch.setattr(context_vectors, "run_iterations", watched)
    model = fitted(n_iter=2)
    assert len(kept) == len(model.history_) == 8
    for params, copies in kept:
        for a, b in zip((w for part in params for w in part), copies, strict=True):
            assert_array_equal(a, b)


def test_segments_cover_the_text() -> None:
    bounds = np.array([0, 3, 3, 3 + 600, 3 + 600 + 256])
    begin, length = segments(bounds)
    assert begin.tolist() == [0, 3, 259, 515, 603] and length.tolist() == [3, 256, 256, 88, 256]


def test_one_long_sentence_is_enough() -> None:
    text = [[word for s in sentences(0, 300) for word in s]]
    model = ContextVectors(4, window=2, n_hidden=6, n_drawn=8, random_state=0).fit(text)
    assert np.isfinite(model.masked_perplexity(text))


def test_capitals_are_read_in_the_usual_casing() -> None:
    text = [
        ["The", "Cat", "runs"],
        ["a", "cat", "runs"],
        ["the", "cat", "eats"],
        ["the", "cow", "eats"],
        ["Rome", "is", "old"],
    ] * 40
    model = ContextVectors(4, window=2, n_hidden=6, n_drawn=8, min_count=1, random_state=0).fit(text)
    for a, b in zip(model.transform([["The", "Cat", "runs"]]), model.transform([["the", "cat", "runs"]]), strict=True):
        assert_array_equal(a, b)
    assert (model["Rome"] != model["cat"]).any()
    assert "Cat" not in {n.word for n in model.neighbors("runs", 20)}
    [gap] = model.fill(["The", None, "runs"], n=20)
    assert gap.words[0].word == "cat"
    of = {w.word: w.probability for w in gap.words}
    assert of["Cat"] < of["cat"] / 20  # the text is read without it


def test_a_fit_again_forgets_the_first() -> None:
    model = fitted()
    model["cat"]
    model.fit([["rain", "falls", "again"], ["rain", "stops", "again"]] * 30)
    assert "rain" in model and model["rain"].shape == (8,)
    assert model.transform([["rain", "falls"]])[0].shape == (2, 16)


def test_saving(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    X = [*sentences(5, 4), ["a", "zebra", "stones"]]
    for a, b in zip(model.transform(X), again.transform(X), strict=True):
        assert_array_equal(a, b)


def test_a_tagger_reads_them(tmp_path: Path) -> None:
    model = fitted()
    words = [["a", "quick", "cat", "runs"], ["a", "heavy", "stone", "falls"]] * 6
    tags = [["DT", "JJ", "NN", "VBZ"], ["DT", "JJ", "NN", "VBZ"]] * 6
    tagger = CRFTagger(Vectors(model, network_only=True), n_hidden=8, random_state=0).fit(words, tags)
    tagger.save(tmp_path / "t")
    assert load(tmp_path / "t").predict([["a", "quick", "hen", "eats"]]) == [["DT", "JJ", "NN", "VBZ"]]


def test_bad_input_is_refused_in_one_sentence() -> None:
    for wrong, text, what in (
        (ContextVectors(3, window=0), sentences(), "window=0"),
        (ContextVectors(3), [["alone"]], "No two words"),
        (ContextVectors(3), [], "no token"),
    ):
        with pytest.raises(InputError, match=what) as caught:
            wrong.fit(text)
        assert is_one_sentence(str(caught.value))
    with pytest.raises(InputError, match="leave out engine"):
        ContextVectors(3).fit(sentences(), engine=object())  # type: ignore[arg-type]
    model = fitted()
    for ask in (
        lambda: model.transform([["a"]], "type"),
        lambda: model.fill([], 3),
        lambda: model.fill(["a", {"b"}], 3),  # type: ignore[list-item]
        lambda: model.fill("a b", 3),
        lambda: model.fill(["a", None], 0),
        lambda: model.neighbors("zebra"),
        lambda: model.neighbors("cat", position=1),
        lambda: model.masked_perplexity([[]]),
    ):
        with pytest.raises(InputError) as caught:
            ask()
        assert is_one_sentence(str(caught.value))
    with pytest.warns(LittleTextWarning, match="60 components for 2,400 tokens") as warned:
        ContextVectors(60, n_hidden=4, n_drawn=4).fit(sentences())
    assert len(warned) == 1


def test_the_command_fits_fills_and_exports(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(s) for s in sentences()), encoding="utf-8")
    out = tmp_path / "m.context"
    options = ["--components", 8, "--window", 2, "--hidden", 12, "--iterations", 8, "--drawn", 16]
    facts = json.loads(run("fit", "context", text, "-o", out, *options, "--json").stdout)
    assert facts["passes"] == 8 and facts["objective"] < 0
    assert json.loads(run("fit", "context", text, "-o", out, *options, "--json").stdout)["reused"]
    found = json.loads(run("fill", out, "a quick ? sleeps", "-n", 4, "--json").stdout)
    assert {w["word"] for w in found["gaps"][0]["words"]} == set(NOUNS)
    for command in (
        ("embed", out, text, "-o", tmp_path / "vectors.npz", "--view", "context"),
        ("export", out, "-o", tmp_path / "vectors.txt"),
        ("inspect", out),
        ("verify", out),
        ("neighbors", out, "cat"),
        ("view", out, "-o", tmp_path / "page.html"),
    ):
        done = run(*command)
        assert done.returncode == 0, done.stderr
    assert "--overwrite" in failed(run("fit", "context", text, "-o", out, "--window", 3))


def test_a_corpus_keeps_its_rule() -> None:
    corpus = Corpus.from_sentences(sentences())
    model = ContextVectors(4, window=1, n_hidden=4, n_drawn=4, random_state=0).fit(corpus)
    assert model.vocabulary_ is corpus.vocabulary and model.tokenizer_ is None
