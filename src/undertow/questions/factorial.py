"""A factorial HMM as the one chain it is: all combinations of its layers' states.

What is known of a hidden state is said for each layer, {layer: state or set of states}, and answers about states are
given for each layer; in between they are sets and sums of joint states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from undertow.errors import InputError, short
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.operators import Dense
from undertow.kernels.factorial.words import FactorialParams
from undertow.kernels.types import F32, I64
from undertow.models.hmm.params import PlainParams
from undertow.questions.evidence import (
    Evidence,
    Observed,
    TextChain,
    as_evidence,
    check_possible,
    observe,
    read_position,
)
from undertow.text.vocabulary import Vocabulary

MOST_STATES = 4096  # of the product; its transition is a full matrix
MOST_NUMBERS = 1 << 26  # of its emission: 256 MB, and twice as much in float64 while it is made


def product_chain(params: FactorialParams, vocabulary: Vocabulary) -> TextChain:
    """The chain of the joint states, numbered with the last layer fastest."""
    if params.n_joint > MOST_STATES:
        raise InputError(
            f"Questions about a factorial HMM need a table of its {params.n_joint:,} joint states, more than "
            f"{MOST_STATES:,}: use a model with fewer layers or states."
        )
    if params.n_joint * len(params.theta) > MOST_NUMBERS:
        raise InputError(
            f"Questions about a factorial HMM need a table of {params.n_joint:,} joint states by {len(params.theta):,} "
            f"words, more than {MOST_NUMBERS:,} numbers: use a model with fewer layers, states or words."
        )
    initials, transitions, thetas = zip(*(params.layer(m) for m in range(params.n_layers)), strict=True)
    initial, transition = reduce(np.kron, initials), reduce(np.kron, transitions)
    scores: Any = np.asarray(thetas[0], dtype=np.float64)
    for theta in thetas[1:]:
        scores = (scores[:, :, None] + np.asarray(theta, dtype=np.float64)[:, None, :]).reshape(len(scores), -1)
    scores = np.exp(scores - scores.max(axis=0))
    emission = scores / scores.sum(axis=0)
    tables = [np.ascontiguousarray(x, dtype=np.float32) for x in (initial, transition, emission)]
    return TextChain(PlainParams(ChainParams(tables[0], Dense(tables[1]), tables[2])), vocabulary)


def joint_evidence(params: FactorialParams, text: Evidence) -> Evidence:
    """The same evidence with known states of layers as sets of joint states."""
    joint = np.indices(params.sizes).reshape(params.n_layers, -1)
    states = {}
    for position, layers in text.states.items():
        read_position(position, len(text.tokens))
        if not isinstance(layers, Mapping):
            raise InputError(
                f"Position {position} has the states {short(layers)}: say which layers they are of, such as {{0: 3}} "
                "for state 3 of layer 0."
            )
        kept = np.ones(joint.shape[1], dtype=bool)
        for layer, known in layers.items():
            several = isinstance(known, Iterable) and not isinstance(known, str | bytes)
            allowed = list(known) if several else [known]
            _check_layer(params, position, layer, allowed)
            kept &= np.isin(joint[layer], allowed)
        states[position] = np.flatnonzero(kept).tolist()
    return Evidence(text.tokens, states)


def _check_layer(params: FactorialParams, position: Any, layer: Any, allowed: list[Any]) -> None:
    _check_number(position, "layer", layer, params.n_layers)
    for state in allowed:
        _check_number(position, "state", state, params.sizes[layer])
    if not allowed:
        raise InputError(f"Position {position} allows no state of layer {layer}: give at least one, or leave it out.")


def _check_number(position: Any, name: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < most:
        raise InputError(f"Position {position} has the {name} {short(value)}: give one of 0 to {most - 1}.")


def observe_texts(chain: TextChain, params: FactorialParams, X: Sequence[Any], unknown_is_gap: bool) -> Observed:
    """Partly known texts as observations of the product chain; for states, an unknown word is a missing one."""
    texts = []
    for text in X:
        given = joint_evidence(params, as_evidence(text))
        if unknown_is_gap:
            unknown = chain.vocabulary.unknown_id
            tokens = [None if isinstance(w, str) and chain.vocabulary.id(w) == unknown else w for w in given.tokens]
            given = Evidence(tokens, given.states)
        texts.append(given)
    observed = observe(chain, texts)
    logs = observed.params.filtered(observed.ids, observed.bounds).log_probabilities
    for text, part in zip(texts, np.split(logs, observed.bounds[1:-1]), strict=True):
        check_possible(part, text)
    return observed


def layer_posteriors(params: FactorialParams, observed: Observed) -> list[F32]:
    """(n_tokens, M, K) of each text: the probabilities of the layers' states; 0 for what a smaller layer lacks."""
    M = params.n_layers
    joint = observed.params.smoothed(observed.ids, observed.bounds).values.reshape((-1, *params.sizes))
    gamma = np.zeros((len(joint), M, params.n_states))
    for layer, k in enumerate(params.sizes):
        others = tuple(1 + m for m in range(M) if m != layer)
        gamma[:, layer, :k] = joint.sum(axis=others, dtype=np.float64)
    gamma /= gamma.sum(axis=2, keepdims=True)
    return np.split(gamma.astype(np.float32), observed.bounds[1:-1])


def layer_paths(params: FactorialParams, observed: Observed) -> list[I64]:
    """(n_tokens, M) of each text: the layers' states on the most probable joint path."""
    path = observed.params.best_path(observed.ids, observed.bounds)
    layers = np.stack(np.unravel_index(path, params.sizes), axis=1)
    return np.split(layers.astype(np.int64), observed.bounds[1:-1])


__all__ = ["product_chain"]
