"""Fit every model of the contract, and larger ones for which BLAS uses threads, and write all bytes to a directory.

    python tests/contract/blas_fits.py DIRECTORY

Run by test_blas_threads.py in two processes whose BLAS has one and two threads.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from contract.cases import CASES, Case, small
from undertow import HMM, LDS, ContextVectors, DynamicEmbedding, FactorialHMM, Grammar, PMIVectors
from undertow.results import WordClusters


def text(n_words: int = 500, n_sentences: int = 400) -> list[list[str]]:
    """Sentences in which words follow each other in patterns, so that there is something to learn."""
    rng = np.random.default_rng(0)
    p = 1 / np.arange(1, n_words + 1)
    words = rng.choice(n_words, (n_sentences, 20), p=p / p.sum())
    words[:, 1::2] = (words[:, ::2] * 7 + rng.integers(0, 3, words[:, ::2].shape)) % n_words
    lines = [[f"w{w}" for w in line] for line in words]
    return [
        *lines,
        [word for line in lines[:5] for word in line],
    ]  # a long one, the last of whose tokens go through BLAS one at a time


def events() -> list[tuple[int, str, str, float]]:
    rng = np.random.default_rng(1)
    rows, columns = rng.random((3, 120)), rng.random((3, 150))
    found = []
    for t in range(3):
        counts = rng.poisson(3 * np.exp(-8 * (rows[t][:, None] - columns[t]) ** 2))
        found += [(2000 + t, f"r{i}", f"c{j}", float(counts[i, j])) for i, j in zip(*np.nonzero(counts), strict=True)]
    return found


TEXT = text()
LARGE = [
    Case("large-lds", small(LDS, n_components=64, n_iter=2, random_state=0), data=TEXT),
    Case("large-clusters", small(WordClusters, n_clusters=32, random_state=0), data=TEXT, has_transform=False),
    Case("large-context", small(ContextVectors, random_state=0), data=TEXT, has_score=False),
    Case("large-pmi", small(PMIVectors, n_components=64, random_state=0), data=TEXT, has_score=False),
    Case("large-fhmm", small(FactorialHMM, n_layers=3, n_states=6, n_iter=2, init="lds", random_state=0), data=TEXT),
    Case("large-dense", small(HMM, n_states=192, n_iter=2, random_state=0), data=TEXT),
    Case("large-rank", small(HMM, n_states=192, rank=96, init="clusters", n_iter=2, random_state=0), data=TEXT),
    Case("large-band", small(HMM, n_states=192, rank=96, band=4, n_iter=2, random_state=0), data=TEXT),
    Case("large-blocks", small(HMM, n_states=640, n_blocks=8, init="spectral", n_iter=2, random_state=0), data=TEXT),
    Case(
        "large-block-rank",
        small(HMM, n_states=640, n_blocks=4, rank=96, init="spectral", n_iter=2, random_state=0),
        data=TEXT,
    ),
    Case(
        "large-grammar",
        small(Grammar, n_nonterminals=100, n_preterminals=150, rank=96, n_restarts=2, n_iter=2, random_state=0),
        data=TEXT,
    ),
    Case(
        "large-dynamic",
        small(DynamicEmbedding, n_iter=2, random_state=0),
        data=events(),
        has_transform=False,
        has_score=False,
    ),
]


def answers(case: Case, model: Any) -> dict[str, Any]:
    found = {}
    if case.has_transform:
        found["transform"] = np.concatenate(model.transform(case.data))
    if case.has_score and not isinstance(model, WordClusters):
        found["score"] = np.array(model.score(case.data))
    return found


def main(directory: Path) -> None:
    for case in [*CASES, *LARGE]:
        model = case.fitted()
        model.save(directory / case.name)
        for name, values in answers(case, model).items():
            np.save(directory / f"{case.name}.{name}.npy", values)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
