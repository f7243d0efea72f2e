"""How tests wait: for a condition, with a limit that only what never comes can reach."""

from __future__ import annotations

import time
from collections.abc import Callable

# Seconds after which what we wait for counts as never coming: far more than a busy machine needs.
HANGS = 300.0


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until the condition holds; fail when it never does."""
    deadline = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
