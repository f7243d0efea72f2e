"""A network that predicts words from the words around them, token by token, and its loss by the definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undertow.kernels.words.context_network import ContextNetwork, WordTables


def query_of(net: ContextNetwork, tables: WordTables, sentence: list[int], t: int) -> Any:
    """(d,) what is expected at token t of a sentence."""
    d, V = tables.outputs.shape[1], len(tables.outputs)
    width = len(net.around) // (2 * d)
    around = [u for u in range(t - width, t + width + 1) if u != t]
    words = [sentence[u] if 0 <= u < len(sentence) else V for u in around]
    x = [float(number) for word in words for number in tables.inputs[word]]
    k = len(net.middle)
    h = [math.tanh(net.around_bias[i] + sum(x[j] * net.around[j, i] for j in range(len(x)))) for i in range(k)]
    g = [math.tanh(net.middle_bias[i] + sum(h[j] * net.middle[j, i] for j in range(k))) for i in range(k)]
    both = h + g
    return np.array([sum(both[j] * net.query[j, i] for j in range(2 * k)) for i in range(d)])


def log_probability(net: ContextNetwork, tables: WordTables, sentence: list[int], t: int) -> float:
    """log p(word t | words around), by a sum over all words."""
    q = query_of(net, tables, sentence, t)
    scores = [float(q @ o + b) for o, b in zip(tables.outputs, tables.bias, strict=True)]
    return scores[sentence[t]] - math.log(sum(math.exp(s) for s in scores))


def sampled_loss(
    net: ContextNetwork, tables: WordTables, sentence: list[int], t: int, drawn: list[int], log_rate: Any
) -> float:
    """−log of the share of word t among itself and the words drawn, other than itself."""
    q = query_of(net, tables, sentence, t)

    def score(word: int) -> float:
        return float(q @ tables.outputs[word] + tables.bias[word] - log_rate[word])

    own = sentence[t]
    rivals = [score(word) for word in drawn if word != own]
    return math.log(sum(math.exp(s) for s in [score(own), *rivals])) - score(own)
