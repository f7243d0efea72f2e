"""What long work reports while it runs; who draws it is another matter (the command line uses tqdm)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Progress(NamedTuple):
    """`done` of `total` (None when unknown) `unit`s of a stage; a new stage name starts a new count."""

    stage: str
    done: int
    total: int | None
    unit: str
    text: str = ""  # what else there is to say now, such as the objective


ProgressFn = Callable[[Progress], None]


def ignore(_: Progress) -> None:
    """The default: nobody is watching."""
