"""The default representation of a `Tagger`: which models are fitted to the text, how, and how each is read.

All choices are made here. A model is left out if the text is too short for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from undertow.models.base import Estimator
from undertow.models.hmm.model import HMM
from undertow.models.lds.model import LDS
from undertow.results.context_vectors import ContextVectors
from undertow.results.pmi_vectors import PMIVectors
from undertow.results.tagging.representation import Paths, Posteriors, Vectors
from undertow.results.tagging.token_features import Representation
from undertow.results.word_clusters import WordClusters
from undertow.text.corpus import Corpus

LAGS = 7  # of the counts that the LDS, the PMI vectors and the clusters share


class Part(NamedTuple):
    """A model of the representation."""

    model: Estimator  # not fitted yet
    read: Callable[[Any], Representation]  # what the tagger reads of the fitted model
    on_counts: bool  # fitted to the pair counts, not to the text itself
    seconds: float  # processor time that the fit takes, roughly: only the ratios of the parts count


def _beside(model: Estimator, view: str | None = None) -> Vectors:
    """Vectors that the network of the CRF reads alone: its linear part gains nothing by them."""
    return Vectors(model, view, network_only=True, scale=2.0, window=0, pieces=True, casing="frequent")


def default_parts(text: Corpus, random_state: Any, n_jobs: int | None) -> tuple[list[Part], list[str]]:
    """The models to fit to a text.

    Parameters
    ----------
    text
        All of it.
    random_state, n_jobs
        For the models.

    Returns
    -------
    parts : list of Part
        May be empty.
    left_out : list of str
        What the text is too short for.
    """
    n_tokens = text.n_tokens
    n_words = int(np.count_nonzero(text.vocabulary.counts))
    n_lagged = int((np.diff(text.offsets) > LAGS).sum())
    common = {"random_state": random_state, "n_jobs": n_jobs}
    parts: list[Part] = []
    left_out: list[str] = []

    # sizes of experiments/tagging_default.py, and less for less text
    h = min(200, max(n_words // 100, 20), n_words // 20)
    if n_tokens >= 20_000 and n_lagged >= 500 and h >= 10:
        lds = LDS(h, lags=LAGS, **common)
        parts.append(
            Part(
                lds,
                lambda m: _beside(m, "features"),
                True,
                4e-8 * n_words * h**2 + 1e-6 * n_tokens,
            )
        )
        parts.append(
            Part(
                PMIVectors(h, lags=LAGS, **common),
                _beside,
                True,
                6e-7 * n_tokens * h / 200 + 3e-8 * n_words * h,
            )
        )
        parts.append(
            Part(
                ContextVectors(min(128, h), **common),
                _beside,
                False,
                3.4e-5 * n_tokens,
            )
        )
    else:
        left_out += ["LDS vectors", "PMI vectors", "context vectors"]

    n_clusters = min(1000, n_words // 10)
    if n_tokens >= 2_000 and n_clusters >= 10:
        clusters = WordClusters(n_clusters, n_iter=12, **common)
        parts.append(
            Part(
                clusters,
                lambda m: Paths(m, window=2, pieces=True, casing="known", scale=0.5),
                True,
                3e-7 * n_words * n_clusters + 2e-6 * n_tokens,
            )
        )
    else:
        left_out.append("cluster paths")

    n_states = min(80, n_tokens // 250, n_words // 10)
    if n_states >= 8:
        # from clusters, not at random: on 35,000 to 1.4 M tokens four passes from a random start did not help
        hmm = HMM(n_states, n_blocks=1, n_iter=4, n_chunks=8, init="clusters", **common)
        parts.append(
            Part(
                hmm,
                lambda m: Posteriors(m, window=1, pieces=True, casing="known", scale=2.0),
                False,
                6e-8 * n_tokens * n_states,
            )
        )
    else:
        left_out.append("HMM posteriors")
    return parts, left_out
