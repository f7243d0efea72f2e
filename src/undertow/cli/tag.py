"""undertow tag: taggers on top of the models."""

from __future__ import annotations

import click

from undertow.cli.lazy import LazyGroup

STEPS = {
    "train": ("undertow.cli.tag_train", "Learn a tagger from labelled text."),
    "eval": ("undertow.cli.tag_eval", "Say how right a tagger is on labelled text."),
    "predict": ("undertow.cli.tag_predict", "Tag a text."),
}


@click.group(cls=LazyGroup, verbs=STEPS)
def command() -> None:
    """Learn a tagger, score it, tag with it."""
