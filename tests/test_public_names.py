"""What `import undertow` offers, and that it is imported lazily."""

from __future__ import annotations

import subprocess
import sys

import pytest

import undertow
from undertow.results.context_vectors import ContextVectors
from undertow.results.interpolation import Interpolation
from undertow.results.pmi_vectors import PMIVectors
from undertow.results.tagging import CRFTagger, LocalTagger, Tagger
from undertow.results.word_clusters import WordClusters


@pytest.mark.parametrize(
    "expected", [ContextVectors, Interpolation, PMIVectors, WordClusters, CRFTagger, LocalTagger, Tagger]
)
def test_results_can_be_imported_from_the_package(expected: type) -> None:
    assert getattr(undertow, expected.__name__) is expected
    assert expected.__name__ in dir(undertow) and expected.__name__ in undertow.__all__


def test_every_public_name_exists() -> None:
    for name in undertow.__all__:
        assert getattr(undertow, name) is not None


def test_importing_the_package_loads_no_scientific_library() -> None:
    code = "import sys, undertow; print([m for m in ('numpy', 'scipy', 'numba', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
