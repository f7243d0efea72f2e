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
        self.former: list[tuple[Any, int]] = []  # libraries with more than one thread, and with how many

    def enter(self) -> None:
        libraries = _libraries()
        with self.lock:
            if self.n_inside == 0:
                self.former = [(library, n) for library in libraries if (n := library.num_threads) not in (None, 1)]
                self._set([(library, 1) for library, _ in self.former])
            self.n_inside += 1

    def leave(self) -> None:
        with self.lock:
            self.n_inside -= 1
            if self.n_inside == 0:
                self._set(self.former)
                self.former = []

    def _set(self, numbers: list[tuple[Any, int]]) -> None:
        if numbers:
            _take_control()
            for library, n in numbers:
                library.set_num_threads(n)
            _take_control()  # and leave it to others


_limit = _Limit()


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of this process; threadpoolctl's own limits cost more than a small query."""
    import scipy.linalg  # noqa: F401  # its BLAS must be loaded to be found
    from threadpoolctl import ThreadpoolController

    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


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
