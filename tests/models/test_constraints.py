"""Constraints of parameters: what each accepts, and what it says of the rest."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from undertow.errors import InputError, UndertowError
from undertow.models.base import Estimator
from undertow.models.constraints import Choice, Constraint, Flag, Number, Share, Verbosity, Whole, Wholes
from undertow.results.tagging import CRFTagger, LocalTagger


@pytest.mark.parametrize(
    ("constraint", "good", "bad", "sentence"),
    [
        (Whole(1, 9), [1, 9, np.int64(3)], [0, 1.0, True, "3", None], "M: p=0 must be a whole number, at least 1."),
        (Whole(1, 9), [], [10], "M: p=10 must be a whole number, at most 9."),
        (Whole(1) | None, [None, 2], [0, "x"], "M: p=0 must be a whole number, at least 1."),
        (
            Wholes(1, 9),
            [1, 9, [2, 3], (4,), [np.int64(3)]],
            [0, [], [0, 2], [[2]], "3", [1.5], (10,), np.ones(2, int)],
            "M: p=0 must be a whole number, at least 1.",
        ),
        (Wholes(1, 9), [], [[2, 0]], "M: p[1]=0 must be a whole number, at least 1."),
        (Number(0, 1), [0, 1, 0.5, np.float32(0.25)], [2, -0.1, True, "0.5", None], "must be a number from 0 to 1."),
        (Share(), [None, 0.5], [0, 1, "a", True], "M: p=0 must be a share between 0 and 1, or None."),
        (Choice("a", "b"), ["a", "b"], ["c", None, 1], "M: p='c' must be one of a, b."),
        (Flag(), [True, False, np.bool_(True)], [1, "yes", None], "M: p=1 must be True or False."),
        (Verbosity(), [True, 0, 2], [-1, "yes", None, 0.5], "M: p=-1 must be True or False."),
    ],
)
def test_constraint(constraint: Constraint, good: list[Any], bad: list[Any], sentence: str) -> None:
    for value in good:
        constraint.check("M", "p", value)
    for i, value in enumerate(bad):
        with pytest.raises(InputError, match=re.escape(sentence) if i == 0 else r"^M: p(\[0\])?="):
            constraint.check("M", "p", value)


@pytest.mark.parametrize("tagger", [CRFTagger, LocalTagger])
def test_every_parameter_of_a_tagger_has_a_constraint(tagger: type[Estimator]) -> None:
    assert set(tagger.constraints) == set(tagger.param_defaults())
    for name in tagger.constraints:
        with pytest.raises(UndertowError):
            tagger(**{name: object()})._check_params()
