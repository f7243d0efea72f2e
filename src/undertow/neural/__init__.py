"""What needs PyTorch (the extra `torch`): networks that start from undertow's models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.errors import InputError

if TYPE_CHECKING:
    from undertow.neural.rnn_lm import RNNLM

__all__ = ["RNNLM"]

_HOMES = {"RNNLM": "undertow.neural.rnn_lm"}


def __getattr__(name: str) -> Any:
    """Each name is imported when it is asked for, so that nothing needs PyTorch before."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise InputError(f"undertow.neural.{name} needs PyTorch: pip install 'undertow[torch]'.")
    return getattr(importlib.import_module(_HOMES[name]), name)
