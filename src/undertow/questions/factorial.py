"""A factorial HMM as the one chain it is: all combinations of its layers' states."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from undertow.errors import InputError
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.operators import Dense
from undertow.kernels.factorial.words import FactorialParams
from undertow.models.hmm.params import PlainParams
from undertow.questions.evidence import TextChain
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
    layers = range(params.n_layers)
    initial = reduce(np.kron, [params.initial[m] for m in layers])
    transition = reduce(np.kron, [params.transition[m] for m in layers])
    theta: Any = np.asarray(params.theta, dtype=np.float64)
    scores = theta[:, 0]
    for m in layers[1:]:
        scores = (scores[:, :, None] + theta[:, m][:, None, :]).reshape(len(theta), -1)
    scores = np.exp(scores - scores.max(axis=0))
    emission = scores / scores.sum(axis=0)
    tables = [np.ascontiguousarray(x, dtype=np.float32) for x in (initial, transition, emission)]
    return TextChain(PlainParams(ChainParams(tables[0], Dense(tables[1]), tables[2])), vocabulary)


__all__ = ["product_chain"]
