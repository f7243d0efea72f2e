"""WikiText-2 as the experiments read it."""

from __future__ import annotations

import lzma

import numpy as np
from pos_data import data_dir


def read_tokens(name: str) -> list[list[str]]:
    """The lines of a WikiText-2 file (`train` or `valid`), each with its end as a word."""
    with lzma.open(data_dir() / "text" / f"wikitext2.{name}.txt.xz", "rt", encoding="utf-8", newline="\n") as f:
        return [[*line.split(), "<eos>"] for line in f]


def first(lines: list[list[str]], n_tokens: int) -> list[list[str]]:
    """As many lines as it takes to have n_tokens words, or all."""
    ends = np.cumsum([len(line) for line in lines])
    return lines[: int(np.searchsorted(ends, n_tokens)) + 1]
