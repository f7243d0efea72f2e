"""One BLAS thread while our own code computes.

With more, sums are cut by the number of threads and their last bits follow it; and small and middling products are
slower, up to ten times on a busy machine where BLAS threads wait for each other. Work is spread over cores by chunks
side by side (`n_jobs`, engines), each with one BLAS thread, which changes no bit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


class _Limit:
    """The limit shared by all threads of this process: set when the first enters, reset when the last leaves."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n_inside = 0
        self.kept: Any = None

    def enter(self) -> None:
        libraries = _libraries()
        with self.lock:
            if self.n_inside == 0:
                _take_control()
                self.kept = libraries.limit(limits=1, user_api="blas")
            self.n_inside += 1

    def leave(self) -> None:
        with self.lock:
            self.n_inside -= 1
            if self.n_inside == 0:
                _take_control()
                self.kept.restore_original_limits()
                _take_control()  # and leave it to others
                self.kept = None


_limit = _Limit()


@cache
def _libraries() -> Any:
    import scipy.linalg  # noqa: F401  # its BLAS must be loaded to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _take_control() -> None:
    """Let this thread set limits: threadpoolctl ≥ 3.8 obeys only one thread, and the last to leave may be another."""
    from threadpoolctl import OpenBLASController

    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS with one thread inside the block; the former number is restored when the last caller leaves."""
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()
