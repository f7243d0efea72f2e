"""Pair counts as a directory: its files, opening it, and counting into it.

There is one file for each lag and block of rows (`count_shards`), `vocabulary.txt` with the counts of the words, and
`manifest.json`, written last. Unfinished work is in `<name>.partial`, under a name that only the same work reuses.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from undertow.atomic import READY, DirectoryKind, install_directory, resumable_staging
from undertow.engine import Engine, Serial
from undertow.errors import FormatError
from undertow.files import Fields, check_files, describe_files, write_sealed
from undertow.progress import ProgressFn
from undertow.recipe import Recipe, Target, check_target, recipe, write_recipe
from undertow.text import counting
from undertow.text.corpus import MANIFEST, VOCABULARY, Corpus, read_manifest
from undertow.text.count_shards import Rows, RowsFile, shard_name
from undertow.text.vocabulary import Vocabulary

FORMAT = "undertow counts"
VERSION = 2  # 1: shards of an own format (.csr)
COUNTS = DirectoryKind(
    "counts",
    MANIFEST,
    re.compile(rf"{re.escape(VOCABULARY)}|{re.escape(MANIFEST)}|lag\d+-rows\d+\.(csr|safetensors)"),
    lambda manifest: manifest.get("format") == FORMAT,
)
WORK = re.compile(r"work(-[0-9a-f]{24})?")  # without a hash: of an older undertow

# what a manifest says beside its format, version, files and digest
FIELDS: Fields = {
    "n_tokens": int, "n_words": int, "n_lags": int, "across": bool, "tokenizer": (dict, type(None)), "row_edges": list,
    "pairs": list, "nnz": list,
}  # fmt: skip


def read_counts_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a counts directory, checked by itself."""
    manifest = read_manifest(path, FORMAT, VERSION, FIELDS)
    for name in ("pairs", "nnz"):
        if len(manifest[name]) != manifest["n_lags"] or any(type(n) is not int or n < 0 for n in manifest[name]):
            raise FormatError(f"{path / MANIFEST}: {name} is not a number for each lag; count again.")
    return manifest


def open_counts(path: Path, verify: bool) -> tuple[dict[str, Any], Vocabulary, list[list[Rows]]]:
    """Manifest, vocabulary and, for each lag, the blocks of rows as views of the files, with unchecked columns."""
    manifest = read_counts_manifest(path)
    check_files(path, manifest["files"], hashes=verify)
    vocabulary = Vocabulary.read(path / VOCABULARY)
    edges, lags = manifest["row_edges"], manifest["n_lags"]
    damaged = FormatError(f"{path}: the manifest and the files disagree; count again.")
    if (
        any(type(e) is not int for e in edges)
        or sorted(set(edges)) != edges
        or edges[:1] != [0]
        or edges[-1] != len(vocabulary)
        or len(vocabulary) != manifest["n_words"]
        or int(vocabulary.counts.sum()) != manifest["n_tokens"]
        or not 1 <= lags <= counting.MAX_LAGS
        or len(manifest["files"]) != 1 + lags * (len(edges) - 1)
    ):
        raise damaged
    blocks: list[list[Rows]] = []
    for k in range(1, lags + 1):
        blocks.append([])
        for b in range(len(edges) - 1):
            name = shard_name(k, b)
            if name not in manifest["files"]:
                raise damaged
            file = RowsFile(path / name)
            if file.n_rows != edges[b + 1] - edges[b]:
                raise damaged
            blocks[-1].append(file.map())
    if manifest["nnz"] != [sum(rows.nnz for rows in lag) for lag in blocks]:
        raise damaged
    return manifest, vocabulary, blocks


def finish_counts(
    directory: Path,
    vocabulary: Vocabulary,
    names: list[list[str]],
    edges: list[int],
    across: bool,
    tokenizer: dict[str, Any] | None,
    made: Recipe,
) -> None:
    """Write vocabulary, recipe and manifest, which turn a directory of shards into a counts directory."""
    vocabulary.write(directory / VOCABULARY)
    write_recipe(directory, made)
    pairs, nnz = [], []
    for lag in names:
        files = [RowsFile(directory / name) for name in lag]
        pairs.append(sum(f.total() for f in files))
        nnz.append(sum(f.nnz for f in files))
    write_sealed(
        directory / MANIFEST,
        {
            "format": FORMAT,
            "version": VERSION,
            "n_tokens": int(vocabulary.counts.sum()),
            "n_words": len(vocabulary),
            "n_lags": len(names),
            "across": across,
            "tokenizer": tokenizer,
            "row_edges": edges,
            "pairs": pairs,
            "nnz": nnz,
            "files": describe_files(directory, [VOCABULARY, *(name for lag in names for name in lag)]),
        },
    )


def count_to_directory(
    corpus: Corpus,
    lags: int,
    across: bool,
    engine: Engine,
    target: Path,
    memory: int | None,
    overwrite: bool,
    progress: ProgressFn,
) -> bool:
    """Count the pairs of a corpus into a directory; True if the same counts were there already and are kept."""
    out = Path(os.path.abspath(target))
    made = counts_recipe(corpus, lags, across)
    if check_target(out, COUNTS, made, overwrite=overwrite) is Target.REUSE:
        return True
    counting.warm_up()
    edges = counting.row_edges(corpus.vocabulary.counts)
    cut = counting.plan(corpus, lags, edges, engine, memory)
    if cut.n_workers != engine.n_workers:
        engine = Serial()
    with resumable_staging(out, WORK, "counting") as staging:
        work = staging / work_name(corpus, lags, across, edges, cut.run)
        for other in staging.glob("work*"):
            if other != work:  # of another corpus, other options, or cut for another memory
                shutil.rmtree(other)
        work.mkdir(exist_ok=True)
        names = counting.count_to_files(corpus, lags, across, work.resolve(), engine, cut, progress)
        finished = set(itertools.chain.from_iterable(names))
        for path in work.iterdir():
            if path.name not in finished:
                path.unlink()  # a file that a killed worker was writing, or an earlier manifest
        finish_counts(work, corpus.vocabulary, names, edges, across, corpus.manifest.get("tokenizer"), made)
        # under its new name it is never taken for work again: from here on it could be the directory it replaced
        os.rename(work, staging / READY)
        install_directory(staging, out, COUNTS, overwrite=overwrite)
    return False


def counts_recipe(corpus: Corpus, lags: int, across: bool) -> Recipe:
    """What the counts of a corpus depend on."""
    key = f"{counting.corpus_key(corpus)} {corpus.vocabulary.fingerprint()}"
    return recipe([["the corpus", hashlib.sha256(key.encode()).hexdigest()]], {"lags": lags, "across": across})


def work_name(corpus: Corpus, lags: int, across: bool, edges: list[int], run: int) -> str:
    """A name for unfinished shards that depends on all their inputs, so that no other work reuses them."""
    depends_on = [VERSION, counting.corpus_key(corpus), lags, across, edges, run]
    return f"work-{hashlib.sha256(json.dumps(depends_on).encode()).hexdigest()[:24]}"
