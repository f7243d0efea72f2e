"""undertow fill: the words of the gaps of a text."""

from __future__ import annotations

import json
from typing import Any

import click

from undertow.cli.common import json_option, markers_option
from undertow.cli.partly_known import text_argument
from undertow.cli.reading_options import rule_options
from undertow.errors import InputError

NO_WORD = "(unknown word or end)"
LEAST_MARKERS = 5e-5  # less is not worth a line


@click.command()
@click.argument("model", type=click.Path())
@text_argument
@click.option("-n", "--number", type=click.IntRange(1), default=10, show_default=True, help="Words for each gap.")
@click.option("--joint", is_flag=True, help="Also find the most probable words of all gaps together.")
@click.option("--samples", type=click.IntRange(0), default=0, help="Also draw this many completed texts at random.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random generator.")
@markers_option
@rule_options
@json_option
def command(
    model: str, text: str, number: int, joint: bool, samples: int, seed: int, markers: bool, as_json: bool, **given: Any
) -> None:
    """Fill the gaps of TEXT, such as "the ? of the river", with the words of MODEL given both sides.

    A gap is a question mark between spaces; a question mark itself is written \\?. Prints position (from 1), word and
    probability, and in a last line for each gap how probably it holds none of the words that people can read (an
    unknown word or the end of a sentence). If the corpus of the model has a boundary word, the text ends with it.
    """
    from undertow.cli.model import open_model
    from undertow.cli.partly_known import read_text

    needs = ["fill", *(["best_fill"] if joint else []), *(["sample_fill"] if samples else [])]
    opened = open_model(model, *needs)
    tokens = read_text(text, opened, given)
    if None not in tokens:
        raise InputError(
            'The text has no gap: write ? between spaces where a word is missing, such as "the ? of the river".'
        )
    how = {"markers": True} if markers else {}
    gaps = opened.fill(tokens, number, **how)
    best = opened.best_fill(tokens, **how) if joint else None
    drawn = opened.sample_fill(tokens, samples, random_state=seed, **how) if samples else []
    if as_json:
        facts: dict[str, Any] = {
            "gaps": [
                {"position": g.position + 1, "words": [w._asdict() for w in g.words], "markers": g.markers}
                for g in gaps
            ]
        }
        if best is not None:
            facts["joint"] = best._asdict()
        if samples:
            facts["samples"] = drawn
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    for gap in gaps:
        rows = [*gap.words, *([(NO_WORD, gap.markers)] if gap.markers >= LEAST_MARKERS else [])]
        click.echo("".join(f"{gap.position + 1}\t{word}\t{p:.4g}\n" for word, p in rows))
    if best is not None:
        proof = "no other is more probable" if best.proven else "the best found; others may be more probable"
        click.echo(f"{' '.join(best.tokens)}\t{best.log_probability:.3f} ({proof})")
    for sentence in drawn:
        click.echo(" ".join(sentence))
