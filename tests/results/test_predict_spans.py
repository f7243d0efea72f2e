"""The probabilities of spans that a tagger gives, against those of all taggings of short sentences."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from undertow.errors import InputError
from undertow.results.tagging import CRFTagger, Span, Tagger, convert, spans_of

WORDS = [["Ann", "Lee", "left", "Rome"], ["Rome", "fell"], ["Lee", "saw", "old", "Rome"], ["we", "left"]] * 3
TAGS = [["B-per", "I-per", "O", "B-loc"], ["B-loc", "O"], ["B-per", "O", "B-loc", "I-loc"], ["O", "O"]] * 3
NEW = [["Ann", "saw", "Rome"], [], ["Lee", "Lee"], ["unseen"], ["we", "saw", "old", "Ann"]]


def by_taggings(tagger: Any, words: list[list[str]]) -> list[dict[Span, float]]:
    """The summed probabilities of the tag sequences that have each span."""
    out = []
    for found in tagger.predict_nbest(words, n=10_000):
        sums: dict[Span, float] = defaultdict(float)
        for tags, log_p in found:
            for span in spans_of(tags):
                sums[span] += float(np.exp(log_p))
        assert sum(np.exp(log_p) for _, log_p in found) == pytest.approx(1)
        out.append(dict(sums))
    return out


@pytest.mark.parametrize("scheme", [None, "bioes"])
@pytest.mark.parametrize("written", ["iob1", "iob2", "bilou"])
def test_probabilities_are_sums_over_all_taggings(scheme: str | None, written: str) -> None:
    tagger = CRFTagger(scheme=scheme, n_iter=5).fit(WORDS, convert(TAGS, written))
    expected = by_taggings(tagger, NEW)
    for found, truth in zip(tagger.predict_spans(NEW, least=1e-6), expected, strict=True):
        assert dict(found) == pytest.approx({s: p for s, p in truth.items() if p >= 1e-6}, rel=1e-4)
        places = [(span.start, span.end, span.type) for span, _ in found]
        assert places == sorted(places)
    some = tagger.predict_spans(NEW, least=0.2)
    assert [dict(s) for s in some] == [
        pytest.approx({s: p for s, p in truth.items() if p >= 0.2}, rel=1e-4) for truth in expected
    ]
    assert 0 < sum(map(len, some)) < sum(map(len, expected))


def test_sentences_in_several_batches_are_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    tagger = CRFTagger(n_iter=5).fit(WORDS, TAGS)
    alone = [tagger.predict_spans([s])[0] for s in NEW]
    monkeypatch.setattr("undertow.results.tagging.crf.PREDICT_TOKENS", 4)
    assert tagger.predict_spans(NEW) == alone


def test_a_tagger_gives_those_of_its_crf() -> None:
    tagger = Tagger(None, n_iter=10, validation=None).fit(WORDS, TAGS)
    assert tagger.predict_spans(NEW) == tagger.crf_.predict_spans(NEW)
    [(span, p)] = tagger.predict_spans([["Rome", "fell"]], least=0.5)[0]
    assert span == Span("loc", 0, 1) and 0.5 < p < 1


def test_wrong_input_is_named() -> None:
    plain = CRFTagger(n_iter=3).fit([["the", "dog"]], [["D", "N"]])
    with pytest.raises(InputError, match="mark no spans"):
        plain.predict_spans(NEW)
    tagger = CRFTagger(n_iter=3).fit(WORDS, TAGS)
    for least in (0.0, 1.5, "most"):
        with pytest.raises(InputError, match="least"):
            tagger.predict_spans(NEW, least=least)  # type: ignore[arg-type]
