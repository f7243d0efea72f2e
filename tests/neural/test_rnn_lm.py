"""The recurrent language model: a filter with squashing, and what training makes of it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import undertow
from sentences import is_one_sentence
from undertow import LDS, Corpus
from undertow.errors import InputError

torch = pytest.importorskip("torch", reason="needs the extra torch")

from undertow.models.lds.queries import token_states  # noqa: E402
from undertow.neural import RNNLM, training  # noqa: E402
from undertow.neural.training import lanes, next_word_loss, perplexity, train  # noqa: E402

DATA = Path(undertow.__file__).parent / "data"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    path = tmp_path_factory.mktemp("c") / "books"
    return Corpus.build([DATA / "books.txt.xz"], path, vocab_size=500, unknown_classes=False)


@pytest.fixture(scope="module")
def lds(corpus: Corpus) -> LDS:
    return LDS(10, n_iter=10, random_state=0).fit(corpus)


@pytest.mark.parametrize("nonlinearity", ["sigmoid", "tanh"])
def test_near_its_middle_the_network_is_the_filter(lds: LDS, nonlinearity: str) -> None:
    deviation = 1e-3
    model = RNNLM.from_lds(lds, nonlinearity, deviation=deviation, temperature=1.0).double()
    sentence = "the man of the house and a woman in the world".split()
    ids = lds.vocabulary_.encode(sentence).astype(np.int64)
    assert (ids != lds.vocabulary_.unknown_id).all()
    states = (model.states(torch.from_numpy(ids[None]))[0] - model.start(1)).detach().numpy()
    r = lds.recurrence()
    m = np.zeros(10)
    for i, state in zip(ids, states, strict=True):
        m = r.transition @ m + r.inputs[i]
        assert_allclose(state / deviation * r.spread, m, rtol=0, atol=2e-3 * np.abs(m).max())
    # and its first scores are the linear model's log probabilities to first order
    scores = model(torch.from_numpy(ids[None]))[0][0, -1].detach().numpy()
    assert_allclose(scores, np.log(r.frequency) + r.outputs @ m, rtol=0, atol=2e-2)


def test_the_spread_is_that_of_the_states(lds: LDS, corpus: Corpus) -> None:
    ids, offsets, missing = lds._encode(list(corpus.token_lists())[:3000])
    filtered = token_states(lds.params_, lds._tables, ids, offsets, missing, filtered=True)
    assert_allclose(filtered.std(axis=0), lds.recurrence().spread, rtol=0.35)


def test_the_first_words_follow_their_frequency_with_temperature_zero(lds: LDS) -> None:
    model = RNNLM.from_lds(lds, temperature=0.0)
    p = torch.softmax(model(torch.tensor([[5, 7]]))[0], dim=-1)[0, 1].detach().numpy()
    assert_allclose(p, lds.recurrence().frequency, rtol=1e-4)


@pytest.mark.parametrize("nonlinearity", ["sigmoid", "tanh"])
def test_the_start_knows_more_than_word_frequencies(lds: LDS, corpus: Corpus, nonlinearity: str) -> None:
    ids = np.asarray(corpus.ids[:40_000])
    given = RNNLM.from_lds(lds, nonlinearity, text=[corpus.vocabulary.decode(ids[:20_000])])
    frequencies = RNNLM.from_lds(lds, nonlinearity, temperature=0.0)
    held_out = ids[20_000:]
    assert perplexity(given, held_out) < 0.97 * perplexity(frequencies, held_out)


def test_training_goes_on_from_there_and_keeps_the_best(lds: LDS, corpus: Corpus) -> None:
    ids = np.asarray(corpus.ids[:60_000])
    torch.manual_seed(0)
    started = RNNLM.from_lds(lds, "tanh", text=[corpus.vocabulary.decode(ids[:10_000])])
    torch.manual_seed(0)
    random = RNNLM(len(corpus.vocabulary), 10, "tanh")
    seen = []
    histories = [
        train(m, ids[:50_000], ids[50_000:], rate=0.5, max_epochs=3, callback=seen.append) for m in (started, random)
    ]
    assert [e.number for e in histories[0]] == [0, 1, 2, 3] and len(seen) == 6
    best = [min(e.valid_perplexity for e in h) for h in histories]
    assert_allclose(perplexity(started, ids[50_000:]), best[0], rtol=1e-4)
    assert best[0] < histories[0][0].valid_perplexity  # training improves on the start
    assert best[0] < best[1]


def test_the_rate_is_halved_when_validation_stalls() -> None:
    torch.manual_seed(0)
    noise = np.random.default_rng(0).integers(0, 5, 2000)
    history = train(RNNLM(5, 3), noise[:1000], noise[1000:], rate=1e-6, max_epochs=9)
    assert [e.rate for e in history] == [1e-6, 1e-6, 5e-7]  # stalls at once, is halved, stalls again


def test_it_is_an_ordinary_module(lds: LDS, tmp_path: Path) -> None:
    model = RNNLM.from_lds(lds)
    torch.save(model.state_dict(), tmp_path / "rnn.pt")
    again = RNNLM(len(lds.vocabulary_), 10)
    again.load_state_dict(torch.load(tmp_path / "rnn.pt", weights_only=True))
    ids = torch.arange(12).reshape(2, 6)
    assert torch.equal(model(ids)[0], again(ids)[0])
    assert model.words == list(lds.vocabulary_.words)
    scores, state = model(ids[:, :3])
    rest, _ = model(ids[:, 3:], state)
    assert_allclose(torch.cat([scores, rest], dim=1).detach(), model(ids)[0].detach(), rtol=0, atol=1e-5)


def test_perplexity_by_the_definition() -> None:
    torch.manual_seed(0)
    model = RNNLM(7, 4, "tanh")
    ids = np.random.default_rng(0).integers(0, 7, 40)
    p = torch.log_softmax(model(torch.from_numpy(ids[None, :-1]))[0][0], dim=-1).detach().numpy()
    by_hand = math.exp(-p[np.arange(39), ids[1:]].mean())
    assert_allclose([perplexity(model, ids), perplexity(model, ids, steps=7)], by_hand, rtol=1e-5)
    assert lanes(np.arange(11), 2).tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize("nonlinearity", ["sigmoid", "tanh"])
def test_the_states_and_their_gradients_are_those_of_the_loop(nonlinearity: str) -> None:
    torch.manual_seed(0)
    model = RNNLM(9, 4, nonlinearity).double()
    ids, weights = torch.randint(0, 9, (3, 6)), torch.randn(3, 6, 4).double()
    start = torch.randn(3, 4).double().requires_grad_()
    squash = torch.sigmoid if nonlinearity == "sigmoid" else torch.tanh
    state, loop = start, []
    for x in model.inputs(ids).unbind(dim=1):
        state = squash(model.recurrence(state) + x)
        loop.append(state)
    expected = torch.stack(loop, dim=1)
    states = model.states(ids, start)
    assert_allclose(states.detach(), expected.detach(), rtol=0, atol=1e-14)
    wanted = [start, model.inputs.weight, model.recurrence.weight, model.recurrence.bias]
    for ours, theirs in zip(
        torch.autograd.grad((states * weights).sum(), wanted),
        torch.autograd.grad((expected * weights).sum(), wanted),
        strict=True,
    ):
        assert_allclose(ours, theirs, rtol=0, atol=1e-13)


def test_the_loss_and_its_gradients_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = RNNLM(9, 4, "tanh").double()
    ids, targets = torch.randint(0, 9, (2, 7)), torch.randint(0, 9, (2, 7))
    torch.nn.functional.cross_entropy(model(ids)[0].flatten(0, 1), targets.flatten()).mul(3).backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    for numbers in (1 << 20, 9 * 5, 1):  # all tokens at once, some, one
        monkeypatch.setattr(training, "CHUNK_NUMBERS", numbers)
        model.zero_grad()
        loss = next_word_loss(model, model.states(ids), targets)
        plain = torch.nn.functional.cross_entropy(model(ids)[0].flatten(0, 1), targets.flatten())
        assert_allclose(loss.item(), plain.item(), rtol=1e-12)
        (3 * loss).backward()
        for name, p in model.named_parameters():
            assert_allclose(p.grad, expected[name], rtol=0, atol=1e-12, err_msg=name)


def test_what_is_refused(lds: LDS) -> None:
    for attempt in (
        lambda: RNNLM(3, 2, "relu"),
        lambda: RNNLM(0, 2),
        lambda: RNNLM.from_lds(lds, deviation=2.0),
        lambda: RNNLM.from_lds(lds, text=[["the"]]),
        lambda: lanes(np.arange(3), 2),
    ):
        with pytest.raises(InputError) as e:
            attempt()
        assert is_one_sentence(str(e.value))
