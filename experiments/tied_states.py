"""The state embeddings of a tied HMM, weighted by the posterior of the states: what tagging_representations.py tried.

A fitted `HMM` keeps the tables that embeddings gave, not the embeddings. Here they are taken from the last pass and
kept beside the model. Of a state z of block b there are three vectors: leave_z for what comes next, block_b + arrive_z
for what came before, and emit_z for the words of its block (`kernels/chain/embeddings.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from representations import kept, key_of
from source_key import TAGGERS, work_of
from undertow import HMM, Corpus
from undertow.models.hmm import embedded


class StateVectors:
    """Posterior-weighted means of vectors of states, in the form that `Vectors` reads."""

    kind = "tied-hmm"

    def __init__(self, model: Any, rows: Any) -> None:
        self.model, self.vocabulary_, self.tokenizer_ = model, model.vocabulary_, model.tokenizer_
        self.rows = rows

    def transform(self, X: Any) -> list[Any]:
        return [p @ self.rows for p in self.model.posterior(X)]


def tied_states(corpus: Corpus, n_states: int, width: int, work: Path, *, seed: int = 0, n_iter: int = 6) -> Any:
    """A tied HMM with the vectors of its states (n_states, 3 · width): centred, of unit length on average."""
    key = f"tied-{n_states}-{width}-{seed}-{n_iter}-{key_of(corpus)}"
    path = work_of(work, __file__, without=TAGGERS) / f"{key}.npz"

    def fit() -> Any:
        last: list[embedded.EmbeddedState] = []
        epochs = embedded.embedded_epochs

        def watched(*given: Any) -> Iterator[Any]:
            for iteration in epochs(*given):
                last[:] = [iteration.state()]  # type: ignore[misc]
                yield iteration

        with mock.patch.object(embedded, "embedded_epochs", watched):
            model = HMM(
                n_states, parameterization="neural", width=width, n_iter=n_iter, random_state=seed, n_jobs=1
            ).fit(corpus)
        [state] = last
        block = np.repeat(np.arange(len(state.first) - 1), np.diff(state.first))
        weights = state.weights
        np.savez(path, leave=weights.leave, arrive=weights.block[block] + weights.arrive, emit=weights.emit)
        return model

    model = kept(work, key, fit, __file__).model
    with np.load(path) as z:
        parts = [centred(z[name]) for name in ("leave", "arrive", "emit")]
    return StateVectors(model, centred(np.hstack(parts)))


def centred(rows: Any) -> Any:
    """The rows less their mean, of unit length on average."""
    rows = rows - rows.mean(0)
    return (rows / np.sqrt((rows**2).sum(1).mean())).astype(np.float32)
