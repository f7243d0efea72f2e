"""The model that a verb is asked about."""

from __future__ import annotations

from typing import Any

from undertow.errors import InputError


def open_model(path: str, *abilities: str) -> Any:
    """Load a model that has the methods a verb needs, or say in a sentence that it has not."""
    from undertow.storage import load_model

    model = load_model(path)
    for ability in abilities:
        if not hasattr(type(model), ability):
            raise InputError(f"{path} is a model of the kind {model.kind!r}, which has no {ability.replace('_', ' ')}.")
    return model
