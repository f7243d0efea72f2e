"""The small network: its gradient by finite differences, Adam step by step, its strength beside scikit-learn's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from undertow.kernels.adam import adam_start, adam_step
from undertow.results.tagging import LocalTagger, network
from undertow.results.tagging.network import Network


def small(rng: np.random.Generator) -> tuple[Network, Any, Any]:
    net = Network(*(rng.normal(size=s) for s in ((4, 3), (3,), (3, 5), (5,))))
    return net, rng.normal(size=(7, 4)), rng.integers(0, 5, 7)


def plain_loss(net: Network, X: Any, y: Any, alpha: float) -> float:
    """The module's two formulas, a row at a time."""
    total = 0.0
    for x, label in zip(X, y, strict=True):
        z = np.maximum(x @ net.W1 + net.b1, 0) @ net.W2 + net.b2
        total -= np.log(np.exp(z[label]) / np.exp(z).sum())
    return total / len(X) + alpha / 2 * ((net.W1**2).sum() + (net.W2**2).sum())


def test_the_loss_is_the_formula_and_the_gradient_its_slope() -> None:
    net, X, y = small(np.random.default_rng(0))
    loss, gradient = network.loss_and_gradient(net, X, y, 0.3)
    np.testing.assert_allclose(loss, plain_loss(net, X, y, 0.3), rtol=1e-12)
    step = 1e-6
    for name, part in net._asdict().items():
        slopes = np.zeros_like(part)
        for at in np.ndindex(part.shape):
            ends = []
            for sign in (1, -1):
                moved = part.copy()
                moved[at] += sign * step
                ends.append(plain_loss(net._replace(**{name: moved}), X, y, 0.3))
            slopes[at] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(getattr(gradient, name), slopes, rtol=1e-5, atol=1e-8, err_msg=name)


def test_adam_is_the_algorithm_of_the_paper() -> None:
    rng = np.random.default_rng(1)
    net, _, _ = small(rng)
    gradients = [Network(*(rng.normal(size=p.shape) for p in net)) for _ in range(4)]
    w, m, v = net.W1.copy(), np.zeros_like(net.W1), np.zeros_like(net.W1)
    state = adam_start(net)
    for t, g in enumerate(gradients, 1):
        net, state = adam_step(net, g, state, 0.01)
        m = 0.9 * m + 0.1 * g.W1
        v = 0.999 * v + 0.001 * g.W1**2
        w = w - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(net.W1, w, rtol=1e-5)  # the paper adds 1e-8 at another place
    assert state.step == 4


def test_large_scores_do_not_overflow() -> None:
    net, X, y = small(np.random.default_rng(2))
    big = Network(*(1e3 * p for p in net))
    assert np.isfinite(network.log_probabilities(big, X)).all()
    assert np.isfinite(network.loss_and_gradient(big, X, y, 0.0)[0])


def test_the_likelihood_is_summed_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    net, X, y = small(np.random.default_rng(3))
    whole = network.mean_log_likelihood(net, X, y)
    np.testing.assert_allclose(whole, -plain_loss(net, X, y, 0.0), rtol=1e-12)
    monkeypatch.setattr(network, "CHUNK", 3)
    np.testing.assert_allclose(network.mean_log_likelihood(net, X, y), whole, rtol=1e-12)


def rings(rng: np.random.Generator, n: int) -> tuple[list[Any], list[list[str]]]:
    """Sentences of vectors whose label is the ring they lie in, which no linear classifier can tell."""
    X = rng.normal(size=(n, 10, 4)).astype(np.float32)
    radius = np.linalg.norm(X, axis=2)
    return list(X), [["near" if r < 1.6 else "middle" if r < 2.2 else "far" for r in row] for row in radius]


def test_it_learns_what_scikit_learns() -> None:
    neural = pytest.importorskip("sklearn.neural_network", reason="scikit-learn is not installed")
    rng = np.random.default_rng(4)
    (X, y), (X_test, y_test) = rings(rng, 300), rings(rng, 200)
    ours = LocalTagger(random_state=0, patience=5, n_iter=40).fit(X, y).score(X_test, y_test)
    theirs = neural.MLPClassifier(
        (25,), batch_size=128, learning_rate_init=2e-3, max_iter=40, early_stopping=True, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forty passes are the setting for both
        theirs.fit(np.concatenate(X), np.concatenate(y))
    rival = theirs.score(np.concatenate(X_test), np.concatenate(y_test))
    largest_class = np.unique(np.concatenate(y_test), return_counts=True)[1].max() / 2000
    assert largest_class + 0.2 < ours and ours > rival - 0.05, (ours, rival, largest_class)
