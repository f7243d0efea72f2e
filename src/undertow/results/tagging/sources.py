"""From what a caller gives as the features of a tagger, models or representations, to a list of representations."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np

from undertow.errors import InputError
from undertow.models.base import Estimator
from undertow.results.tagging.model_features import ModelFeatures
from undertow.results.tagging.representation import Paths, Posteriors, States, Vectors
from undertow.results.tagging.token_features import Representation

MOST_POSTERIORS = 512  # with more states, a model given by itself is read by its most likely states

FeatureSources = Estimator | Representation | Sequence[Estimator | Representation] | None
ADAPTERS: dict[str, type[ModelFeatures]] = {c.adapter: c for c in (Vectors, States, Posteriors, Paths)}


def as_representation(
    source: Any,
    view: str | None = None,
    *,
    scale: float | None = None,
    window: int | None = None,
    pieces: bool = False,
    casing: str | None = None,
) -> Representation:
    """A representation as it is; a model in the adapter that `view` names, or in the default one, with these options.

    Without a view, a model with cluster paths is read by `Paths`; one with states by `Posteriors`, or by `States` if
    they are many or it has no posterior; any other by `Vectors`. The views "states" (or "viterbi"), "posterior" and
    "path" name the adapters; any other is a view of the model's vectors.
    """
    if not isinstance(source, Estimator):
        if isinstance(source, Representation):
            return source
        raise InputError(
            f"features={type(source).__name__} is neither a fitted model nor a representation, an object with a name "
            "and features(sentences)."
        )
    options: dict[str, Any] = {"pieces": pieces, "casing": casing, "scale": 1.0 if scale is None else scale}
    options |= {} if window is None else {"window": window}
    if view in ("states", "viterbi") and hasattr(source, "decode"):
        knows_viterbi = "method" in signature(source.decode).parameters
        return States(source, method="viterbi" if view == "viterbi" and knows_viterbi else None, **options)
    named: dict[str | None, type[ModelFeatures]] = {"posterior": Posteriors, "path": Paths}
    if view in named and hasattr(source, named[view].ability):
        return named[view](source, **options)
    if view is None:
        few = np.max(getattr(source, "n_states", 0)) <= MOST_POSTERIORS  # layers may have a number each
        adapters: list[type[ModelFeatures]] = [Paths, Posteriors, States] if few else [Paths, States]
        for adapter in adapters:
            if hasattr(source, adapter.ability):
                return adapter(source, **options)
    return Vectors(source, view, **options)


def as_representations(features: Any, *, vectors: bool = False) -> list[Representation]:
    """Representations from the parameter `features` of a tagger: None, one of them or a model, or a list of these.

    With `vectors`, models that have vectors are read by `Vectors`.
    """
    if features is None:
        return []
    out = [
        Vectors(f) if vectors and isinstance(f, Estimator) and hasattr(f, "transform") else as_representation(f)
        for f in (features if isinstance(features, list | tuple) else [features])
    ]
    names = [r.name for r in out]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"Two representations are called {name!r}: give each its own, with name=.")
    return out
