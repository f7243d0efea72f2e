"""What only a Dask cluster has: an address, a client, TLS, and a package that may be missing."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys

import dask
import distributed
import psutil
import pytest

import engine_jobs as jobs
from undertow.engine import DaskCluster, dask_cluster
from undertow.engine.dispatch import Job
from undertow.errors import EngineError, InputError, MissingExtraError
from waiting import wait_for


def test_the_engine_room_imports_no_dask():
    code = "import sys, undertow.engine; print({'dask', 'distributed', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_given_address_and_a_given_client_are_used(dask_engine):
    address = dask_engine.connect().scheduler.address
    with DaskCluster(address) as engine:
        assert list(engine.imap(jobs.identity, range(5))) == list(range(5))
        assert engine.connect() is not dask_engine.connect()
    with DaskCluster(client=dask_engine.connect()) as engine:
        assert list(engine.imap(jobs.identity, range(5))) == list(range(5))
    assert dask_engine.connect().status == "running"  # not ours to close
    with pytest.raises(InputError, match="not both"):
        DaskCluster(address, client=dask_engine.connect())


def test_nothing_stays_on_the_cluster(dask_engine):
    client = dask_engine.connect()
    list(dask_engine.imap(jobs.identity, range(20)))
    results = dask_engine.imap(jobs.worker_pid, range(100))
    next(results)
    results.close()
    wait_for(lambda: not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Somebody else's cluster: TLS, two threads a worker, Dask's own settings."""
    if shutil.which("openssl") is None:
        pytest.skip(reason="needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=undertow"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    roles = {f"tls_{role}_{part}": path for role in ("scheduler", "worker", "client")
             for part, path in (("cert", cert), ("key", key))}  # fmt: skip
    security = distributed.Security(tls_ca_file=cert, require_encryption=True, **roles)
    with (
        # Nor do workers run out that started slowly: on a busy machine, a user sets this too.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 h"}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            security=security,
            silence_logs=logging.ERROR,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        ) as cluster,
    ):
        yield DaskCluster(cluster.scheduler_address, tls_ca=cert, tls_cert=cert, tls_key=key)


@pytest.mark.filterwarnings("ignore:The Dask cluster at tls")  # it says so when a worker is slow to come back
def test_a_tls_cluster_of_several_threads_blames_only_the_guilty(foreign, tmp_path):
    assert foreign.address.startswith("tls://")
    with foreign as engine:
        assert list(engine.imap(jobs.identity, range(9))) == list(range(9))
        with pytest.raises(EngineError, match=r"^shard 2 \("):
            list(engine.imap(jobs.die_on, [(str(tmp_path), i, 2, 99) for i in range(12)]))
    assert len(list(tmp_path.glob("2.*"))) == 3


def test_a_result_that_dies_with_its_worker_is_made_again(dask_engine, tmp_path, monkeypatch):
    """Between the news that a result is there and its transfer."""
    client, fetch = dask_engine.connect(), dask_cluster._Crew._fetch
    killed = []

    async def fetch_from_a_dying_worker(self, future, address):
        if not killed:
            (job, _) = self.held[future]
            killed.append(job.index)
            (mark,) = tmp_path.glob(f"{job.index}.*")
            os.kill(int(mark.name.split(".")[1]), signal.SIGKILL)
            while address in await client.nthreads(asynchronous=True):
                await asyncio.sleep(0.01)
        return await fetch(self, future, address)

    monkeypatch.setattr(dask_cluster._Crew, "_fetch", fetch_from_a_dying_worker)
    assert list(dask_engine.imap(jobs.die_on, [(str(tmp_path), i, -1, 0) for i in range(4)])) == [0, 1, 4, 9]
    assert len(list(tmp_path.glob(f"{killed[0]}.*"))) == 2


def test_a_suspect_works_alone():
    class Client:
        def nthreads(self):
            return {"a": 2, "b": 2}

        def submit(self, *args, **options):
            return object()

    crew = dask_cluster._Crew(Client(), b"", "")
    first, second, third, fourth = (Job(i, "", b"") for i in range(4))
    suspect = Job(9, "", b"", deaths=1)
    assert crew.offer(first) and crew.offer(second)
    assert {address for _, address in crew.held.values()} == {"a", "b"}
    assert not crew.offer(suspect)  # a thread is free on both, but nobody is alone there
    del crew.held[next(future for future, (job, _) in crew.held.items() if job is second)]
    assert crew.offer(suspect)
    assert crew.offer(third)  # beside the first
    assert not crew.offer(fourth)  # not beside the suspect


def test_a_tls_cluster_refuses_a_client_without_certificate(foreign, monkeypatch):
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 2)
    with DaskCluster(foreign.address) as engine, pytest.raises(EngineError, match="TLS files"):
        engine.connect()


def test_a_scheduler_that_goes_away_is_told(tmp_path):
    cluster = distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        silence_logs=logging.CRITICAL,
        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    )
    with DaskCluster(cluster.scheduler_address) as engine:
        results = engine.imap(jobs.announce_and_sleep, [(str(tmp_path), 0.05)] * 1000)
        next(results)
        cluster.close()
        with pytest.raises(EngineError, match=r"connection to the Dask scheduler .* was lost"):
            list(results)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "tls://127.0.0.1:9"])
def test_an_unreachable_scheduler_is_told_in_one_sentence(address, monkeypatch):
    assert dask_cluster.CONNECT_SECONDS == 10
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 2)
    with DaskCluster(address) as engine, pytest.raises(EngineError) as caught:
        list(engine.imap(jobs.identity, range(3)))
    text = str(caught.value)
    assert address in text and "check that" in text and "\n" not in text
    assert ("after 2 s" if address.startswith("tcp") else "tls:// needs") in text


def test_what_is_no_address_is_refused():
    for address in ("host:8786", "nonsense://x", ""):
        with pytest.raises(InputError, match="not the address of a Dask scheduler"):
            DaskCluster(address)
    with pytest.raises(InputError, match="begins with tls://"):
        DaskCluster("tcp://127.0.0.1:9", tls_ca="ca.pem")


def test_missing_tls_files_are_told_in_one_sentence():
    with (
        DaskCluster("tls://127.0.0.1:9", tls_ca="/no/ca.pem") as engine,
        pytest.raises(EngineError) as caught,
    ):
        engine.connect()
    assert "no file /no/ca.pem" in str(caught.value) and "\n" not in str(caught.value)


def test_missing_dask_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'undertow\[dask\]'"):
        list(DaskCluster().imap(jobs.identity, [1]))


def test_closing_a_local_cluster_ends_its_processes():
    with DaskCluster(n_workers=1) as engine:
        (pid,) = engine.imap(jobs.worker_pid, [0])
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


QUIET_CLUSTER = {
    "threads_per_worker": 1,
    "silence_logs": logging.CRITICAL,
    "scheduler_kwargs": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
}
# No worker process starts within a millisecond: Dask takes every death for a loss, as it does on a busy machine.
IMPATIENT = {"distributed.deploy.lost-worker-timeout": "1ms"}


def test_a_worker_that_starts_slowly_is_waited_for(tmp_path):
    with dask.config.set(IMPATIENT), DaskCluster(n_workers=1) as engine:
        results = list(engine.imap(jobs.die_on, [(str(tmp_path), i, 1, 2) for i in range(3)]))
    assert results == [0, 1, 4]


def test_a_given_cluster_that_closed_its_workers_is_waited_for(tmp_path, monkeypatch):
    told = []

    def tell(text, **options):
        told.append(text)
        cluster.scale(1)

    monkeypatch.setattr(dask_cluster, "TELL_SECONDS", 0)
    monkeypatch.setattr(dask_cluster.warnings, "warn", tell)
    with (
        dask.config.set(IMPATIENT),
        distributed.LocalCluster(n_workers=1, **QUIET_CLUSTER) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        DaskCluster(client=client) as engine,
    ):
        assert list(engine.imap(jobs.die_on, [(str(tmp_path), 3, 3, 1)])) == [9]
    assert len(told) <= 1 and all("lost-worker-timeout" in text for text in told)


def test_a_given_cluster_of_no_workers_is_told():
    with (
        distributed.LocalCluster(n_workers=0, **QUIET_CLUSTER) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        DaskCluster(client=client) as engine,
        pytest.raises(EngineError, match="is starting none"),
    ):
        list(engine.imap(jobs.identity, [1]))


@pytest.mark.parametrize(
    ("end", "reason"), [("os._exit(1)", "end while they start"), ("raise ValueError", "is starting none")]
)
def test_workers_that_cannot_start_again_are_told(tmp_path, end, reason):
    broken = tmp_path / "broken"
    preload = f"import os\nif os.path.exists({str(broken)!r}): {end}"
    with dask.config.set({"distributed.worker.preload": [preload]}), DaskCluster(n_workers=1) as engine:
        assert list(engine.imap(jobs.identity, [1])) == [1]
        broken.touch()
        with pytest.raises(EngineError, match=reason):
            list(engine.imap(jobs.die_on, [(str(tmp_path), 0, 0, 2)]))


def test_a_cluster_without_workers_is_waited_for_and_the_wait_is_told_once(monkeypatch):
    told = []

    def tell(text, **options):
        told.append(text)
        cluster.scale(1)

    monkeypatch.setattr(dask_cluster, "TELL_SECONDS", 0)
    monkeypatch.setattr(dask_cluster.warnings, "warn", tell)
    with distributed.LocalCluster(n_workers=0, **QUIET_CLUSTER) as cluster:
        address = cluster.scheduler_address
        with DaskCluster(address) as engine:
            assert list(engine.imap(jobs.identity, range(3))) == [0, 1, 2]
    (text,) = told
    assert text.startswith(f"The Dask cluster at {address} has no workers: waiting until one joins.")


def test_the_limit_of_the_scheduler_ends_the_wait_for_workers():
    with (
        dask.config.set({"distributed.scheduler.no-workers-timeout": "10ms"}),
        distributed.LocalCluster(n_workers=0, **QUIET_CLUSTER) as cluster,
        DaskCluster(cluster.scheduler_address) as engine,
        pytest.raises(EngineError, match=r"has no workers .*: start some"),
    ):
        list(engine.imap(jobs.identity, range(3)))
