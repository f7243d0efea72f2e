"""The BLAS of this process runs in one thread while our own threads work, and as before afterwards."""

from __future__ import annotations

import threading

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from undertow.engine.blas import one_blas_thread


def blas_threads() -> list[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_one_inside_and_as_before_afterwards() -> None:
    with one_blas_thread():
        pass  # the libraries are found and loaded here
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        assert before and all(n == 2 for n in before)
        with one_blas_thread():
            assert all(n == 1 for n in blas_threads())
            with one_blas_thread():
                assert all(n == 1 for n in blas_threads())
            assert all(n == 1 for n in blas_threads())
        assert blas_threads() == before


def test_it_ends_with_the_last_of_several_threads() -> None:
    """A thread that leaves first must not give threads back to one that is still inside."""
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with one_blas_thread():
            entered.set()
            leave.wait(60)

    with threadpool_limits(2, user_api="blas"):
        other = threading.Thread(target=stay)
        with one_blas_thread():
            other.start()
            assert entered.wait(60)
        still = blas_threads()
        leave.set()
        other.join()
        assert all(n == 1 for n in still) and all(n == 2 for n in blas_threads())
