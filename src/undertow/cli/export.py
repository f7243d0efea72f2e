"""undertow export: a model's word vectors, or its moving map, in the formats of other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import json_option, overwrite_option, progress_bar, show

VECTORS = {".txt": "word2vec-text", ".bin": "word2vec-binary"}
MAPS = {".csv": "csv", ".png": "png", ".svg": "svg", ".gif": "gif", ".mp4": "mp4"}
SUFFIXES = {**VECTORS, **MAPS}
# which formats an option speaks of
OPTIONS = {"time": ("png", "svg"), "title": ("png", "svg", "gif", "mp4"), "fps": ("gif", "mp4")}


@click.command()
@click.argument("model", type=click.Path())
@click.option(
    "-o", "--out", required=True, type=click.Path(),
    help="File to write, or - for standard output (vectors, csv). {time} in the name of a picture: one a time.",
)  # fmt: skip
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(SUFFIXES.values())),
    help="What to write.  [default: by the name's ending]",
)
@click.option("--time", help="The time a picture (png, svg) shows.  [default: the last]")
@click.option("--title", help="What stands above a picture or film.  [default: what is on it]")
@click.option("--fps", type=click.IntRange(1, 60), help="Pictures a second in a film.  [default: 12 in mp4, 6 in gif]")
@overwrite_option
@json_option
def command(model: str, out: str, format_: str | None, overwrite: bool, as_json: bool, **options: Any) -> None:
    """Write what MODEL knows for other programs.

    The vectors of all words, the most frequent first (word2vec-text, word2vec-binary); or of a dynamic embedding its
    map as a table (csv), as a picture at a time (png, svg) or as a film (gif, mp4).
    """
    chosen = format_ or SUFFIXES.get(Path(out).suffix.lower())
    if chosen is None:
        raise click.UsageError(f"{out} does not show a format by its name ({', '.join(SUFFIXES)}): add --format.")
    for name, formats in OPTIONS.items():
        if options[name] is not None and chosen not in formats:
            raise click.UsageError(f"--{name} goes with {', '.join(formats)}, not with {chosen}.")
    if out == "-" and chosen not in (*VECTORS.values(), "csv"):
        raise click.UsageError(f"A {chosen} does not go to standard output: give a file with -o.")
    if out == "-" and as_json:
        raise click.UsageError("Standard output takes the export or the --json report, not both: give a file with -o.")
    from undertow.atomic import check_file_target
    from undertow.cli.model import open_model

    if out != "-":
        check_file_target(Path(out), overwrite=overwrite)
    if chosen in VECTORS.values():
        facts = _vectors(open_model(model, "word_vectors"), out, chosen, overwrite)
    else:
        facts = _map(open_model(model, "map_data").map_data(), out, chosen, overwrite, options)
    if out != "-":
        show(facts, as_json)


def _vectors(opened: Any, out: str, chosen: str, overwrite: bool) -> dict[str, Any]:
    from undertow.adapters.word2vec import word2vec_rows, write_word2vec

    words, vectors = opened.vocabulary_.words, opened.word_vectors()
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
            progress=lambda done, total: report(Progress("filming", done, total, "picture")),
        )  # fmt: skip
    return {"map": out, "format": chosen, "pictures": n_pictures}
