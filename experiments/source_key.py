"""Where results are kept: in a directory for the very source that made them.

    place = work_of(options.work, __file__)    # work/tagging_ner-1f0c9a3b2d

The key hashes the library's source, the script and the scripts of this folder that it imports, so that a figure made by
other code is never taken for one of this code. Settings and texts belong in the names of what is kept there.
"""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

import undertow

LIBRARY = Path(undertow.__file__).parent
ROOMS = ("text", "kernels", "models", "questions", "constraints", "results", "engine", "neural", "adapters")


# what reads models, and does not change how they are learned: folders and files of the library
TAGGERS = ("results/tagging", *(f"kernels/chain/{name}.py" for name in ("crf", "token_network", "span_probabilities")))


def work_of(work: Path, script: str | Path, without: tuple[str, ...] = ()) -> Path:
    """The directory, made if it is not there, for what this script makes with the source as it is now.

    What does not depend on some folders or files of the library is kept `without` them, as a model is without those
    that read it.
    """
    place = work / f"{Path(script).stem}-{source_key(script, without=without)}"
    place.mkdir(parents=True, exist_ok=True)
    return place


def source_key(script: str | Path, library: Path = LIBRARY, without: tuple[str, ...] = ()) -> str:
    """A few digits that change with the library or with the script or with any script that it imports."""
    digest = hashlib.sha256()
    files = [path for room in ROOMS for path in sorted((library / room).rglob("*.py"))]
    left_out = {library / name for name in without}
    files = [path for path in files if left_out.isdisjoint((path, *path.parents))]
    for name, path in [(str(p.relative_to(library)), p) for p in files] + [(p.name, p) for p in scripts_of(script)]:
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:10]


def scripts_of(script: str | Path) -> list[Path]:
    """The script and the scripts beside it that it imports, directly or not."""
    found: list[Path] = []
    todo = [Path(script).resolve()]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.append(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            todo += [p for p in (path.with_name(f"{name}.py") for name in names) if p.exists()]
    return sorted(found)
