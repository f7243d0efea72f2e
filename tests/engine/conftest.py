from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine_jobs import workers_alive
from undertow.engine import DaskCluster, Engine, Processes, Serial, Threads


@pytest.fixture
def no_new_children(steady_dask: None) -> Iterator[None]:
    """No process started in the test outlives it, not even as a zombie."""
    before = set(workers_alive())
    yield
    assert set(workers_alive()) <= before


@pytest.fixture(scope="session")
def shared_dask() -> Iterator[DaskCluster]:
    """One cluster for all tests: starting one takes seconds."""
    with DaskCluster(n_workers=2) as engine:
        yield engine


@pytest.fixture
def steady_dask(shared_dask: DaskCluster) -> None:
    """The shared cluster is whole: the workers that earlier tests killed are replaced, and no process comes or goes."""
    shared_dask.connect().wait_for_workers(2)


@pytest.fixture
def dask_engine(shared_dask: DaskCluster, steady_dask: None) -> DaskCluster:
    return shared_dask


@pytest.fixture(scope="session")
def processes_engine() -> Iterator[Processes]:
    with Processes(2) as engine:
        yield engine


@pytest.fixture(params=["serial", "threads", "processes", "dask"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "serial":
        return Serial()
    if request.param == "threads":
        return Threads(3)
    found: Engine = request.getfixturevalue(f"{request.param}_engine")
    return found


@pytest.fixture(params=["processes", "dask"])
def mortal(request: pytest.FixtureRequest) -> Engine:
    """The engines whose workers can be killed."""
    found: Engine = request.getfixturevalue(f"{request.param}_engine")
    return found
