from __future__ import annotations

import math

import pytest

from undertow import Corpus, LagCounts
from undertow.errors import InputError
from undertow.results.pairs import strongest_pairs


def test_gain_is_the_share_of_the_mutual_information() -> None:
    counts = LagCounts.from_corpus(Corpus.from_sentences([["a", "b"]] * 6 + [["c", "d"]] * 2), lags=1)
    rare, common = strongest_pairs(counts, 1, min_count=1)
    assert (common.first, common.second, common.times) == ("a", "b", 6)
    assert common.gain == pytest.approx(6 / 8 * math.log(6 * 8 / (6 * 6)), rel=1e-12)
    assert rare.gain == pytest.approx(2 / 8 * math.log(2 * 8 / (2 * 2)), rel=1e-12)


def test_selection() -> None:
    counts = LagCounts.from_corpus(Corpus.from_sentences([["a", "b"]] * 6 + [["c", "d"]] * 2, vocab_size=4), lags=2)
    assert [p.first for p in strongest_pairs(counts, 1, min_count=3)] == ["a"]
    assert strongest_pairs(counts, 1, word="b", min_count=1)[0].first == "a"
    assert all("<unk>" not in p for p in strongest_pairs(counts, 1, min_count=1))
    assert strongest_pairs(counts, 2) == []
    with pytest.raises(InputError):
        strongest_pairs(counts, 1, word="nowhere")
