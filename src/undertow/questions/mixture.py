"""Questions about a mixture of models: one of them wrote the text, and the evidence says which.

p(text) = Σ_i weight_i p_i(text). Given evidence, model i weighs weight_i p_i(evidence) over the sum of these, and
answers are means of the models' own answers by these weights. (Left to right, `Interpolation` mixes anew at each token
instead, which has no tractable two-sided answer.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.errors import InputError
from undertow.kernels.types import F64
from undertow.models.answers import Gap
from undertow.questions.evidence import Evidence, TextChain
from undertow.questions.fill import checked_observed, open_positions, top_words, word_distributions
from undertow.tables import Table


def chains_of(models: Sequence[Any]) -> list[TextChain]:
    """The chains of the models; InputError if one has none."""
    for model in models:
        if not hasattr(model, "_chain"):
            raise InputError(
                f"{type(model).__name__} has no probability of a whole text that its two-sided answers belong to: mix "
                "models that are chains of states, such as HMMs."
            )
    return [model._chain() for model in models]


def fill(models: Sequence[Any], weights: F64, text: Evidence, n: int) -> Table[Gap]:
    """For each open position its n most probable words."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"n={n!r} must be a whole number, at least 1.")
    chains = chains_of(models)
    logs, found, where = [], [], []
    for chain in chains:
        observed = checked_observed(chain, text)
        where = open_positions(observed)
        logs.append(observed.params.filtered(observed.ids, observed.bounds).log_probabilities.sum())
        found.append(word_distributions(chain, observed, where, text))
    share = np.exp(_log(weights) + np.array(logs) - np.logaddexp.reduce(_log(weights) + np.array(logs)))
    mixed = [sum(s * p[i] for s, p in zip(share, found, strict=True)) for i in range(len(where))]
    words = chains[0].vocabulary
    return Table(Gap, (Gap(t, top_words(words, np.asarray(p), int(n))) for t, p in zip(where, mixed, strict=True)))


def masked_log_probabilities(models: Sequence[Any], weights: F64, X: Any) -> list[F64]:
    """log p(token | all other tokens of its sentence) of each sentence.

    p_i(rest) = p_i(sentence) / p_i(token | rest), so both sums over the models come from the sentences' probabilities.
    """
    chains_of(models)
    logs = [[part.sum() for part in model.log_probabilities(X)] for model in models]
    alone = [model.masked_log_probabilities(X) for model in models]
    out = []
    for i in range(len(alone[0])):
        whole = _log(weights) + np.array([model[i] for model in logs])
        rest = whole[:, None] - np.array([model[i] for model in alone])
        out.append(np.logaddexp.reduce(whole) - np.logaddexp.reduce(rest, axis=0))
    return out


def _log(weights: F64) -> F64:
    with np.errstate(divide="ignore"):
        return np.log(weights)


__all__ = ["fill", "masked_log_probabilities"]
