"""Affixes of words: what they are, and how they count."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from undertow.models.hmm.spelling import affixes, affixes_of


def test_affixes_are_prefixes_suffixes_the_lower_case_form_and_kinds() -> None:
    assert affixes_of("Gone") == {
        "prefix G", "prefix Go", "prefix Gon", "suffix e", "suffix ne", "suffix one", "lower gone",
        "kinds (False, True, False, False)",
    }  # fmt: skip
    assert affixes_of("A-1") == {
        "prefix A", "prefix A-", "suffix 1", "suffix -1", "kinds (True, True, True, True)"
    }  # fmt: skip
    assert {a for a in affixes_of("unmoved") if not a.startswith("kinds")} == {
        "prefix u", "prefix un", "prefix unm", "suffix d", "suffix ed", "suffix ved", "suffix oved", "lower unmoved"
    }  # fmt: skip
    assert "kinds (False, True, False, False)" in affixes_of("McDonald")
    assert affixes_of("") == {"kinds (False, False, False, False)"}


def test_words_share_the_affixes_that_five_of_them_have() -> None:
    words = ["going", "being", "doing", "seeing", "lying", "sky"]
    assert affixes(words[:4]).nnz == 0  # four are too few
    found = affixes(words).toarray()
    assert found.shape == (6, 4)  # suffixes g, ng and ing, and what kinds of characters all have
    assert_allclose((found**2).sum(axis=1), 1, rtol=1e-6)
    assert (found[:5] > 0).sum() > (found[5:] > 0).sum()
    assert np.array_equal(found[0], found[2])  # "oing" is in two words only
    assert affixes(["a"]).shape == (1, 1) and affixes([]).shape == (0, 1)
