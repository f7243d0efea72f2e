"""One BLAS thread while our own threads work.

Small and middling products are slower with more, up to ten times on a busy machine where BLAS threads wait for each
other, and chunks side by side, each with one, beat one chunk with all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@cache
def _libraries() -> Any:
    import scipy.linalg  # noqa: F401  # its BLAS must be loaded to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Every BLAS of this process runs in its caller's thread inside, and as before afterwards."""
    with _libraries().limit(limits=1, user_api="blas"):
        yield
