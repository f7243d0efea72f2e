"""The estimators that go through the contract, each with a small configuration and what it can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from contract.reference import DeletedInterpolation
from undertow import HMM, LDS, ContextVectors, DynamicEmbedding, FactorialHMM, Grammar, PMIVectors
from undertow.results import WordClusters

SENTENCES = [
    s.split()
    for s in [
        "the river runs under the old bridge",
        "the bank of the river is wide",
        "she went to the bank to save her money",
        "the old man sat by the river",
        "money in the bank is safe",
        "a wide river runs to the sea",
        "the sea is old and wide",
        "he ran over the bridge to the sea",
    ]
]
OTHER_SENTENCES = [s.split() for s in ["rain fell on the town", "the town slept", "rain again and again"]]


@dataclass(frozen=True)
class Case:
    """One estimator under the contract. `make(**params)` gives an unfitted small one, seeded unless told."""

    name: str
    make: Callable[..., Any]
    data: list[Any] = field(default_factory=lambda: SENTENCES)  # what fit takes; a list, so it can be replayed
    other_data: list[Any] = field(default_factory=lambda: OTHER_SENTENCES)
    fits_sentences: bool = True  # token lists and Corpus; otherwise `data` is a table of events
    has_transform: bool = True
    has_score: bool = True
    uses_randomness: bool = True  # different seeds give different models

    def fitted(self, **params: Any) -> Any:
        model = self.make(**params)
        model.fit(self.data)  # not chained: what fit returns has its own check
        return model


def small(model_class: Callable[..., Any], **params: Any) -> Callable[..., Any]:
    """A constructor with other defaults, which a check may override."""
    return lambda **changed: model_class(**(params | changed))


EVENTS = [
    (year, row, column, 1 + (year * i + 3 * j) % 5)
    for year in (2001, 2002, 2004)
    for i, row in enumerate(["Ann", "Bo", "Cy", "Di"])
    for j, column in enumerate(["river", "bank", "money", "bridge", "sea"])
    if (year + i + j) % 3
]
OTHER_EVENTS = [(t, r, c, 2.5) for t in ("early", "late") for r in ("Ann", "Xu") for c in ("rain", "town")]

CASES = [
    Case("deleted-interpolation", small(DeletedInterpolation, n_iter=4, random_state=0)),
    Case("lds", small(LDS, n_components=3, n_iter=3, n_full=1, lags=3, ssid_lags=2, kappa=1.0, random_state=0)),
    # its transform gives integers, a cluster a token, and the contract's is of vectors
    Case(
        "clusters",
        small(WordClusters, n_clusters=3, min_moved=0.0, init="random", random_state=0),
        has_transform=False,
        has_score=False,
    ),
    Case("pmi", small(PMIVectors, n_components=3, lags=3, n_iter=3, random_state=0), has_score=False),
    Case(
        "context",
        small(ContextVectors, n_components=3, window=2, n_hidden=4, n_iter=3, n_drawn=8, random_state=0),
        has_score=False,
    ),
    Case("fhmm-exact", small(FactorialHMM, n_layers=3, n_states=2, n_iter=3, random_state=0)),
    Case(
        "fhmm-variational",
        small(FactorialHMM, n_layers=2, n_states=2, n_iter=3, inference="variational", max_sweeps=3, random_state=0),
    ),
    Case("fhmm-sizes", small(FactorialHMM, n_layers=3, n_states=[3, 1, 4], n_iter=3, random_state=0)),
    Case("fhmm-lds", small(FactorialHMM, n_layers=2, n_states=3, n_iter=3, init="lds", random_state=0)),
    Case("hmm-blocks", small(HMM, n_states=8, n_blocks=4, n_iter=4, n_chunks=2, random_state=0)),
    Case(
        "hmm-tied",
        small(
            HMM, n_states=9, n_blocks=3, parameterization="neural", width=4, batch_tokens=30, n_iter=4, random_state=0
        ),
    ),
    Case("hmm-dense", small(HMM, n_states=3, n_iter=4, n_chunks=1, random_state=0)),
    Case("hmm-low-rank", small(HMM, n_states=6, n_blocks=3, rank=2, n_iter=4, n_chunks=2, random_state=0)),
    Case(
        "grammar",
        small(Grammar, n_nonterminals=4, n_preterminals=5, rank=3, n_restarts=2, n_iter=4, n_chunks=2, random_state=0),
    ),
    Case(
        "dynamic",
        small(DynamicEmbedding, n_iter=3, frequencies="sums", random_state=0),
        data=EVENTS,
        other_data=OTHER_EVENTS,
        fits_sentences=False,
        has_transform=False,
        has_score=False,
    ),
]
