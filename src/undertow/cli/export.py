"""undertow export: word vectors, the map of a dynamic embedding or an HMM in other formats."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import json_option, overwrite_option, progress_bar, show

VECTORS = {".txt": "word2vec-text", ".vec": "word2vec-text", ".bin": "word2vec-binary"}
MAPS = {".csv": "csv", ".png": "png", ".svg": "svg", ".gif": "gif", ".mp4": "mp4"}
SUFFIXES = {**VECTORS, **MAPS}
SMALL = "8-bit"
# the formats that an option applies to
OPTIONS = {"time": ("png", "svg"), "title": ("png", "svg", "gif", "mp4"), "fps": ("gif", "mp4")}


@click.command()
@click.argument("model", type=click.Path())
@click.option(
    "-o", "--out", required=True, type=click.Path(),
    help="Output file (8-bit: model directory), or - for standard output (vectors, csv). {time} in the name writes one "
    "picture per time.",
)  # fmt: skip
@click.option(
    "--format",
    "format_",
    type=click.Choice([*dict.fromkeys(SUFFIXES.values()), SMALL]),
    help="Output format.  [default: by the file suffix]",
)
@click.option("--time", help="Time to draw (png, svg).  [default: the last]")
@click.option("--title", help="Title of a picture or animation.  [default: describes its content]")
@click.option(
    "--fps", type=click.IntRange(1, 60), help="Frames per second of an animation.  [default: 12 in mp4, 6 in gif]"
)
@overwrite_option
@json_option
def command(model: str, out: str, format_: str | None, overwrite: bool, as_json: bool, **options: Any) -> None:
    """Export MODEL to a format that other programs read, or to a smaller one.

    Word vectors in the order of frequency (word2vec-text, word2vec-binary); the map of a dynamic embedding as a
    table (csv), as a picture of one time (png, svg) or as an animation (gif, mp4); or an HMM as a model directory of
    about a quarter of the size, whose tables are rounded to one byte a number (8-bit).
    """
    chosen = format_ or SUFFIXES.get(Path(out).suffix.lower())
    if chosen is None:
        raise click.UsageError(f"{out} has no suffix of a known format ({', '.join(SUFFIXES)}): add --format.")
    for name, formats in OPTIONS.items():
        if options[name] is not None and chosen not in formats:
            raise click.UsageError(f"--{name} applies to {', '.join(formats)}, not to {chosen}.")
    if out == "-" and chosen not in (*VECTORS.values(), "csv"):
        raise click.UsageError(f"{chosen} cannot be written to standard output: give a file with -o.")
    if out == "-" and as_json:
        raise click.UsageError(
            "The export and the --json report cannot both go to standard output: give a file with -o."
        )
    from undertow.atomic import check_file_target
    from undertow.cli.model import open_model

    if chosen == SMALL:
        show(_small(model, out, overwrite), as_json)
        return
    if out != "-":
        check_file_target(Path(out), overwrite=overwrite)
    if chosen in VECTORS.values():
        facts = _vectors(open_model(model, "word_vectors"), out, chosen, overwrite)
    else:
        facts = _map(open_model(model, "map_data").map_data(), out, chosen, overwrite, options)
    if out != "-":
        show(facts, as_json)


def _small(model: str, out: str, overwrite: bool) -> dict[str, Any]:
    from undertow.cli.model import open_model
    from undertow.storage import check_target

    check_target(out, overwrite)
    opened, before = open_model(model), _n_bytes(model)
    opened.save(out, overwrite=overwrite, bits=8)
    return {"model": out, "format": SMALL, "bytes": _n_bytes(out), "bytes_before": before}


def _n_bytes(directory: str) -> int:
    return sum(p.stat().st_size for p in Path(directory).iterdir())


def _vectors(opened: Any, out: str, chosen: str, overwrite: bool) -> dict[str, Any]:
    from undertow.adapters.word2vec import word2vec_rows, write_word2vec

    vectors = opened.word_vectors()
    known = vectors.any(axis=1)  # zeros stand for a word that the text never had: in most texts the unknown word
    words, vectors = [w for w, k in zip(opened.vocabulary_.words, known.tolist(), strict=True) if k], vectors[known]
    binary = chosen == "word2vec-binary"
    if out == "-":
        sys.stdout.buffer.writelines(word2vec_rows(words, vectors, binary))
    else:
        write_word2vec(out, words, vectors, binary, overwrite=overwrite)
    return {"vectors": out, "format": chosen, "words": len(words), "dimensions": vectors.shape[1]}


def _map(data: Any, out: str, chosen: str, overwrite: bool, options: dict[str, Any]) -> dict[str, Any]:
    from undertow.adapters.map_csv import map_csv_rows, write_map_csv
    from undertow.progress import Progress
    from undertow.view.map_pictures import save_film, save_picture

    if chosen == "csv":
        if out == "-":
            sys.stdout.buffer.writelines(map_csv_rows(data))
            return {}
        return {"map": out, "format": chosen, "rows": write_map_csv(data, out, overwrite=overwrite)}
    if chosen in ("png", "svg"):
        written = save_picture(
            data, out, time=options["time"], format=chosen, title=options["title"], overwrite=overwrite
        )
        return {"map": out, "format": chosen, "pictures": len(written)}
    with progress_bar() as report:
        n_pictures = save_film(
            data, out, format=chosen, title=options["title"], fps=options["fps"], overwrite=overwrite,
            progress=lambda done, total: report(Progress("render", done, total, "picture")),
        )  # fmt: skip
    return {"map": out, "format": chosen, "pictures": n_pictures}
