"""The taggers under the contract of every estimator: saved and loaded whole, damaged files, clones, bad input."""

from __future__ import annotations

from typing import Any

import pytest

from contract.cases import SENTENCES, Case, small
from contract.checks import CHECKS, Check
from undertow import LDS
from undertow.results.tagging import CRFTagger, LocalTagger, Tagger, Vectors
from undertow.results.tagging.base import checked_words
from undertow.storage import register

MODEL = LDS(3, n_iter=2, n_full=1, lags=3, ssid_lags=2, kappa=1.0, random_state=0).fit(SENTENCES)


def tags_for(X: Any) -> tuple[list[list[str]], list[list[str]]]:
    """Tags that the words themselves give: the contract knows no y."""
    sentences = checked_words(X)
    return sentences, [["vowel" if word[0] in "aeiou" else "other" for word in s] for s in sentences]


@register
class SelfTaughtLocal(LocalTagger):
    kind = "self-taught-local"

    def fit(self, X: Any, y: Any = None) -> Any:
        return super().fit(*tags_for(X))


@register
class SelfTaughtCRF(CRFTagger):
    kind = "self-taught-crf"

    def fit(self, X: Any, y: Any = None) -> Any:
        return super().fit(*tags_for(X))


@register
class SelfTaughtTagger(Tagger):
    kind = "self-taught-tagger"

    def fit(self, X: Any, y: Any = None) -> Any:
        return super().fit(*tags_for(X))


local = Case(
    "local-tagger",
    small(SelfTaughtLocal, features=[Vectors(MODEL)], n_iter=3, random_state=0),
    has_transform=False,
    has_score=False,
)
crf = Case(
    "crf-tagger",
    small(SelfTaughtCRF, features=[Vectors(MODEL)], n_iter=4),
    has_transform=False,
    has_score=False,
    uses_randomness=False,
)
batches = Case(
    "crf-tagger-minibatch",
    small(SelfTaughtCRF, features=[Vectors(MODEL)], n_iter=3, algorithm="minibatch", batch_size=8, random_state=0),
    has_transform=False,
    has_score=False,
)
network = Case(
    "crf-tagger-network",
    small(SelfTaughtCRF, features=[Vectors(MODEL)], n_iter=3, n_hidden=3, random_state=0),
    has_transform=False,
    has_score=False,
)
tagger = Case(
    "tagger",
    small(SelfTaughtTagger, representation=[Vectors(MODEL)], n_iter=4, n_hidden=3, validation=None, random_state=0),
    has_transform=False,
    has_score=False,
)
PAIRS = [
    pytest.param(check, case, id=f"{case.name}-{check.__name__}")
    for case in (local, crf, batches, network, tagger)
    for check, needs in CHECKS
    if all(getattr(case, need) for need in needs)
]


@pytest.mark.parametrize(("check", "case"), PAIRS)
def test_contract(check: Check, case: Case) -> None:
    check(case)
