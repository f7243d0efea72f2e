"""Commands that write directories, stopped between every two steps they take on the disk.

`trials` names the commands. `Steps` counts what a command does to the disk and stops it at the n-th step: by an error
of the system, or by a real SIGKILL of a forked process (`kill_everywhere`, run as a script of its own because pytest
has threads that a fork would lose).
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from contract.reference import DeletedInterpolation
from undertow import Corpus, LagCounts, atomic
from undertow.text import counting
from undertow.text.reading import ReadingOptions

FUNCTIONS = ("rename", "replace", "unlink", "rmdir", "mkdir", "fsync", "open")
SMALL = ReadingOptions(chunk_bytes=400)


class Trial(NamedTuple):
    """What is there before (`prepare` fills a directory) and the command that is stopped; it writes `target`."""

    prepare: Callable[[Path], object]
    run: Callable[[Path], object]
    target: str


@functools.cache
def model(seed: int) -> DeletedInterpolation:
    return DeletedInterpolation(n_iter=2, random_state=seed).fit(sentences(seed))


def sentences(seed: int) -> list[list[str]]:
    rng = random.Random(seed)
    return [[f"w{rng.randint(0, 9)}" for _ in range(9)] for _ in range(40)]


def text(place: Path, seed: int) -> Path:
    path = place / f"{seed}.txt"
    path.write_text("\n".join(" ".join(s) for s in sentences(seed)) + "\n")
    return path


def corpus(place: Path, seed: int, name: str, **options: Any) -> Corpus:
    return Corpus.build([text(place, seed)], place / name, reading=SMALL, vocab_size=None, **options)


@contextlib.contextmanager
def small_counts() -> Iterator[None]:
    """Several blocks and several runs, so that there are spills to add."""
    before = counting.BLOCK_ENTRIES, counting.plan
    counting.BLOCK_ENTRIES = 60
    counting.plan = lambda *_: counting.Plan(200, 1, 1)  # type: ignore[assignment]
    try:
        yield
    finally:
        counting.BLOCK_ENTRIES, counting.plan = before  # type: ignore[misc]


def count(place: Path, corpus_name: str) -> None:
    with small_counts():
        LagCounts.from_corpus(Corpus.open(place / corpus_name), lags=2, out=place / "n", overwrite=True)


def merge(place: Path) -> None:
    LagCounts.merge([LagCounts.open(place / "a"), LagCounts.open(place / "b")], place / "n", overwrite=True)


def prepare_counts(place: Path, old: bool) -> None:
    corpus(place, 1, "c1")
    if old:
        corpus(place, 2, "c2")
        count(place, "c2")


def prepare_merge(place: Path) -> None:
    vocabulary = Corpus.from_sentences([[f"w{i}" for i in range(10)]]).vocabulary
    for name, seed in [("a", 1), ("b", 2), ("n", 3)]:
        there = Corpus.from_sentences(sentences(seed), vocabulary=vocabulary)
        LagCounts.from_corpus(there, lags=2).save(place / name)


trials = {
    "corpus": Trial(lambda p: corpus(p, 2, "c"), lambda p: corpus(p, 1, "c", overwrite=True), "c"),
    "first corpus": Trial(lambda p: text(p, 1), lambda p: corpus(p, 1, "c", overwrite=True), "c"),
    "counts": Trial(lambda p: prepare_counts(p, True), lambda p: count(p, "c1"), "n"),
    "first counts": Trial(lambda p: prepare_counts(p, False), lambda p: count(p, "c1"), "n"),
    "merge": Trial(prepare_merge, merge, "n"),
    "model": Trial(lambda p: model(2).save(p / "m"), lambda p: model(1).save(p / "m", overwrite=True), "m"),
}


class Steps:
    """Stands before everything a command does to the disk; the n-th step is an error, or the end."""

    def __init__(self, nth: int, stop: Callable[[], None], *, exchange: bool):
        self.nth, self.stop, self.exchange = nth, stop, exchange
        self.taken = 0
        self.last = ""

    def step(self, name: str) -> None:
        self.taken += 1
        if self.taken == self.nth:
            self.last = name
            self.stop()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        real = {name: getattr(os, name) for name in FUNCTIONS}
        real_open, real_exchange = builtins.open, atomic._exchange

        def watch(name: str) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                self.step(f"{name} {args}")
                return real[name](*args, **kwargs)

            return call

        def watched_open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if mode[0] in "wax":
                self.step(f"write {file}")
            return real_open(file, mode, *args, **kwargs)

        def exchange(a: Path, b: Path) -> bool:
            self.step(f"exchange {a} {b}")
            return self.exchange and real_exchange(a, b)

        try:
            for name in FUNCTIONS:
                setattr(os, name, watch(name))
            builtins.open, atomic._exchange = watched_open, exchange  # type: ignore[assignment]
            yield
        finally:
            for name in FUNCTIONS:
                setattr(os, name, real[name])
            builtins.open, atomic._exchange = real_open, real_exchange


def contents(place: Path) -> dict[str, bytes]:
    """Every file below a directory, hidden ones too."""
    found = (Path(root, name) for root, _, names in os.walk(place) for name in names)
    return {str(path.relative_to(place)): path.read_bytes() for path in found}


@contextlib.contextmanager
def quick_disk() -> Iterator[None]:
    """Do not wait for the disk: no test here cuts the power."""
    before, os.fsync = os.fsync, lambda fd: None  # type: ignore[assignment]
    try:
        yield
    finally:
        os.fsync = before


class Bench:
    """A directory as the trial finds it, copied for every attempt, and what the undisturbed command makes of it."""

    def __init__(self, trial: Trial, place: Path):
        self.trial, self.place = trial, place
        (place / "before").mkdir()
        trial.prepare(place / "before")
        self.old = contents(place / "before" / trial.target)
        whole = self.fresh()
        trial.run(whole)
        self.after = contents(whole)
        self.new = contents(whole / trial.target)
        assert self.new and self.new != self.old

    def fresh(self) -> Path:
        shutil.rmtree(self.place / "here", ignore_errors=True)
        shutil.copytree(self.place / "before", self.place / "here")
        return self.place / "here"


def kill_everywhere(name: str, place: Path, exchange: bool) -> tuple[int, list[str]]:
    """Kill before every step, run again, compare; returns how many kills there were and what went wrong."""
    trial = trials[name]
    bench = Bench(trial, place)
    wrong: list[str] = []
    nth = 0
    while True:
        nth += 1
        here = bench.fresh()
        child = os.fork()
        if not child:
            steps = Steps(nth, lambda: os.kill(os.getpid(), signal.SIGKILL), exchange=exchange)
            with steps.watched():
                trial.run(here)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            if status:
                wrong.append(f"step {nth}: status {status}")
            break
        if exchange and contents(here / trial.target) not in (bench.old, bench.new):
            wrong.append(f"step {nth}: neither the old nor the new directory is there")
        try:
            trial.run(here)
        except Exception as e:
            wrong.append(f"step {nth}: {e}")
            continue
        left = contents(here)
        if left != bench.after:
            differing = sorted(k for k in left | bench.after if left.get(k) != bench.after.get(k))
            wrong.append(f"step {nth}: differs in {differing}")
    return nth - 1, wrong


def fail_everywhere(name: str, place: Path, exchange: bool) -> tuple[int, list[str]]:
    """The same with an error of the system at every step. The error must be ours and say where, and must not be
    raised once the new directory is in its place."""
    from undertow.errors import UndertowError

    trial = trials[name]
    bench = Bench(trial, place)
    wrong: list[str] = []
    nth = 0

    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    while True:
        nth += 1
        here = bench.fresh()
        steps = Steps(nth, fail, exchange=exchange)
        with steps.watched():
            try:
                trial.run(here)
                failed = False
            except UndertowError as e:
                failed = True
                if str(here / trial.target) not in str(e) or "No space left" not in str(e):
                    wrong.append(f"step {nth}, {steps.last}: the error is {e}")
            except Exception as e:
                failed = True
                wrong.append(f"step {nth}, {steps.last}: {e!r}")
        if steps.taken < nth:
            break
        there = contents(here / trial.target)
        if there != (bench.old if failed else bench.new):
            wrong.append(f"step {nth}, {steps.last}: failed={failed}, old there={there == bench.old}")
        trial.run(here)
        if contents(here) != bench.after:
            wrong.append(f"step {nth}, {steps.last}: after the second run {sorted(contents(here))}")
    return nth - 1, wrong


if __name__ == "__main__":
    counting.warm_up()
    with quick_disk():
        result = kill_everywhere(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "exchange")
    print(json.dumps(result))
