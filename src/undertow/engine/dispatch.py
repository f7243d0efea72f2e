"""The one loop behind the engines with workers that can die: hand out, collect, count deaths, keep order.

Needed for the promises in docs/design.md that results are folded in shard order, with a bounded number of shards in
flight, and that a shard is run again at most three times; `Processes` and `DaskCluster` both keep them by this loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from undertow.engine import wire
from undertow.engine.base import AHEAD, label
from undertow.errors import EngineError

MAX_DEATHS = 3
MAX_FAILED_STARTS = 3


@dataclass(eq=False)
class Job:
    """A shard to run: its index, its bytes, and the number of workers that died running it."""

    index: int
    name: str
    shard: bytes
    deaths: int = 0


@dataclass
class Outcome:
    """The result of a job: its reply, or None and the number of workers that died running it."""

    job: Job
    reply: bytes | None
    deaths: int = 0


class Crew(Protocol):
    """Workers that run at most one job each, so that the job of a dead worker is known."""

    def size(self) -> int:
        """How many jobs can run at once now."""

    def offer(self, job: Job) -> bool:
        """Start `job` on a free worker; False when no worker is free for it."""

    def collect(self) -> list[Outcome]:
        """Wait for at least one job to end, and report all that did."""


def in_order(crew: Crew, shards: Iterable[object]) -> Generator[Any, None, None]:
    """Yield the results in shard order, with at most 2 × workers shards drawn and not yet yielded."""
    source = enumerate(shards)
    waiting: deque[Job] = deque()  # drawn, or lost its worker; at most one fresh job waits for a worker
    replies: dict[int, tuple[Job, bytes]] = {}
    drawn = done = 0
    exhausted = False
    while True:
        while True:
            # A shard to run again goes first: everything after it in the order waits for it.
            while waiting and crew.offer(waiting[0]):
                waiting.popleft()
            if waiting or exhausted or drawn - done >= AHEAD * crew.size():
                break
            for index, shard in source:
                name = f"shard {index} ({label(shard)})"
                waiting.append(Job(index, name, wire.pack_shard(shard, name)))
                drawn += 1
                break
            else:
                exhausted = True
        if done in replies:
            job, reply = replies.pop(done)
            result = wire.open_reply(reply, job.name)
            done += 1
            del reply  # the consumer may take long: keep one copy of the result, not two
            yield result
            del result
            continue
        if exhausted and done == drawn:
            return
        for outcome in crew.collect():
            job = outcome.job
            if outcome.reply is not None:
                replies[job.index] = (job, outcome.reply)
                job.shard = b""
                continue
            job.deaths += outcome.deaths
            if job.deaths >= MAX_DEATHS:
                raise EngineError(
                    f"{job.name} ended its worker process {job.deaths} times (it crashed or was killed, "
                    "most often for lack of memory): make the shards smaller or use fewer workers."
                )
            waiting.appendleft(job)
