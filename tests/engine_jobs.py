"""Jobs and helpers for the engine tests; the jobs must be where workers can import them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import psutil

from undertow.errors import FormatError
from waiting import wait_for


class Unsendable(Exception):
    """Pickles, but cannot be unpickled: its `__init__` takes more than its `args`."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def identity(shard):
    return shard


def add(a, b):
    return a + b


def late_first(shard: tuple[int, float]) -> float:
    """Returns the float; even shards take longer, so they finish after their successors."""
    index, value = shard
    time.sleep(0.04 if index % 2 == 0 else 0.0)
    return value


def worker_pid(_: object) -> int:
    time.sleep(0.05)
    return os.getpid()


def die_on(shard: tuple[str, int, int, int]) -> int:
    """Leaves one file per try; shard `guilty` kills its process on its first `times` tries."""
    folder, index, guilty, times = shard
    tries = len(list(Path(folder).glob(f"{index}.*")))
    (Path(folder) / f"{index}.{os.getpid()}.{tries}").touch()
    time.sleep(0.02)
    if index == guilty and tries < times:
        os.kill(os.getpid(), signal.SIGKILL)
    return index * index


def announce_and_sleep(shard: tuple[str, float]) -> int:
    """Writes its pid where the test can find it, then takes its time."""
    folder, seconds = shard
    (Path(folder) / f"pid.{os.getpid()}").touch()
    time.sleep(seconds)
    return 1


def meet(shard: tuple[str, int]) -> int:
    """Announces its process, then waits until `n` different ones have come by."""
    folder, n = shard
    (Path(folder) / f"pid.{os.getpid()}").touch()
    wait_for(lambda: len(list(Path(folder).iterdir())) >= n)
    return 1


def fail(shard: str) -> object:
    if shard == "value":
        raise ValueError("bad value 7")
    if shard == "undertow":
        raise FormatError("the file x is damaged: build it again.")
    if shard == "unsendable":
        raise Unsendable(1, 2)
    if shard == "exit":
        sys.exit(3)
    if shard == "result":
        return lambda: None
    return shard


def workers_alive() -> list[psutil.Process]:
    """Child processes, but for the resource tracker, which multiprocessing keeps until Python ends."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if "resource_tracker" not in " ".join(child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found
