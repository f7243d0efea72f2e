"""Networks on or from undertow's models; they need PyTorch, the extra `torch`."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from undertow.errors import missing_extra

if TYPE_CHECKING:
    from undertow.neural.rnn_lm import RNNLM
    from undertow.neural.token_vectors import PaddedTokens, TokenVectors

__all__ = ["RNNLM", "PaddedTokens", "TokenVectors"]

# checked without importing PyTorch, which takes seconds; importing any module of this package comes through here
if importlib.util.find_spec("torch") is None:
    raise missing_extra("Neural models need PyTorch", "torch")

_MODULES = {
    "RNNLM": "undertow.neural.rnn_lm",
    "PaddedTokens": "undertow.neural.token_vectors",
    "TokenVectors": "undertow.neural.token_vectors",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: PyTorch is slow to import."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
