"""Compiled functions chosen by the type of their first argument, so that one loop serves several kinds of chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.extending import overload


def implement(kind: type, functions: dict[Callable[..., Any], Callable[..., Any]]) -> None:
    """Let compiled code call these generic functions with a NamedTuple of this type first: generic → implementation.

    Both are plain Python functions; Numba inlines the implementation in its caller, which costs no call. The compiled
    caller is kept until its own file changes: after editing an implementation in another file, touch that one.
    """
    for generic, implementation in functions.items():
        overload(generic, strict=False, inline="always")(_only_for(kind, implementation))


def _only_for(kind: type, implementation: Callable[..., Any]) -> Callable[..., Any]:
    def choose(first: Any, *_: Any) -> Any:
        return implementation if getattr(first, "instance_class", None) is kind else None

    return choose
