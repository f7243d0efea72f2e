"""undertow corpus: build a corpus."""

from __future__ import annotations

import click

from undertow.cli.lazy import LazyGroup

STEPS = {"build": ("undertow.cli.corpus_build", "Build a corpus directory from text files.")}


@click.group(cls=LazyGroup, verbs=STEPS)
def command() -> None:
    """Build a corpus from text files."""
