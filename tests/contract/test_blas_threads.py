"""Fits and answers do not depend on how many threads BLAS has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from contract.blas_fits import CASES, LARGE

ROOT = Path(__file__).parents[2]


def files(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def test_bytes_do_not_depend_on_the_threads_of_blas(tmp_path: Path) -> None:
    """The large cases have products above OpenBLAS's threshold of 2^18 multiplications."""
    running = []
    for n in ("1", "2"):
        (tmp_path / n).mkdir()
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), n)
        script = [sys.executable, str(ROOT / "tests" / "contract" / "blas_fits.py"), str(tmp_path / n)]
        running.append(subprocess.Popen(script, env={**os.environ, **threads, "PYTHONPATH": paths}))
    assert [process.wait() for process in running] == [0, 0]
    one, two = files(tmp_path / "1"), files(tmp_path / "2")
    assert {name.split("/")[0].split(".")[0] for name in one} == {case.name for case in [*CASES, *LARGE]}
    assert set(one) == set(two)
    assert [name for name in one if one[name] != two[name]] == []
