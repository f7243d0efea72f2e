"""Slow, obvious truth about linear dynamical systems of text: dense matrices, whole sequences, no shortcuts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


def noise_covariance(params):
    """D = I − uu' − CMC', V×V."""
    u = np.sqrt(params.mu)
    return np.eye(len(u)) - np.outer(u, u) - params.C @ params.M @ params.C.T


def whitened(tokens, mu):
    """w_t = diag(μ)^{-½}(e_{x_t} − μ) for every token, (T, V)."""
    onehot = np.eye(len(mu))[tokens]
    return (onehot - mu) / np.sqrt(mu)


class Posterior(NamedTuple):
    mean: np.ndarray  # (T, h)
    cov: np.ndarray  # (T, h, h)


def joint_gaussian(params, initial_cov, W):
    """Smoothed means and covariances from the dense joint covariance of all states and all words."""
    A, C = params.A, params.C
    T = len(W)
    h = len(A)
    state_cov = [initial_cov]
    for _ in range(T - 1):
        state_cov.append(A @ state_cov[-1] @ A.T + params.Q)
    Sxx = np.zeros((T * h, T * h))
    for t in range(T):
        block = state_cov[t]
        for s in range(t, T):
            Sxx[s * h : (s + 1) * h, t * h : (t + 1) * h] = block
            Sxx[t * h : (t + 1) * h, s * h : (s + 1) * h] = block.T
            block = A @ block
    big_C = np.kron(np.eye(T), C)
    Sxw = Sxx @ big_C.T
    Sww = big_C @ Sxw + np.kron(np.eye(T), noise_covariance(params))
    gain = Sxw @ np.linalg.pinv(Sww, rcond=1e-10)
    mean = (gain @ W.reshape(-1)).reshape(T, h)
    cov = Sxx - gain @ Sxw.T
    return Posterior(mean, np.stack([cov[t * h : (t + 1) * h, t * h : (t + 1) * h] for t in range(T)]))


def kalman_rts(params, initial_cov, W):
    """Filter and smoother with the exact, time-varying gains: (predicted cov, gains, filtered, smoothed)."""
    A, C, D = params.A, params.C, noise_covariance(params)
    h = len(A)
    mean_pred, cov_pred = np.zeros(h), initial_cov
    predicted, gains, means, covs = [], [], [], []
    for w in W:
        S = C @ cov_pred @ C.T + D
        K = cov_pred @ C.T @ np.linalg.pinv(S, rcond=1e-10)
        mean = mean_pred + K @ (w - C @ mean_pred)
        cov = cov_pred - K @ C @ cov_pred
        predicted.append(cov_pred)
        gains.append(K)
        means.append(mean)
        covs.append(cov)
        mean_pred, cov_pred = A @ mean, A @ cov @ A.T + params.Q
    smooth_mean, smooth_cov = [means[-1]], [covs[-1]]
    for t in range(len(W) - 2, -1, -1):
        J = covs[t] @ A.T @ np.linalg.inv(predicted[t + 1])
        smooth_mean.append(means[t] + J @ (smooth_mean[-1] - A @ means[t]))
        smooth_cov.append(covs[t] + J @ (smooth_cov[-1] - predicted[t + 1]) @ J.T)
    return (
        np.stack(predicted),
        np.stack(gains),
        Posterior(np.stack(means), np.stack(covs)),
        Posterior(np.stack(smooth_mean[::-1]), np.stack(smooth_cov[::-1])),
    )


def circular_counts(tokens, n_words, n_lags):
    """Word counts and pair counts of a text whose end is joined to its beginning: exactly stationary."""
    tokens = np.asarray(tokens)
    pairs = []
    for k in range(1, n_lags + 1):
        P = np.zeros((n_words, n_words))
        np.add.at(P, (np.roll(tokens, -k), tokens), 1)
        pairs.append(P)
    return np.bincount(tokens, minlength=n_words).astype(float), pairs


class CircularPass(NamedTuple):
    """Averages over all tokens of a circular text."""

    E_ssT: np.ndarray
    E_snextsT: np.ndarray
    E_wsT: np.ndarray
    E_mmT: np.ndarray
    E_wnextmT: np.ndarray
    log_likelihood: float


def circular_pass(params, tokens):
    """Run the steady filter and smoother around a circular text until they forget where they began."""
    A, C, D = params.A, params.C, noise_covariance(params)
    W = whitened(np.asarray(tokens), params.mu)
    T, V = W.shape
    h = len(A)
    cov_pred = np.eye(h)
    for _ in range(5000):  # the fixed point that the Riccati solver jumps to
        K = cov_pred @ C.T @ np.linalg.pinv(C @ cov_pred @ C.T + D, rcond=1e-10)
        cov = cov_pred - K @ C @ cov_pred
        new = A @ cov @ A.T + params.Q
        if np.abs(new - cov_pred).max() < 1e-15 * np.abs(new).max():
            break
        cov_pred = new
    J = cov @ A.T @ np.linalg.inv(cov_pred)
    m, means = np.zeros(h), np.zeros((T, h))
    for _ in range(2):
        for t in range(T):
            m = A @ m + K @ (W[t] - C @ A @ m)
            means[t] = m
    s, smooth = np.zeros(h), np.zeros((T, h))
    for _ in range(2):
        for t in range(T - 1, -1, -1):
            s = means[t] + J @ (s - A @ means[t])
            smooth[t] = s
    before = np.roll(means, 1, axis=0)
    innovations = W - before @ A.T @ C.T
    S = C @ cov_pred @ C.T + D
    values, vectors = np.linalg.eigh(S)
    values, vectors = values[1:], vectors[:, 1:]  # the first is 0, along u
    scores = innovations @ vectors
    likelihood = -0.5 * ((V - 1) * np.log(2 * np.pi) + np.log(values).sum() + np.mean((scores**2 / values).sum(axis=1)))
    return CircularPass(
        E_ssT=smooth.T @ smooth / T,
        E_snextsT=np.roll(smooth, -1, axis=0).T @ smooth / T,
        E_wsT=W.T @ smooth / T,
        E_mmT=means.T @ means / T,
        E_wnextmT=W.T @ before / T,
        log_likelihood=float(likelihood),
    )


def hmm_text(transition, emission, n_tokens, rng):
    """Tokens of a hidden Markov chain; transition[j, i] = p(i after j), emission[i, v] = p(v | i)."""
    to = np.cumsum(transition, axis=1)
    out = np.cumsum(emission, axis=1)
    draws = rng.random((n_tokens, 2))
    state, tokens = 0, np.empty(n_tokens, dtype=np.int64)
    for t in range(n_tokens):
        state = min(int(np.searchsorted(to[state], draws[t, 0])), len(transition) - 1)
        tokens[t] = min(int(np.searchsorted(out[state], draws[t, 1])), emission.shape[1] - 1)
    return tokens


def hmm_pairs(transition, emission, n_lags):
    """(word probabilities, [P_1, …]) of a stationary hidden Markov chain, exactly."""
    values, vectors = np.linalg.eig(transition.T)
    pi = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    pi = pi / pi.sum()
    pairs, step = [], np.eye(len(pi))
    for _ in range(n_lags):
        step = step @ transition
        pairs.append(emission.T @ (pi[:, None] * step).T @ emission)
    return pi @ emission, pairs
