"""What every test shares: threads, the order over several workers, which tests are slow, where the real data is."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

# One thread for BLAS and PyTorch, in this process and in those that tests start, unless a test says otherwise:
# `make test` has a worker per core, and on a busy machine small products in two threads wait long for each other.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

# On a busy machine an example that takes a millisecond can wait a second for its turn: no limits by the clock.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

REPO = Path(__file__).parents[1]
# What takes long, starts processes or a browser, by measured processor time; `make check` leaves it out.
SLOW = (
    "tests/adapters/test_gensim.py::test_exports",
    "tests/adapters/test_spacy_pipe.py::test_two_processes",
    "tests/adapters/test_transformers.py",
    "tests/cli/",
    "tests/contract/test_blas_threads.py",
    "tests/contract/test_checks_can_fail.py",
    "tests/engine/",
    "tests/experiments/",
    "tests/kernels/chain/test_discrete_chain.py::test_a_long_sequence",
    "tests/kernels/chart/",
    "tests/kernels/factorial/",
    "tests/kernels/field/test_association_field.py::test_information",
    "tests/models/dynamic/",
    "tests/models/factorial/",
    "tests/models/hmm/test_hmm.py::test_a_cluster_gives_the_same_bits",
    "tests/models/hmm/test_hmm.py::test_any_number_of_workers",
    "tests/models/hmm/test_hmm_bits.py::test_real_text",
    "tests/models/lds/test_lds.py::test_fit_on_a_cluster",
    "tests/models/lds/test_lds.py::test_threads_do_not_change_a_bit",
    "tests/models/lds/test_lds.py::test_views_equal",
    "tests/models/lds/test_ssid.py::test_long_simulated_text",
    "tests/models/test_checkpoint.py",
    "tests/neural/",
    "tests/results/test_tagger.py",
    "tests/results/test_taggers.py::test_a_saved_tagger",
    "tests/results/test_taggers.py::test_real_names",
    "tests/test_docs.py::test_the_readme_runs",
    "tests/test_docs.py::test_tutorials_run",
    "tests/test_docs_site.py",
    "tests/test_files.py",
    "tests/test_interruptions.py",
    "tests/test_storage.py::test_a_killed_save",
    "tests/text/test_corpus.py::test_a_damaged_part",
    "tests/text/test_corpus.py::test_a_killed_build",
    "tests/text/test_corpus.py::test_parts_of_another_text",
    "tests/text/test_corpus.py::test_the_bytes_do_not_depend_on_the_number_of_processes",
    "tests/text/test_corpus.py::test_words_are_counted_within_the_memory",
    "tests/text/test_lag_counts.py::test_a_killed_",
    "tests/text/test_lag_counts.py::test_every_engine_writes_the_same_bytes",
    "tests/text/test_lag_counts.py::test_the_first_200k_tokens_of_elife",
    "tests/text/test_reading.py::test_memory_is_bounded",
    "tests/text/test_segmenters.py",
    "tests/text/test_tokenizer.py::test_both_agree_on",
    "tests/view/",
)
# Folders whose tests are one unit of work for `pytest -n`: kernels, because Numba compiles them once and keeps the code
# in files, and two workers that compile the same kernel do it twice; engine, because its tests share a Dask cluster.
TOGETHER = ("tests/kernels/", "tests/engine/")
# What starts first: one worker compiles the kernels while the other does what needs none, then what takes long.
FIRST = (
    "tests/kernels/",
    "tests/engine/",
    "tests/view/",
    "tests/text/",
    "tests/neural/",
    "tests/experiments/",
    "tests/contract/test_blas_threads.py",
    "tests/cli/",
    "tests/models/",
)


def pytest_configure() -> None:
    """Let Ctrl-C through: a shell starts background jobs with it ignored, and the processes under test inherit that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: rank(item.nodeid))  # stable: within a rank, the order of the files


def rank(nodeid: str) -> int:
    """The place of a test's folder or file in `FIRST`; what is not there comes last."""
    return next((n for n, start in enumerate(FIRST) if nodeid.startswith(start)), len(FIRST))


def unit(nodeid: str) -> str:
    """The tests that one worker runs together: they share fixtures, or compile the same kernels."""
    file = nodeid.split("::", maxsplit=1)[0]
    if file == "tests/experiments/test_quick.py":
        return nodeid  # a process each, and each takes long
    return next((folder for folder in TOGETHER if file.startswith(folder)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker of `pytest -n` the next unit, in the order of collection."""
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid)

    config.option.loadscopereorder = False
    return ByUnit(config, log)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data; tests that need it are skipped where it is absent."""
    path = Path(os.environ.get("UNDERTOW_DATA", REPO.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(reason="no real data: set UNDERTOW_DATA")
    return path
