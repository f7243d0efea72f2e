"""Workers of a Dask cluster, on other machines or on this one."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from typing import Any

from undertow.engine import wire
from undertow.engine.base import Engine, R, S, check_workers
from undertow.engine.dispatch import MAX_FAILED_STARTS, Job, Outcome, in_order
from undertow.errors import EngineError, InputError, missing_extra

CONNECT_SECONDS = 10
TELL_SECONDS = 10  # warn after so long without a worker
POLL_SECONDS = 0.5  # how soon the death of a worker is noticed

# undertow's shards are meant to be large; Dask's advice to load the data with Dask does not apply.
QUIET = {"distributed.admin.large-graph-warning-threshold": "1 TB"}

CLIENT_LOG = logging.getLogger("distributed.client")


class DaskCluster(Engine):
    """Run shards on a Dask cluster.

    Each shard is assigned to one worker, because Dask blames every task that waits on a dead worker; so the shard that
    kills its worker is known, and an error names it after three times.

    A cluster without workers is waited for, as a busy machine or a batch queue may take long to start one. It is an
    error when none can come: the scheduler is gone, Dask's `distributed.scheduler.no-workers-timeout` has passed, or a
    local cluster has closed its workers or cannot start them.

    Parameters
    ----------
    address
        The `tcp://` or `tls://` address of a scheduler; None starts a local cluster.
    client
        A `distributed.Client` to use instead.
    n_workers
        The number of workers of a local cluster; None uses all cores.
    tls_ca, tls_cert, tls_key
        Files for a `tls://` address.

    Raises
    ------
    InputError
        If the arguments contradict each other.
    MissingExtraError
        If Dask is not installed.
    EngineError
        If no scheduler can be reached.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        client: Any = None,
        n_workers: int | None = None,
        tls_ca: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
    ) -> None:
        if address is not None and client is not None:
            raise InputError("give DaskCluster an address or a client, not both.")
        if address is not None and not address.startswith(("tcp://", "tls://")):
            raise InputError(f"{address!r} is not the address of a Dask scheduler: write tcp://host:port.")
        if any((tls_ca, tls_cert, tls_key)) and not str(address).startswith("tls://"):
            raise InputError("TLS files are for an address that begins with tls://.")
        self.address = address
        self.n_workers = check_workers(n_workers)
        self.tls = {"tls_ca_file": tls_ca, "tls_client_cert": tls_cert, "tls_client_key": tls_key}
        self._client = self._given = client
        self._cluster: Any = None
        self._log_level: int | None = None

    def imap(self, fn: Callable[[S], R], shards: Iterable[S]) -> Generator[R, None, None]:
        """Yield `fn(shard)` in shard order."""
        task = wire.pack_task(fn)
        crew = _Crew(self.connect(), task, self._place())
        try:
            yield from in_order(crew, shards)
        except (OSError, RuntimeError) as error:
            # distributed reports a lost scheduler in many ways; the client's status is the common sign.
            if self._client is not None and self._client.status == "running":
                raise
            raise EngineError(
                f"the connection to the Dask scheduler at {self._place()} was lost ({error}): "
                "check that it is still running, then run this again."
            ) from error
        finally:
            crew.release()

    def connect(self) -> Any:
        """The `distributed.Client` of the cluster, connected on first use."""
        if self._client is None:
            distributed = _distributed()
            # A lost scheduler is told by one EngineError; distributed would print a traceback as well.
            self._log_level = CLIENT_LOG.level
            CLIENT_LOG.setLevel(logging.CRITICAL)
            try:
                if self.address is None:
                    self._cluster = _local_cluster(
                        n_workers=self.n_workers,
                        threads_per_worker=1,
                        host="127.0.0.1",
                        # No pages; and the port they would have, taken even without them, must be a free one.
                        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                        silence_logs=logging.ERROR,
                    )
                self._client = distributed.Client(
                    self._cluster if self.address is None else self.address,
                    timeout=CONNECT_SECONDS,
                    security=self._security(),
                    set_as_default=False,
                )
            except Exception as error:  # distributed raises OSError, ValueError, ssl errors …
                self.close()
                raise EngineError(
                    f"no Dask scheduler could be reached at {self._place()} "
                    f"({wire.flat(error)}): check that it runs there, that the port is open, "
                    "and that tcp:// or tls:// and the TLS files match it."
                ) from error
        return self._client

    def close(self) -> None:
        """Disconnect; shut down a cluster that was started here; a given client stays open."""
        if self._client is not None and self._client is not self._given:
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()
        self._client, self._cluster = self._given, None
        if self._log_level is not None:
            CLIENT_LOG.setLevel(self._log_level)
            self._log_level = None

    def _security(self) -> Any:
        """TLS for a `tls://` address, tried here: distributed's client does not recover from bad files."""
        if self.address is None or not self.address.startswith("tls://"):
            return None
        for path in self.tls.values():
            if path is not None and not os.path.isfile(path):
                raise FileNotFoundError(f"there is no file {path}")
        # What is not given may come from Dask's own configuration.
        given = {name: path for name, path in self.tls.items() if path is not None}
        security = _distributed().Security(require_encryption=True, **given)
        if security.get_connection_args("client").get("ssl_context") is None:
            raise ValueError("tls:// needs a CA file, a certificate and a key")
        return security

    def _place(self) -> str:
        return self.address or ("the given client's address" if self._given else "a local cluster")


class _Crew:
    """The workers of a cluster by address: those that disappear have died."""

    def __init__(self, client: Any, task: bytes, place: str) -> None:
        self.client = client
        self.place = place
        self.slots: dict[str, int] = {}
        self.held: dict[Any, tuple[Job, str]] = {}  # future → job, worker address
        self.seen = self.looked = time.monotonic()
        self.told = False  # that we wait for workers
        self.starts: set[int] = set()  # process ids of a local cluster's workers since one was last seen to live
        # As a task and not as scattered data: it is made again when the worker that holds it dies.
        self.task = self._submit(_hold, task)
        self._look()

    def size(self) -> int:
        return sum(self.slots.values())

    def offer(self, job: Job) -> bool:
        busy = Counter(address for _, address in self.held.values())
        closed = {address for other, address in self.held.values() if other.deaths}
        for address in sorted(self.slots, key=lambda address: busy[address]):
            # A suspect works alone, so that on workers with several threads nobody else is blamed with it.
            room = not busy[address] if job.deaths else busy[address] < self.slots[address]
            if room and address not in closed:
                future = self._submit(_run, self.task, job.shard, workers=[address])
                self.held[future] = (job, address)
                return True
        return False

    def collect(self) -> list[Outcome]:
        distributed = _distributed()
        if self.held:
            # Nothing yet; or cancelled from outside, which the statuses below show.
            with self.client.as_current(), suppress(TimeoutError, distributed.CancelledError):
                distributed.wait(list(self.held), POLL_SECONDS, "FIRST_COMPLETED")
        else:
            time.sleep(POLL_SECONDS)
        if time.monotonic() - self.looked > POLL_SECONDS:
            self._look()
        outcomes = []
        for future, (job, address) in list(self.held.items()):
            if future.status not in ("pending", "lost"):  # lost: made, and gone with its worker before we had it
                outcomes.append(self._outcome(future, job, address))
            elif address not in self.slots:
                outcomes.append(Outcome(job, None, deaths=1))
            else:
                continue
            del self.held[future]
            future.release()  # else Dask would wait for the dead worker, or keep the result
        return outcomes

    def release(self) -> None:
        """Release all futures; running shards run to their end."""
        for future in [*self.held, self.task]:
            future.release()
        self.held.clear()

    def _outcome(self, future: Any, job: Job, address: str) -> Outcome:
        from distributed import CancelledError
        from distributed.scheduler import KilledWorker

        try:
            reply = self.client.sync(self._fetch, future, address)
        except KilledWorker as error:
            # A worker that comes back under its old address is tried again by Dask, unseen from here.
            return Outcome(job, None, deaths=error.allowed_failures + 1)
        except CancelledError as error:
            if self.client.status == "running":
                raise EngineError(f"{job.name} was cancelled on the Dask cluster by somebody else.") from error
            raise ConnectionError("the scheduler is gone") from error
        except Exception as error:  # what `fn` raises travels inside the reply: this is Dask's own trouble
            if self.client.status != "running":
                raise ConnectionError("the scheduler is gone") from error
            raise EngineError(
                f"Dask could not run {job.name} ({wire.flat(error)}): "
                "check that the workers have this process's versions of undertow, Python and Dask."
            ) from error
        return Outcome(job, reply, deaths=int(reply is None))

    async def _fetch(self, future: Any, address: str) -> bytes | None:
        """The result, however long its way; None if its worker died with it, as no other may make it again."""
        transfer = asyncio.ensure_future(self.client.gather(future, asynchronous=True))
        try:
            while True:
                done, _ = await asyncio.wait({transfer}, timeout=POLL_SECONDS)
                if done:
                    reply: bytes = transfer.result()
                    return reply
                if address not in await self.client.nthreads(asynchronous=True):
                    return None
        finally:
            transfer.cancel()

    def _look(self) -> None:
        """Update the list of workers and their numbers of threads."""
        self.slots = dict(self.client.nthreads())
        self.looked = time.monotonic()
        if self.slots:
            self.seen = self.looked
            self.starts.clear()
            return
        if self.task.status == "error":  # the scheduler has its own limit: distributed.scheduler.no-workers-timeout
            error = self.task.exception()
            raise EngineError(
                f"the Dask cluster at {self.place} has no workers ({wire.flat(error)}): start some with `dask worker`."
            ) from error
        if not self._starts_workers() and not self.told and self.looked - self.seen >= TELL_SECONDS:
            self.told = True
            warnings.warn(
                f"The Dask cluster at {self.place} has no workers: waiting until one joins. If none is on its way, "
                "start some with `dask worker` or the cluster's `scale`, or press Ctrl-C. (A cluster on a busy machine "
                "needs a longer `distributed.deploy.lost-worker-timeout`, or it closes workers that start slowly.)",
                stacklevel=2,
            )

    def _starts_workers(self) -> bool:
        """Whether workers are known to be starting; an error if it is known that none can come.

        Only a cluster of this machine and of a fixed size can be asked, by its nannies, which start the workers.
        """
        cluster = getattr(self.client, "cluster", None)
        if not isinstance(cluster, _distributed().LocalCluster) or getattr(cluster, "_adaptive", None) is not None:
            return False

        async def ask() -> list[tuple[str, int | None]] | None:
            if set(cluster.worker_spec) - set(cluster.workers):
                return None  # nannies that are starting themselves, or that the cluster has closed: it does not say
            return [(nanny.status.name, getattr(nanny, "pid", None)) for nanny in cluster.workers.values()]

        nannies = self.client.sync(ask)  # in the thread they run in
        if nannies is None:
            return False
        if not any(status in ("created", "init", "starting", "running") for status, _ in nannies):
            raise EngineError(
                "the local Dask cluster has no workers and is starting none: "
                "check the free memory and Dask's log, then start a new cluster."
            )
        self.starts.update(pid for _, pid in nannies if pid is not None)
        # One of each nanny's can be a process that did join: it has died, but is not yet reaped.
        if len(self.starts) > (1 + MAX_FAILED_STARTS) * len(nannies):
            raise EngineError(
                "the worker processes of the local Dask cluster end while they start: "
                "check the free memory, and the preloads in Dask's configuration."
            )
        return True

    def _submit(self, fn: Callable[..., bytes], *args: object, **options: object) -> Any:
        import dask

        with dask.config.set(QUIET):
            return self.client.submit(fn, *args, pure=False, **options)


def _hold(task: bytes) -> bytes:
    return task


def _run(task: bytes, shard: bytes) -> bytes:
    return wire.run(wire.load_task(task), shard)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise missing_extra("A Dask cluster needs Dask", "dask") from error
    return distributed


def _local_cluster(**options: Any) -> Any:
    """A `LocalCluster` that keeps its nannies.

    Dask's own closes a nanny for good when its worker died and the next one has not joined within
    `distributed.deploy.lost-worker-timeout`, 15 s. On a busy machine a worker needs longer to start, so that a few
    deaths would leave a cluster with no workers and none to come.
    """
    import dask

    class Patient(_distributed().LocalCluster):  # type: ignore[misc]
        def _update_worker_status(self, op: str, msg: Any) -> None:
            with dask.config.set({"distributed.deploy.lost-worker-timeout": "10000 days"}):
                super()._update_worker_status(op, msg)

    return Patient(**options)
