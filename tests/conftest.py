"""What every test shares: where the real data is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# On a busy machine an example that takes a millisecond can wait a second for its turn: no limits by the clock.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

REPO = Path(__file__).parents[1]
# files and folders whose tests take long, start processes or a browser; `make check` leaves them out
SLOW = (
    "tests/cli/",
    "tests/contract/test_blas_threads.py",
    "tests/contract/test_checks_can_fail.py",
    "tests/engine/",
    "tests/experiments/",
    "tests/kernels/factorial/",
    "tests/models/dynamic/",
    "tests/models/factorial/",
    "tests/neural/",
    "tests/test_files.py",
    "tests/test_interruptions.py",
    "tests/view/",
)


def pytest_configure() -> None:
    """Let Ctrl-C through: a shell starts background jobs with it ignored, and the processes under test inherit that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(REPO).as_posix().startswith(SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data; tests that need it are skipped where it is absent."""
    path = Path(os.environ.get("UNDERTOW_DATA", REPO.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(reason="no real data: set UNDERTOW_DATA")
    return path
