"""The gradient of the neural HMM against two truths, and its training."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

torch = pytest.importorskip("torch", reason="a neural HMM needs PyTorch, an extra")

from contract.cases import SENTENCES, Case, small  # noqa: E402
from contract.checks import CHECKS  # noqa: E402
from sentences import is_one_sentence  # noqa: E402
from undertow import HMM, Corpus, load  # noqa: E402
from undertow.errors import InputError  # noqa: E402
from undertow.models.fitting import InterruptedFitWarning  # noqa: E402
from undertow.neural import hmm as neural  # noqa: E402
from undertow.neural.hmm import (  # noqa: E402
    Batch,
    Options,
    as_params,
    batches,
    drop_states,
    fit_neural,
    gradient_step,
    mean_log_probability,
)
from undertow.neural.hmm_network import FEATURES, LogTables, Network, Shape, orthogonal_rows  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    """Matrices this small lose more by a second thread than they win, on a busy machine very much more."""
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n)


QUICK = Options(width=8, dropout=0.5, learning_rate=5e-3, batch_tokens=32, n_warm=5)
BATCH = Batch(np.array([0, 3, 5, 1, 1, 4, 2, 0, 5]), np.array([0, 4, 4, 9]))
BLOCKS = (np.array([0, 1, 4, 6]), np.array([1, 0, 2, 1, 2, 1]))  # states of each block, block of each word
ONE = (np.array([0, 6]), np.zeros(6, dtype=np.int64))
SHAPES = [
    pytest.param(*where, rank, features, id=f"{name}-{rank}-{features}")
    for name, where in (("plain", ONE), ("blocks", BLOCKS))
    for rank, features in [(None, "learned"), *((4, f) for f in FEATURES)]
]


def network_of(first: np.ndarray, block: np.ndarray, rank: int | None, features: str, dtype=torch.float64) -> Network:
    generator = torch.Generator().manual_seed(3)
    words = np.bincount(BATCH.ids, minlength=len(block))
    return Network(Shape(first, block, rank, 5, features), words, generator, dtype=dtype)


def log_evidence(tables: LogTables, block: np.ndarray, batch: Batch):
    """log p(text) by the forward recursion in logarithms, for torch to differentiate."""
    T = tables.T if tables.T is not None else torch.logsumexp(tables.R[:, :, None] + tables.E[None], dim=1)
    emission = torch.full((len(tables.kept), len(block)), -np.inf, dtype=T.dtype)
    for b, logs in enumerate(tables.emission):
        words = torch.from_numpy(np.flatnonzero(block == b))
        rows = torch.arange(int(tables.first[b]), int(tables.first[b + 1]))
        emission = emission.index_put((rows[:, None], words[None, :]), logs)
    total = torch.zeros((), dtype=T.dtype)
    for start, stop in zip(batch.bounds[:-1], batch.bounds[1:], strict=True):
        alpha = None
        for t in range(start, stop):
            pred = tables.initial if alpha is None else torch.logsumexp(alpha[:, None] + T, dim=0)
            alpha = pred + emission[:, batch.ids[t]]
            # −inf − −inf has no gradient: live states alone
            live = torch.isfinite(alpha)
            alpha = torch.where(live, alpha, torch.full_like(alpha, -1e30))
        if alpha is not None:
            total = total + torch.logsumexp(alpha, dim=0)
    return total


@pytest.mark.parametrize(("first", "block", "rank", "features"), SHAPES)
@pytest.mark.parametrize("dropped", [False, True])
def test_the_gradient_is_that_of_the_evidence(first, block, rank, features, dropped) -> None:
    network = network_of(first, block, rank, features)
    kept = drop_states(first, 0.4, np.random.default_rng(0)) if dropped else None
    plain = len(first) == 2
    # the kernels of blocks work in float32
    log_likelihood = gradient_step(network, BATCH, kept, dtype=np.float64 if plain else np.float32)
    found = {name: w.grad.clone() for name, w in network.weights.items() if w.grad is not None}
    for weight in network.parameters():
        weight.grad = None
    evidence = log_evidence(network.log_tables(kept), block, BATCH)
    (-evidence / len(BATCH.ids)).backward()
    tolerance = 1e-9 if plain else 2e-5
    assert_allclose(log_likelihood, evidence.item(), rtol=1e-6)
    assert set(found) == {name for name, w in network.weights.items() if w.grad is not None}
    for name, gradient in found.items():
        assert_allclose(gradient, network.weights[name].grad, rtol=0, atol=tolerance, err_msg=name)
        assert gradient.abs().max() > 1e-6 or name.endswith("_bias") or name == "kappa", name


@pytest.mark.parametrize(("rank", "features"), [(None, "learned"), (4, "learned"), (4, "fourier")])
def test_the_gradient_is_the_finite_difference(rank: int | None, features: str) -> None:
    network = network_of(*ONE, rank, features)
    gradient_step(network, BATCH, None, dtype=np.float64)
    rng = np.random.default_rng(0)
    for name, weight in network.weights.items():
        flat, gradient = weight.detach().view(-1), weight.grad.view(-1)
        for i in rng.permutation(len(flat))[:3].tolist():
            values = []
            for shift in (1e-5, -2e-5):
                flat[i] += shift
                with torch.no_grad():
                    params = as_params(network.log_tables(), network.shape, dtype=np.float64)
                values.append(-params.statistics(BATCH.ids, BATCH.bounds).log_likelihood / len(BATCH.ids))
            flat[i] += 1e-5
            assert_allclose(gradient[i], (values[0] - values[1]) / 2e-5, rtol=1e-5, atol=1e-8, err_msg=name)


@pytest.mark.parametrize(("first", "block", "rank", "features"), SHAPES)
def test_tables_are_distributions_and_the_generalised_softmax(first, block, rank, features) -> None:
    network = network_of(first, block, rank, features)
    for weight in network.parameters():  # far out, where exponentials overflow
        weight.data *= 30
    tables = network.log_tables()
    as_params(tables, network.shape).check()
    with torch.no_grad():
        small = network_of(first, block, rank, features)
        if rank is not None:
            # T = diag(d) φ(U) φ(V)' as it is written, d making rows sum to one
            tables = small.log_tables()
            u = torch.exp(small.log_features(small._residual(small.weights["leave"], "leave")))
            v = torch.exp(small.log_features(small.weights["arrive"]) + small.weights["arrive_bias"][:, None])
            T = u @ v.T
            T = T / T.sum(dim=1, keepdim=True)
            assert_allclose(torch.exp(tables.R) @ torch.exp(tables.E), T, rtol=1e-9)


def test_orthogonal_features_estimate_the_exponential_kernel() -> None:
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int):
        return torch.randn(size, generator=generator, dtype=torch.float64)

    W = orthogonal_rows(4000, normal, 8)
    assert W.shape == (4000, 8)
    gram = W[:8] @ W[:8].T
    assert_allclose(gram - torch.diag(torch.diag(gram)), 0, rtol=0, atol=1e-9)
    u, v = 0.4 * normal(8), 0.4 * normal(8)
    phi = [torch.exp(W @ x - x @ x / 2) for x in (u, v)]
    assert_allclose((phi[0] @ phi[1] / 4000).item(), torch.exp(u @ v).item(), rtol=0.1)


def test_dropping_leaves_each_block_some_states() -> None:
    first = np.array([0, 1, 5, 11])
    kept = drop_states(first, 0.5, np.random.default_rng(0))
    assert_array_equal(np.diff(np.searchsorted(kept, first)), [1, 2, 3])
    assert (np.diff(kept) > 0).all() and drop_states(first, 0.0, np.random.default_rng(0)) is None


def test_batches_hold_the_text() -> None:
    corpus = Corpus.from_sentences(SENTENCES)
    for carry in (False, True):
        parts = batches(corpus, 20, carry)
        assert len(parts) > 1
        assert_array_equal(np.concatenate([b.ids for b in parts]), corpus.ids)
        assert all(b.bounds[0] == 0 and b.bounds[-1] == len(b.ids) and (np.diff(b.bounds) > 0).all() for b in parts)


@pytest.mark.parametrize(("n_blocks", "rank"), [(1, None), (1, 3), (3, None), (3, 3)])
def test_training_improves_and_gives_ordinary_tables(n_blocks: int, rank: int | None, tmp_path) -> None:
    corpus = Corpus.from_sentences(SENTENCES * 8)
    hmm = HMM(6, n_blocks=n_blocks, rank=rank, n_iter=6, parameterization="neural", random_state=0)
    params, history, *_ = fit_neural(hmm, corpus, options=QUICK._replace(dropout=0.0))
    params.check()
    assert len(history) == 6 and history[-1] > history[0] + 0.1
    again, same, *_ = fit_neural(hmm, corpus, options=QUICK._replace(dropout=0.0))
    assert history == same
    assert_array_equal(again.initial, params.initial)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hmm.set_params(n_iter=1, n_jobs=1).fit(corpus)
        hmm.save(tmp_path / "m")
    assert load(tmp_path / "m").perplexity(SENTENCES) == hmm.perplexity(SENTENCES)


def test_the_best_epoch_on_held_out_text_is_kept_and_the_rate_is_cut() -> None:
    corpus = Corpus.from_sentences(SENTENCES)
    other = Corpus.from_sentences(SENTENCES[:2], vocabulary=corpus.vocabulary)
    hmm = HMM(6, n_blocks=1, rank=3, n_iter=5, random_state=0)
    params, _, after_each, _ = fit_neural(hmm, corpus, other, options=QUICK)
    scores = []
    for n in range(1, 6):
        now = fit_neural(hmm.set_params(n_iter=n), corpus, other, options=QUICK).params
        scores.append(mean_log_probability(now, batches(other, 1000, False)))
    assert scores == sorted(scores), "an epoch that made it worse was kept"
    assert_allclose(mean_log_probability(params, batches(other, 1000, False)), max(scores), rtol=1e-12)
    assert len(after_each) == 5
    assert_allclose(np.maximum.accumulate(after_each), scores, rtol=1e-12)
    fast = QUICK._replace(learning_rate=3.0, n_warm=0)
    wild, still = (fit_neural(hmm, corpus, options=fast._replace(cut=c))[1] for c in (1, 0))
    assert wild[:1] == still[:1] and wild != still


def test_ctrl_c_keeps_the_last_finished_epoch() -> None:
    def stop(event) -> None:
        if event.iteration == 2:
            raise KeyboardInterrupt

    corpus = Corpus.from_sentences(SENTENCES)
    hmm = HMM(6, n_blocks=1, rank=3, n_iter=5, random_state=0, callbacks=[stop])
    with pytest.warns(InterruptedFitWarning):
        params, history, _, interrupted = fit_neural(hmm, corpus, options=QUICK)
    assert len(history) == 2 and interrupted
    expected, *_ = fit_neural(hmm.set_params(n_iter=2, callbacks=None), corpus, options=QUICK)
    assert_array_equal(params.initial, expected.initial)


def test_the_global_generator_of_torch_is_left_alone() -> None:
    before = torch.get_rng_state()
    fit_neural(HMM(4, n_blocks=1, n_iter=1, random_state=0), Corpus.from_sentences(SENTENCES), options=QUICK)
    assert torch.equal(before, torch.get_rng_state())


def test_what_cannot_be_is_refused() -> None:
    corpus = Corpus.from_sentences(SENTENCES)
    for hmm, options in [
        (HMM(6, n_blocks=1, rank=3, band=1), QUICK),
        (HMM(6, n_blocks=1, rank=3), QUICK._replace(features="cubic")),
    ]:
        with pytest.raises(InputError) as caught:
            fit_neural(hmm, corpus, options=options)
        assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize("check", [pytest.param(check, id=check.__name__) for check, _ in CHECKS])
def test_the_contract_holds(check, monkeypatch) -> None:
    """That of every estimator, with a network and steps as small as the text."""
    monkeypatch.setattr(neural, "options_of", lambda hmm: QUICK)
    make = small(HMM, n_states=4, n_blocks=1, rank=2, n_iter=3, parameterization="neural", random_state=0)
    check(Case("neural-hmm", make))
