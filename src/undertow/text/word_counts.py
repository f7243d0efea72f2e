"""Counting words within a memory limit: in a dictionary, and beyond the limit in sorted files that are added up."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

ENTRY_BYTES = 200  # of a dictionary, its key and its count, beside the letters; a table that grows stands there twice
PREFIX = "words-"


class WordCounts:
    """How often each word was seen. `limit` bounds the bytes of the words held at once; None holds them all."""

    def __init__(self, directory: Path, limit: int | None):
        self._directory, self._limit = directory, limit
        self._held: dict[bytes, int] = {}
        self._held_bytes = 0
        self._files: list[Path] = []

    def __bool__(self) -> bool:
        return bool(self._held or self._files)

    def add(self, words: Iterable[bytes], counts: Iterable[int]) -> None:
        held = self._held
        for word, count in zip(words, counts, strict=True):
            before = held.get(word)
            if before is not None:
                held[word] = before + count
                continue
            held[word] = count
            self._held_bytes += ENTRY_BYTES + len(word)
            if self._limit is not None and self._held_bytes > self._limit:
                self._spill()

    def pairs(self) -> Iterator[tuple[str, int]]:
        """Every word once with its count, in no order that matters."""
        if not self._files:
            return ((word.decode("utf-8"), count) for word, count in self._held.items())
        self._spill()
        return self._merged()

    def _spill(self) -> None:
        path = self._directory / f"{PREFIX}{len(self._files):06d}"
        with open(path, "wb") as f:
            f.writelines(b"%b\t%d\n" % (word, self._held[word]) for word in sorted(self._held))
        self._files.append(path)
        self._held.clear()
        self._held_bytes = 0

    def _merged(self) -> Iterator[tuple[str, int]]:
        merged = heapq.merge(*map(_lines, self._files))
        for word, group in itertools.groupby(merged, key=lambda pair: pair[0]):
            yield word.decode("utf-8"), sum(count for _, count in group)


def _lines(path: Path) -> Iterator[tuple[bytes, int]]:
    with open(path, "rb") as f:
        for line in f:
            word, _, count = line.partition(b"\t")
            yield word, int(count)
