"""Small fitted models for the pages, with words that would be markup if a page took them for it."""

from __future__ import annotations

from functools import cache
from typing import Any

from html_page import HOSTILE_WORD
from undertow import HMM, LDS, DynamicEmbedding, FactorialHMM, Grammar
from undertow.results import WordClusters
from undertow.results.tagging import CRFTagger

LINES = [
    "the cat sat on the mat",
    "the dog sat on the bank of the river",
    "a bank lends money to the people",
    "the river flows to the sea",
    "a dog ran to the people on the bank",
]
TEXT = [s.split() for s in ("the dog ran to the sea", "a cat lends the unheard money")]


def sentences(hostile: bool) -> list[list[str]]:
    text = [line.split() for line in LINES] * 8
    return [[HOSTILE_WORD if w == "bank" else w for w in s] for s in text] if hostile else text


KINDS = ("hmm-blocks", "hmm-dense", "hmm-low-rank", "fhmm", "lds", "clusters", "tagger", "grammar", "dynamic")


@cache
def fitted(kind: str, hostile: bool = False) -> Any:
    text = sentences(hostile)
    common: dict[str, Any] = {"random_state": 0}
    if kind.startswith("hmm"):
        sizes = {
            "hmm-blocks": {"n_states": 8, "n_blocks": 4},
            "hmm-dense": {"n_states": 5, "n_blocks": 1},
            "hmm-low-rank": {"n_states": 6, "n_blocks": 1, "rank": 3},
        }[kind]
        return HMM(**sizes, n_iter=3, n_chunks=2, validation=0.2, **common).fit(text)
    if kind == "fhmm":
        return FactorialHMM(n_layers=2, n_states=3, n_iter=3, validation=0.2, **common).fit(text)
    if kind == "lds":
        return LDS(4, n_iter=3, n_full=1, lags=3, ssid_lags=2, kappa=1.0, min_count=1, **common).fit(text)
    if kind == "clusters":
        return WordClusters(4, **common).fit(text)
    if kind == "grammar":
        return Grammar(3, n_preterminals=5, n_iter=2, **common).fit(text)
    if kind == "tagger":
        return CRFTagger(n_iter=5).fit(text, [["X" if w == "the" else w[:1] for w in s] for s in text])
    events = [(year, w, s[0], 1.0 + year % 3) for year in (2001, 2002) for s in text[:5] for w in s[1:]]
    return DynamicEmbedding(n_iter=2, **common).fit(events)
