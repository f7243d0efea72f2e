"""One rule for every directory that undertow makes: corpora, counts, models and taggers.

Each keeps a recipe: the hashes of its inputs, and the options that its content depends on. Where a directory of the
same recipe is there already, it is reused, and that is said; one that was left unfinished is continued; any other is
refused, naming what differs and the cure. What a command makes on its way to a model is named apart where its name is
taken. The recipe decides about nothing else, so it is not part of the directory's hashes.
"""

from __future__ import annotations

import enum
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from undertow.atomic import RECIPE, DirectoryKind, check_directory_target, exists_error, written_by_undertow
from undertow.errors import FormatError, InputError, short
from undertow.files import read_json, sha256_file, write_json

REUSED = logging.getLogger("undertow.reuse")
MOST_SHOWN = 4  # differences in one message

Inputs = list[list[str | None]]  # name and hash; the hash is None where an input cannot be read twice


class Recipe(NamedTuple):
    """What a directory was made from, and how."""

    inputs: Inputs
    options: dict[str, Any]  # as JSON holds them
    finished: bool = True  # False for a fit that Ctrl-C ended

    def key(self) -> str:
        """A hash of all but whether it is finished; another one each time if an input cannot be read twice."""
        once = os.urandom(8).hex() if any(known is None for _, known in self.inputs) else ""
        text = json.dumps([self.inputs, self.options, once], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


class Target(enum.Enum):
    """What to do about a directory that is to be made."""

    MAKE = "make"
    CONTINUE = "continue"  # an unfinished one of the same recipe is there
    REUSE = "reuse"


def recipe(inputs: Inputs, options: Mapping[str, Any]) -> Recipe:
    """A recipe of options that JSON can hold; it then compares as it will be read."""
    return Recipe(inputs, json.loads(json.dumps(dict(options), default=_number)))


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else repr(value)  # NumPy's; and what no option can be


def hashed_files(names: Iterable[str | os.PathLike[str]]) -> Inputs:
    """Files by their names without directories, and their hashes; pipes and standard input can be read only once."""
    found: Inputs = []
    for name in names:
        path = Path(name)
        plain = os.fspath(name) != "-" and path.is_file()  # whether it is there at all is said by who reads it
        found.append([path.name, sha256_file(path) if plain else None])
    return found


def check_target(
    target: Path, kind: DirectoryKind, wanted: Recipe, *, overwrite: bool = False, said: bool = True
) -> Target:
    """Whether to make a directory, to continue it or to reuse what is there; an InputError if it may not be replaced.

    Parameters
    ----------
    target
        The directory.
    kind
        What it will hold.
    wanted
        How it will be made.
    overwrite
        Make it, whatever undertow has put there.
    said
        Log a line when the directory is reused.
    """
    if overwrite or target.is_symlink() or not target.is_dir():
        check_directory_target(target, kind, overwrite=overwrite)
        return Target.MAKE
    there = read_recipe(target) if written_by_undertow(target, kind) else None
    if there is None:
        raise exists_error(target)
    different = differences(there, wanted)
    if different:
        raise InputError(
            f"{target} exists already and was made differently ({'; '.join(different)}): give another name, or replace "
            "it with --overwrite (in Python overwrite=True)."
        )
    if not there.finished:
        return Target.CONTINUE
    if said:
        REUSED.info("%s is there already, made from the same input with the same options: reused.", target)
    return Target.REUSE


def read_recipe(directory: Path) -> Recipe | None:
    """The recipe of a directory, or None if it has none that can be understood."""
    if not (directory / RECIPE).is_file():
        return None
    try:
        found = Recipe(**read_json(directory / RECIPE))
    except (FormatError, TypeError):
        return None
    pairs = isinstance(found.inputs, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in found.inputs)
    return found if pairs and isinstance(found.options, dict) and isinstance(found.finished, bool) else None


def write_recipe(directory: Path, made: Recipe) -> None:
    """Write the recipe into a directory that is being made."""
    write_json(directory / RECIPE, made._asdict())


def differences(there: Recipe, wanted: Recipe) -> list[str]:
    """What differs between two recipes, in words; empty if nothing does."""
    found = []
    names = [[name for name, _ in r.inputs] for r in (there, wanted)]
    if names[0] != names[1]:
        found.append(f"from {_listed(names[0])}, now {_listed(names[1])}")
    else:
        changed = [
            f"{name} has changed" if a is not None and b is not None else f"{name} cannot be compared"
            for (name, a), (_, b) in zip(there.inputs, wanted.inputs, strict=True)
            if a is None or a != b
        ]
        found += changed[:2]
    missing = object()
    for name in {**there.options, **wanted.options}:
        before, now = (r.options.get(name, missing) for r in (there, wanted))
        if before is missing or now is missing or before != now:
            shown = ["not given" if v is missing else _option(v) for v in (before, now)]
            found.append(f"{name} was {shown[0]}, now {shown[1]}")
    more = len(found) - MOST_SHOWN
    return found if more <= 0 else [*found[:MOST_SHOWN], f"and {more} more"]


def _listed(names: list[Any]) -> str:
    shown = ", ".join(map(str, names[:3]))
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _option(value: Any) -> str:
    return value if isinstance(value, str) and value and len(value) < 40 else short(value)


def name_apart(place: Path, kind: DirectoryKind, wanted: Recipe) -> Path:
    """Where to make or find what is only needed on the way: `news.corpus`, or `news-1a2b3c4d.corpus` if that is other.

    So neither is a command blocked by what another left beside its output, nor is that replaced.
    """
    if not os.path.lexists(place):
        return place
    there = read_recipe(place) if place.is_dir() and written_by_undertow(place, kind) else None
    if there is not None and not differences(there, wanted):
        return place
    return place.with_name(f"{place.stem}-{wanted.key()[:8]}{place.suffix}")
