"""Load the model that a command was given."""

from __future__ import annotations

from typing import Any

from undertow.cli.common import say
from undertow.cli.compiling import say_when_compiling
from undertow.errors import InputError


def open_model(path: str, *abilities: str) -> Any:
    """Load a model that has the methods a command needs; an error names the kinds that have them."""
    from undertow.storage import load_model

    say_when_compiling(say)
    model = load_model(path)
    for ability in abilities:
        if not hasattr(type(model), ability):
            able = ", ".join(kinds_with(ability))
            raise InputError(
                f"{path} is a model of the kind {model.kind!r}, which has no {ability.replace('_', ' ')}: give one of "
                f"the kind {able}."
            )
    return model


def kinds_with(ability: str) -> list[str]:
    """The kinds of models that have a method."""
    from undertow.storage import classes

    return sorted(kind for kind, model_class in classes().items() if hasattr(model_class, ability))
