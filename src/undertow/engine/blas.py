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

_lock = threading.Lock()
_inside = 0  # callers that are inside now, in all threads
_limit: Any = None  # what the first of them set, and the last one takes back


@cache
def _libraries() -> Any:
    import scipy.linalg  # noqa: F401  # its BLAS must be loaded to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _take_control() -> None:
    """Let this thread set limits: threadpoolctl ≥ 3.8 obeys one thread alone, and the last to leave may be another."""
    from threadpoolctl import OpenBLASController

    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Every BLAS of this process runs in its caller's thread inside, and as before when the last caller has left."""
    global _inside, _limit
    with _lock:
        if _inside == 0:
            libraries = _libraries()
            _take_control()
            _limit = libraries.limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _take_control()
                _limit.restore_original_limits()
                _take_control()  # and leave it to others
                _limit = None
