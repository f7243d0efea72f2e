"""Compiled functions chosen by the type of their first argument, so that one loop serves several kinds of chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils as _cgutils
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array as _make_array

cgutils: Any = _cgutils  # numba's own helpers are not typed
make_array: Any = _make_array


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


def _borrowed(typing_context: Any, value: Any) -> Any:
    """The same array, or tuple of arrays and numbers, without its reference counts.

    For arguments of a compiled function, which its caller keeps alive, and for nothing else. Binding the parameters of
    an inlined function counts each array in and out by atomic operations, which takes longer than a step of a chain of
    a few states.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _without_owner(context, builder, signature.args[0], args[0])

    return value(value), generate


borrowed: Any = intrinsic(_borrowed)  # called with the value alone


def _without_owner(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.BaseTuple):
        kinds: Any = kind
        parts = cgutils.unpack_tuple(builder, value, len(kinds))
        borrowed_parts = [_without_owner(context, builder, k, v) for k, v in zip(kinds, parts, strict=True)]
        return context.make_tuple(builder, kind, borrowed_parts)
    if isinstance(kind, types.Array):
        array = make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()
    return value
