"""undertow tag: train, evaluate and apply taggers."""

from __future__ import annotations

import click

from undertow.cli.lazy import LazyGroup

STEPS = {
    "train": ("undertow.cli.tag_train", "Train a tagger on labelled text."),
    "eval": ("undertow.cli.tag_eval", "Evaluate a tagger on labelled text."),
    "predict": ("undertow.cli.tag_predict", "Tag a text."),
}


@click.group(cls=LazyGroup, verbs=STEPS)
def command() -> None:
    """Train, evaluate and apply taggers."""
