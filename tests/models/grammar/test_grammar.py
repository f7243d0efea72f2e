"""`Grammar`: EM, the questions, limits and bad input. The charts under it are tested in tests/kernels/chart."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from oracles.grammar_trees import GAP, dense_inside, truth
from toy_language import toy
from undertow import Corpus, Grammar, load
from undertow.constraints import Contains, Length, Matches, Phrase, StartsWith
from undertow.engine import DaskCluster, Engine, Serial, open_engine
from undertow.errors import InputError
from undertow.kernels.chart.grammar import GrammarParams, termination
from undertow.models.base import CostWarning
from undertow.models.grammar import em, queries
from undertow.models.grammar.trees import Constituent, Tree
from undertow.text.counting import count_shard

SMALL: dict[str, Any] = {
    "n_nonterminals": 3, "n_preterminals": 4, "rank": 2, "init": "clusters", "n_iter": 6, "n_chunks": 4,
    "random_state": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Grammar:
    return Grammar(**SMALL).fit(toy())


def ids_of(model: Grammar, *tokens: str | None) -> list[int]:
    return [GAP if t is None else model.vocabulary_.id(t) for t in tokens]


# --- fitting --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["random", "clusters", "chain", "agreement"])
def test_plain_em_never_lowers_the_likelihood(init: str) -> None:
    model = Grammar(**SMALL | {"n_iter": 12, "n_chunks": 1, "smoothing": 0, "init": init}).fit(toy())
    assert (np.diff(model.history_) > -1e-5).all() and model.history_[-1] > model.history_[0] + 0.1


def test_a_step_of_em_divides_the_expected_counts_of_all_derivations() -> None:
    text = [["a"], ["b", "a"], ["a", "b", "b"], ["b", "a", "a", "b"]]
    corpus = Corpus.from_sentences(text)
    first, second = (
        Grammar(2, n_preterminals=2, rank=2, n_iter=k, n_chunks=1, smoothing=0, random_state=1).fit(corpus).params_
        for k in (1, 2)
    )
    counts = [truth(first, [corpus.vocabulary.id(w) for w in s]).counts for s in text]
    for name in GrammarParams._fields:
        table = sum(c[name] for c in counts)
        expected = table / table.sum(axis=0 if name == "emission" else -1, keepdims=True)
        np.testing.assert_allclose(getattr(second, name), expected, rtol=1e-4, atol=1e-7, err_msg=name)


def test_chunks_shards_and_engines_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(em, "SHARD_TOKENS", 40)
    alone = Grammar(**SMALL | {"n_iter": 2}).fit(toy())
    with open_engine("threads", 2) as engine:
        shared = Grammar(**SMALL | {"n_iter": 2}).fit(toy(), engine=engine)
    assert alone.history_ == shared.history_
    for a, b in zip(alone.params_, shared.params_, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_cluster_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(em, "SHARD_TOKENS", 40)
    with DaskCluster(n_workers=2) as cluster:
        for init in ("agreement", "chain"):
            settings: dict[str, Any] = SMALL | {"init": init, "n_restarts": 2, "n_iter": 2, "validation": 0.3}
            one, other = Grammar(**settings).fit(toy()), Grammar(**settings).fit(toy(), engine=cluster)
            assert other.history_ == one.history_ and other.validation_history_ == one.validation_history_ != []
            assert all(a.tobytes() == b.tobytes() for a, b in zip(one.params_, other.params_, strict=True))


class Watched(Engine):
    """Runs work here, and knows what it was."""

    def __init__(self) -> None:
        self.ran: set[str] = set()
        self.busy = False

    def imap(self, fn: Any, shards: Any) -> Any:
        self.ran.add(fn.func.__name__)
        for shard in shards:
            self.busy = True
            result = fn(shard)
            self.busy = False
            yield result


@pytest.mark.parametrize(
    ("init", "work"),
    [("agreement", {"short_fit", "_statistics", "_log_likelihood"}), ("chain", {"_statistics", "_log_likelihood"})],
)
def test_every_e_step_runs_on_the_engine(init: str, work: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, run_here = Watched(), Serial.imap

    def elsewhere(self: Serial, fn: Any, shards: Any) -> Any:
        assert engine.busy or fn is count_shard, f"{fn} does not run on the engine"
        return run_here(self, fn, shards)

    monkeypatch.setattr(Serial, "imap", elsewhere)
    Grammar(**SMALL | {"init": init, "n_restarts": 2, "n_iter": 1, "validation": 0.3}).fit(toy(), engine=engine)
    assert engine.ran == work


def test_early_stopping_keeps_the_best_pass() -> None:
    model = Grammar(**SMALL | {"n_iter": 40, "smoothing": 0.01, "rank": 8}).fit(toy(6), validation=toy(30, seed=1))
    assert len(model.history_) < 40 and len(model.validation_history_) == len(model.history_)
    np.testing.assert_allclose(model.score(toy(30, seed=1)), max(model.validation_history_), rtol=1e-5)


def test_a_fit_goes_on_from_a_checkpoint(tmp_path: Any) -> None:
    from undertow.models.fitting import Checkpoint

    class Stop(Exception):
        pass

    def stop(event: Any) -> None:
        if event.iteration == 2:
            raise Stop

    keep = Checkpoint(tmp_path, every_seconds=0)
    with pytest.raises(Stop):
        Grammar(**SMALL, callbacks=[stop]).fit(toy(), checkpoint=keep)
    resumed = Grammar(**SMALL).fit(toy(), checkpoint=keep)
    whole = Grammar(**SMALL).fit(toy())
    assert resumed.history_ == whole.history_
    np.testing.assert_array_equal(resumed.params_.emission, whole.params_.emission)


def test_counts_that_stand_for_the_text_give_the_parameters_back(model: Grammar) -> None:
    again = em.MStep.of(np.array(model.vocabulary_.counts), 0.0)(
        model._fitted_to().with_words(np.array(model.vocabulary_.counts))
    )
    for name in ("start", "rules", "left", "right"):
        np.testing.assert_allclose(getattr(again, name), getattr(model.params_, name), rtol=1e-5, err_msg=name)


def test_a_fitted_grammar_ends(model: Grammar) -> None:
    np.testing.assert_allclose(termination(model.params_).total, 1.0, rtol=1e-3)


# --- questions ------------------------------------------------------------------------------------------


def test_score_is_that_of_the_dense_grammar(model: Grammar) -> None:
    text = [["the", "dog", "sees", "a", "cat"], [], ["river"], ["the", "zzz", "likes", "today"]]
    logs = [math.log(dense_inside(model.params_, ids_of(model, *s))) if s else 0.0 for s in text]
    np.testing.assert_allclose(model.log_likelihoods(text), logs, rtol=1e-9)
    np.testing.assert_allclose(model.score(text), sum(logs) / 10, rtol=1e-9)


def test_an_unseen_word_says_nothing_about_the_tree(model: Grammar) -> None:
    """A missing observation: the same posteriors as a gap, and the probability of a new word."""
    with_gap = queries.features(model.params_, [np.array(ids_of(model, "the", None, "sees"))], "posterior")[0]
    np.testing.assert_allclose(model.transform([["the", "zzz", "sees"]])[0], with_gap, rtol=1e-4, atol=1e-6)


def test_words_and_the_end_are_predicted_one_by_one(model: Grammar) -> None:
    sentence = ["the", "old", "dog", "sees", "a", "cat"]
    encoded = [np.array(ids_of(model, *sentence))]
    [logs] = queries.word_log_probabilities(model.params_, encoded)
    total = math.log(termination(model.params_).total)
    np.testing.assert_allclose(logs.sum() + total, model.log_likelihoods([sentence])[0], rtol=1e-9)
    np.testing.assert_array_equal(model.log_probabilities([sentence])[0], logs[:-1])
    # the words that may follow "the" and the end share probability one
    following = [model.log_probabilities([["the", w]])[0][1] for w in model.vocabulary_.words]
    end = queries.word_log_probabilities(model.params_, [np.array(ids_of(model, "the"))])[0][-1]
    np.testing.assert_allclose(np.exp([*following, end]).sum(), 1.0, rtol=1e-5)


def test_probability_of_a_constraint(model: Grammar) -> None:
    """Of infixes too: any number of words before and after."""
    text = [["the"], ["the", "dog"], ["dog", "the"]]
    one, two, other = np.exp(model.log_likelihoods(text))
    total = termination(model.params_).total
    np.testing.assert_allclose(model.probability(Matches("the")), one / total, rtol=1e-6)
    np.testing.assert_allclose(
        model.probability(Contains("the", "dog") & Length(2, 2)), (two + other) / total, rtol=1e-6
    )
    prefix = model.log_probabilities([["the", "dog"]])[0].sum()
    np.testing.assert_allclose(model.probability(StartsWith("the dog")), math.exp(prefix), rtol=1e-6)
    infix = model.probability(Phrase("the dog"))
    drawn = [model.sample(200, random_state=i) for i in range(2000)]
    share = np.mean([any(s[i : i + 2] == ["the", "dog"] for i in range(len(s))) for s in drawn])
    assert abs(share - infix) < 5 * math.sqrt(infix / 2000) and math.exp(prefix) < infix < 1
    np.testing.assert_allclose(infix + model.probability(~Phrase("the dog")), 1.0, rtol=1e-6)  # float32
    for bad, message in (
        (Contains("dgo"), "nearest"),
        ("dog", "constraint"),
        (None, "constraint"),
        (Length(1, 90), "64"),
    ):
        with pytest.raises(InputError, match=message):
            model.probability(bad)  # type: ignore[arg-type]


def test_fill_is_the_exact_conditional(model: Grammar) -> None:
    words = model.vocabulary_.words
    gaps = model.fill(["the", None, "sees", None], n=100)
    assert [g.position for g in gaps] == [1, 3]
    p = np.array([dense_inside(model.params_, ids_of(model, "the", w, "sees", None)) for w in words])
    p /= p.sum()
    for word, probability in gaps[0].words:
        np.testing.assert_allclose(probability, p[words.index(word)], rtol=1e-6)
    assert [w for w, _ in gaps[0].words] == sorted((w for w, _ in gaps[0].words), key=lambda w: -p[words.index(w)])
    assert len(model.fill([None], n=3)[0].words) == 3 and model.fill(["the", "dog"]) == []


@pytest.mark.parametrize("known", [{"a", "b"}, {"a": 0.5}])
def test_fill_says_who_takes_sets_and_weights(model: Grammar, known: Any) -> None:
    with pytest.raises(InputError, match=r"Position 1 is .* a Grammar takes words and gaps .* ask an HMM"):
        model.fill([None, known])


@pytest.mark.parametrize("bad", ["the", [], None, 3, [None, 4]])
def test_fill_refuses_what_is_no_sentence(model: Grammar, bad: Any) -> None:
    with pytest.raises(InputError):
        model.fill(bad)


def test_posteriors_are_those_of_all_derivations(model: Grammar) -> None:
    sentence = ["the", "dog", "sees"]
    small = Grammar(2, n_preterminals=2, rank=2, n_iter=3, random_state=0).fit(toy(30))
    expected = truth(small.params_, ids_of(small, *sentence))
    np.testing.assert_allclose(small.transform([sentence])[0], expected.tags, rtol=1e-4, atol=1e-6)
    [tree] = small.trees([sentence])
    for c in tree.constituents:
        np.testing.assert_allclose(c.probability, expected.spans[c.begin, c.end], rtol=1e-6)
    one, none, table = small.span_probabilities([["dog"], [], sentence])
    assert one.tolist() == [[0.0, 1.0]] and none.shape == (0, 1)
    for (i, j), probability in np.ndenumerate(table):
        np.testing.assert_allclose(probability, expected.spans.get((i, j), 0.0), rtol=1e-6)
    symbols = {c.symbol for c in small.trees([sentence], "viterbi")[0].constituents}
    assert symbols <= {0, 1}
    parent = small.transform([sentence], "parent")[0]
    np.testing.assert_allclose(parent.sum(axis=1), 1.0, rtol=1e-5)
    assert not small.transform([["dog"]], "parent")[0].any()
    with pytest.raises(InputError, match="view"):
        small.transform([sentence], "nothing")


def test_parse_gives_nested_tuples(model: Grammar) -> None:
    def words_of(tree: Any) -> list[str]:
        return [tree] if isinstance(tree, str) else [w for part in tree for w in words_of(part)]

    text = [["the", "old", "dog", "sees", "a", "cat"], ["river"], [], ["today", "zzz"]]
    for method in ("mbr", "viterbi"):
        trees = model.parse(text, method)
        assert [words_of(t) for t in trees] == text
        assert trees[1:] == [("river",), (), ("today", "zzz")]
        assert model.parse(Corpus.from_sentences(text), method)[0] == trees[0]
    with pytest.raises(InputError, match="method"):
        model.parse(text, "cyk")


def test_forms_of_a_tree() -> None:
    tree = Tree(["the", "(old", "sea"], [Constituent(0, 1, 3, 2, 1.0), Constituent(1, 2, 3, 0, 0.75)], [3, 1, 0])
    assert tree.brackets() == ("the", ("(old", "sea"))
    assert tree.penn() == "(N2 (P3 the) (N0 (P1 -LRB-old) (P0 sea)))"
    again = json.loads(json.dumps(tree.to_dict()))
    assert again["constituents"][1] == {"begin": 1, "split": 2, "end": 3, "symbol": 0, "probability": 0.75}
    assert Tree([], [], []).penn() == "()" and Tree(["a"], [], [2]).penn() == "(P2 a)"


def test_nltk_reads_our_trees(model: Grammar) -> None:
    nltk = pytest.importorskip("nltk")
    escaped = {"(": "-LRB-", "a [b]": "a_-LSB-b-RSB-"}
    text = [["the", "old", "dog", "sees", "a", "cat"], ["river"], ["(", "today", "a [b]", "dog"]]
    for tree in model.trees(text):
        read = nltk.Tree.fromstring(tree.penn())
        assert read.leaves() == [escaped.get(word, word) for word in tree.words]
        inner = [t for t in read.subtrees() if t.height() > 2]
        assert [t.label() for t in inner] == [f"N{c.symbol}" for c in tree.constituents]
        assert [len(t.leaves()) for t in inner] == [c.end - c.begin for c in tree.constituents]
        assert [len(t[0].leaves()) for t in inner] == [c.split - c.begin for c in tree.constituents]
        assert [tag for _, tag in read.pos()] == [f"P{tag}" for tag in tree.tags]


def test_phrases_are_found() -> None:
    """Noun phrases of the toy language are constituents, unlike pairs that cross them."""
    model = Grammar(8, n_preterminals=8, rank=8, n_iter=40, n_chunks=1, random_state=0).fit(toy(400))
    [tree] = model.trees([["the", "dog", "sees", "a", "cat"]])
    spans = {(c.begin, c.end) for c in tree.constituents}
    assert (3, 5) in spans and (1, 3) not in spans


def test_draws(model: Grammar) -> None:
    sentence = ["the", "dog", "sees", "a", "cat"]
    trees = model.sample_trees(sentence, 3, random_state=0)
    assert len(trees) == 3 and all(t.words == sentence and len(t.constituents) == 4 for t in trees)
    assert trees == model.sample_trees(sentence, 3, random_state=0)
    drawn = [model.sample(8, random_state=i) for i in range(30)]
    assert all(0 < len(s) <= 8 for s in drawn) and drawn[0] == model.sample(8, random_state=0)
    assert {w for s in drawn for w in s} <= {w for s in toy() for w in s}
    assert model.sample(0) == []
    for bad in (-1, 1.5, True):
        with pytest.raises(InputError):
            model.sample(bad)  # type: ignore[arg-type]


def test_rules_in_words(model: Grammar) -> None:
    rules = model.top_rules(5, n_words=2)
    assert len(rules) == 5 and all(0 < r.probability <= 1 and len(r.parent) == 2 for r in rules)
    dense = np.einsum("af,fb,fc->abc", *(np.asarray(x, float) for x in model.params_[1:4]))
    used = dense * model.symbol_counts_[:3, None, None]
    assert rules[0].symbols == np.unravel_index(used.argmax(), used.shape)
    np.testing.assert_allclose(rules[0].probability, dense[rules[0].symbols], rtol=1e-5)
    np.testing.assert_allclose(sum(w.probability for w in model.top_words(0, 100)), 1.0, rtol=1e-2)
    for bad in (-1, 7, True, "a"):
        with pytest.raises(InputError, match="symbol"):
            model.top_words(bad)  # type: ignore[arg-type]


# --- limits ---------------------------------------------------------------------------------------------


def test_long_sentences_are_left_out_with_a_warning() -> None:
    text = [*toy(30), ["dog"] * 9, ["cat"] * 50]
    with pytest.warns(UserWarning, match="2 of 32 sentences have more than max_length=8") as caught:
        model = Grammar(**SMALL | {"n_iter": 1, "max_length": 8}).fit(text)
    assert caught[0].filename == __file__, "the warning does not name the line that called fit"
    assert model.n_sentences_ == 30
    with pytest.raises(InputError, match="Every sentence"):
        Grammar(**SMALL | {"max_length": 3}).fit([["a"] * 4, ["b"] * 5])


def test_queries_take_long_sentences_up_to_a_limit(model: Grammar) -> None:
    sentence = (["the", "dog", "sees", "a", "cat"] * 60)[:256]
    assert np.isfinite(model.score([sentence])) and len(model.transform([sentence])[0]) == 256
    with pytest.raises(InputError, match="Sentence 2 has 257 tokens"):
        model.score([["dog"], [*sentence, "dog"]])


def test_a_costly_query_is_warned_of(model: Grammar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "WORTH_A_WARNING", (1000, 1e9))
    with pytest.warns(CostWarning, match="A sentence of 5 tokens"):
        model.score([["the", "dog", "sees", "a", "cat"]])


def test_an_impossible_sentence(model: Grammar) -> None:
    strict = Grammar(**SMALL | {"smoothing": 0}).fit(toy())
    with pytest.warns(UserWarning, match="sentence 2 probability zero"):
        assert strict.score([["the", "dog", "sees", "a", "cat"], ["the", "zzz"]]) == -np.inf
    assert strict.parse([["zzz", "zzz", "zzz"]])[0]
    assert np.isfinite(strict.transform([["zzz", "dog"]])[0]).all()
    with pytest.raises(InputError, match="probability zero"):
        strict.sample_trees(["the", "zzz"])
    with pytest.raises(InputError, match="probability zero"):
        strict.fill(["zzz", None])


def test_one_word_sentences_alone() -> None:
    model = Grammar(**SMALL).fit([["a"], ["b"], ["a"]])
    p = np.exp(model.log_likelihoods([["a"], ["b"]]))
    assert p[0] > p[1] > 0 and model.parse([["a"]]) == [("a",)]


def test_a_loaded_grammar_answers_alike(model: Grammar, tmp_path: Any) -> None:
    model.save(tmp_path / "toy.grammar")
    loaded: Any = load(tmp_path / "toy.grammar")
    sentence = ["the", "dog", "sees", "a", "cat"]
    assert loaded.trees([sentence]) == model.trees([sentence]) and loaded.sample(random_state=1) == model.sample(
        random_state=1
    )
