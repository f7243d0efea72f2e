"""A line that says that loops are compiled.

Numba compiles a loop when it is first called and keeps the result on disk, so a cold start takes up to a minute in
which nothing else would be seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

NOTICE = "compiling loops for this machine, at first use only; this may take a minute …"

_said = False
_waiting = False  # for the first compilation


def say_when_compiling(say: Callable[[str], None]) -> None:
    """Print a line when Numba first compiles something, once, if standard error is a terminal."""
    global _said, _waiting  # noqa: PLW0603  # once a process
    if _said or not sys.stderr.isatty():
        return
    _said = _waiting = True
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc,unused-ignore]
        def on_start(self, event: Any) -> None:
            global _waiting  # noqa: PLW0603
            if _waiting:
                _waiting = False
                say(NOTICE)

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call,unused-ignore]
