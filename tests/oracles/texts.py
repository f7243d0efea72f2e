"""Questions about continuations by the definition: every text of a tiny vocabulary written down and weighed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np


def all_texts(words: Sequence[str], length: int) -> list[tuple[str, ...]]:
    assert len(words) ** length <= 100_000, "too many texts to write down"
    return list(itertools.product(words, repeat=length))


def weighed_texts(
    log_probabilities: Callable[[list[list[str]]], list[Any]],
    words: Sequence[str],
    lengths: Iterable[int],
    prefix: Sequence[str] = (),
    suffix: Sequence[str] = (),
) -> dict[tuple[str, ...], float]:
    """p(text, suffix | prefix) of every text, from a model's log-probabilities of tokens given those before them."""
    out = {}
    for length in lengths:
        texts = all_texts(words, length)
        logs = log_probabilities([[*prefix, *text, *suffix] for text in texts])
        out.update({text: float(np.exp(log[len(prefix) :].sum())) for text, log in zip(texts, logs, strict=True)})
    return out


def share(weights: dict[tuple[str, ...], float], holds: Callable[[Sequence[str]], bool]) -> float:
    """The part of the weight that lies on texts for which something holds."""
    return sum(w for text, w in weights.items() if holds(text)) / sum(weights.values())


def product_matrix(transition: Any, emitted: Any, step: Any) -> Any:
    """(Q·Z, Q·Z) the chain times the automaton: from (q before the token, its state) to the same of the next token.

    The token of the state z is emitted on leaving it: [(q, z), (q', z')] = Σ_{c: step(q, c) = q'} e_c(z) T(z, z').
    """
    (Q, C), Z = step.shape, len(transition)
    out = np.zeros((Q, Z, Q, Z))
    for q, c in itertools.product(range(Q), range(C)):
        out[q, :, step[q, c], :] += emitted[c][:, None] * transition
    return out.reshape(Q * Z, Q * Z)


def product_acceptance(start: Any, transition: Any, emitted: Any, step: Any, accepting: Any, end: Any, n: int) -> float:
    """Probability that n tokens are accepted and `end` follows, by powers of the dense product."""
    (Q, C), Z = step.shape, len(transition)
    before = np.zeros((Q, Z))
    before[0] = start
    before = (before.ravel() @ np.linalg.matrix_power(product_matrix(transition, emitted, step), n - 1)).reshape(Q, Z)
    last = np.zeros((Q, Z))
    for q, c in itertools.product(range(Q), range(C)):
        last[step[q, c]] += before[q] * emitted[c]
    return float((accepting[:, None] * last * end).sum())
