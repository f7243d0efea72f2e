"""A fitted model packed into the directory of a tagger: tensors under a prefix, words as bytes, the rest as JSON.

A tagger saves the models whose features it reads, so that its directory can be copied anywhere. The checks are those of
a model directory: the class says which tensors there are before any of them is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.errors import FormatError
from undertow.models.base import Estimator, SavedState, TensorSpec
from undertow.storage import checked_tensors, find_class, json_value, restore, saved_params
from undertow.text.vocabulary import Vocabulary

WORDS = "vocabulary"
Tensors = dict[str, npt.NDArray[Any]]
_KEYS = {"kind", "format_version", "params", "fitted", "history", "n_words", "vocabulary_bytes"}


def pack(model: Estimator, prefix: str) -> tuple[dict[str, Any], Tensors]:
    """The model as a JSON object and tensors whose names begin with `prefix`."""
    model._check_fitted()
    model._check_params()
    vocabulary: Vocabulary | None = vars(model).get("vocabulary_")
    words = None if vocabulary is None else np.frombuffer(vocabulary.to_bytes(), dtype=np.uint8)
    n_words = None if vocabulary is None else len(vocabulary)
    state = SavedState(saved_params(model), json_value(model._fitted_scalars(), "a fitted value"), n_words)
    tensors = {f"{prefix}{name}": tensor for name, tensor in checked_tensors(model, state).items()}
    if words is not None:
        tensors[f"{prefix}{WORDS}"] = words
    record = {
        "kind": model.kind,
        "format_version": model.format_version,
        **_record_of(state),
        "history": json_value(list(model.history_), "history_"),
        "vocabulary_bytes": None if words is None else len(words),
    }
    return record, tensors


def packed_spec(record: Mapping[str, Any], prefix: str) -> dict[str, TensorSpec]:
    """The tensors that a packed model must have; as in `unpack`, a bad record may raise any exception."""
    model_class, state = _class_of(record), _state_of(record)
    spec = {f"{prefix}{name}": tensor for name, tensor in model_class._tensor_spec(state).items()}
    if state.n_words is not None:
        spec[f"{prefix}{WORDS}"] = TensorSpec("uint8", (record["vocabulary_bytes"],))
    return spec


def unpack(record: Mapping[str, Any], tensors: Mapping[str, npt.NDArray[Any]], prefix: str) -> Estimator:
    """The model that `pack` packed, checked as a model directory is."""
    model_class, state = _class_of(record), _state_of(record)
    model = model_class(**state.params)
    model._check_params()
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if state.n_words is not None:
        model.vocabulary_ = Vocabulary.from_bytes(own.pop(WORDS).tobytes(), Path(WORDS))
        if len(model.vocabulary_) != state.n_words:
            raise FormatError(f"It has {len(model.vocabulary_)} words, not {state.n_words}.")
    restore(model, own, state, record["history"])
    return model


def upgrade(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a packed model that an earlier version wrote, as this version writes it."""
    return {**record, **_record_of(_class_of(record)._upgrade(_state_of(record)))}


def _class_of(record: Mapping[str, Any]) -> type[Estimator]:
    if set(record) != _KEYS:
        raise FormatError("The record of a model inside it does not have the keys that undertow writes.")
    return find_class(
        Path(f"the model of the kind {record['kind']!r} inside"), record["kind"], record["format_version"]
    )


def _record_of(state: SavedState) -> dict[str, Any]:
    return {"params": state.params, "fitted": state.fitted, "n_words": state.n_words}


def _state_of(record: Mapping[str, Any]) -> SavedState:
    return SavedState(record["params"], record["fitted"], record["n_words"])
