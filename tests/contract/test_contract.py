"""Every estimator through every check that its capabilities call for."""

from __future__ import annotations

import pytest

from contract.cases import CASES, Case
from contract.checks import CHECKS, Check

RUNS = [
    pytest.param(check, case, id=f"{case.name}-{check.__name__.removeprefix('check_')}")
    for case in CASES
    for check, needs in CHECKS
    if all(getattr(case, need) for need in needs)
]


@pytest.mark.parametrize(("check", "case"), RUNS)
def test_contract(check: Check, case: Case) -> None:
    check(case)
