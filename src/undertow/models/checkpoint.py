"""Checkpoints of a fit: after a kill the same call goes on from the last finished iteration, with the same bits.

A checkpoint lies in a directory of its own, named by a hash of everything the result depends on (the estimator's
parameters, the data, the version), so that no other fit takes it over. It is one safetensors file, replaced atomically:
the arrays as tensors and the tree that holds them as JSON, with a digest over both. Only tuples, lists, dictionaries,
numbers, text, arrays, and the named tuples and frozen dataclasses of undertow are written or read; nothing is pickled.
Like any unfinished work of your own it is trusted: do not continue from a checkpoint that somebody sent you.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from undertow.atomic import exclusive_lock
from undertow.errors import InputError, short
from undertow.files import parse_json
from undertow.models.base import Estimator
from undertow.text.corpus import Corpus
from undertow.text.counting import corpus_key
from undertow.text.events import Events
from undertow.text.lag_counts import LagCounts

EVERY_SECONDS = 60.0
SOONEST_SECONDS = 5.0
TIMES_ITS_COST = 30  # a state that is written quickly is written more often, at 3 % of the time
STATE = "state.safetensors"
IGNORED_PARAMS = {"callbacks", "verbose", "n_jobs"}  # they change no bit of the result
Arrays = dict[str, NDArray[Any]]


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written or read; the fit goes on without it."""


class Checkpoint:
    """Where a fit keeps its state.

    Parameters
    ----------
    path
        A directory; several fits may share it. What is no longer needed is removed.
    every_seconds
        Least time between two writes; 0 writes after every iteration. None takes 5 seconds to a minute, by how long
        a write takes.
    """

    def __init__(self, path: str | os.PathLike[str], *, every_seconds: float | None = None) -> None:
        self.path = Path(path)
        self.every_seconds = every_seconds


CheckpointSource = str | os.PathLike[str] | Checkpoint | None


class OpenCheckpoint:
    """The checkpoint of one running fit; without a directory it does nothing."""

    def __init__(
        self,
        directory: Path | None,
        every_seconds: float | None,
        rng: np.random.Generator | None,
        repeat_start: bool = False,
    ) -> None:
        self._directory, self._rng = directory, rng
        self._by_cost = every_seconds is None
        self._every = min(EVERY_SECONDS, SOONEST_SECONDS) if every_seconds is None else every_seconds
        self._begin = None if rng is None or not repeat_start else rng.bit_generator.state
        self._written = time.monotonic()
        self.interrupted = False
        self.state: Any = None  # of the iterations; None for a fit that begins
        self.loop: Any = None  # of run_iterations
        if directory is None:
            return
        saved = _read(directory / STATE)
        if saved is not None:
            random, self.loop, self.state = saved
            if rng is not None:
                rng.bit_generator.state = random
            self._begin = random if repeat_start else None

    def write_if_due(self, loop: Any, state: Callable[[], Any] | None) -> None:
        """Keep the state of the loop and of the iterations, unless that was done a short time ago."""
        if self._directory is None or state is None or time.monotonic() - self._written < self._every:
            return
        began = time.monotonic()
        try:
            random = self._begin
            if random is None and self._rng is not None:
                random = self._rng.bit_generator.state
            _write(self._directory / STATE, (random, loop, state()))
            if self._by_cost:
                cost = time.monotonic() - began
                self._every = min(EVERY_SECONDS, max(SOONEST_SECONDS, TIMES_ITS_COST * cost))
        except OSError as e:
            self._every = float("inf")
            warnings.warn(
                f"{self._directory} could not be written ({e.strerror or e}): the fit goes on without checkpoints.",
                CheckpointWarning,
                stacklevel=2,
            )
        self._written = time.monotonic()

    def remove(self) -> None:
        if self._directory is not None:
            (self._directory / STATE).unlink(missing_ok=True)


@contextlib.contextmanager
def open_checkpoint(
    checkpoint: CheckpointSource,
    model: Estimator,
    data: object,
    rng: np.random.Generator | None = None,
    *,
    repeat_start: bool = False,
) -> Iterator[OpenCheckpoint]:
    """The checkpoint of a fit of `model` to `data`; it is removed when the block ends well and uninterrupted.

    Parameters
    ----------
    checkpoint
        As `fit` was given it; None for none.
    model
        What is fitted; its parameters are part of the checkpoint's name.
    data
        All else that the result depends on: corpora, counts, events, arrays, numbers, text and tuples of them.
    rng
        The generator of the fit, before anything was drawn.
    repeat_start
        Whether a fit that goes on does again what comes before the first iteration: its generator is then brought to
        where the fit began, otherwise to where the checkpoint was written.
    """
    checkpoint = as_checkpoint(checkpoint)
    if checkpoint is None:
        yield OpenCheckpoint(None, 0.0, None)
        return
    directory = checkpoint.path / f"{model.kind}-{fit_key(model, data)[:24]}"
    with exclusive_lock(directory, "fitting"):
        opened = OpenCheckpoint(directory, checkpoint.every_seconds, rng, repeat_start)
        yield opened
        if not opened.interrupted:
            opened.remove()
    with contextlib.suppress(OSError):  # other fits may have theirs there
        checkpoint.path.rmdir()


def as_checkpoint(checkpoint: CheckpointSource) -> Checkpoint | None:
    """A checkpoint as `fit` takes it: the directory, a Checkpoint as it is, or None."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    if not isinstance(checkpoint, str | os.PathLike):
        raise InputError(f"checkpoint={short(checkpoint)} must be a directory, a Checkpoint, or None.")
    return Checkpoint(checkpoint)


def fit_key(model: Estimator, data: object) -> str:
    """Hash of everything that a fit depends on."""
    from undertow import __version__

    params = {name: value for name, value in model.get_params().items() if name not in IGNORED_PARAMS}
    if isinstance(params.get("random_state"), np.random.Generator):
        params["random_state"] = params["random_state"].bit_generator.state
    shown = {name: value if isinstance(value, dict) else repr(value) for name, value in params.items()}
    return tree_digest([__version__, model.kind, shown, _plain(data)])


def _plain(data: object) -> Any:
    """What the data are, as a tree of arrays, numbers and text."""
    if isinstance(data, Corpus):  # a part of a corpus has the manifest of the whole, but no path
        text = corpus_key(data) if data.path is not None else [np.asarray(data.ids), np.asarray(data.offsets)]
        return [text, data.vocabulary.fingerprint(), np.asarray(data.vocabulary.counts)]
    if isinstance(data, LagCounts):
        rows = [tuple(map(np.asarray, r)) for k in range(1, data.lags + 1) for r in data._lag(k)]
        return [data.vocabulary.fingerprint(), np.asarray(data.vocabulary.counts), data.across, rows]
    if isinstance(data, Events):
        tables = [(t.indptr, t.indices, t.data) for t in data.tables]
        return [repr(data.times), data.gaps, data.row_names, data.column_names, list(data.kind_names), tables]
    if isinstance(data, tuple) and not hasattr(data, "_fields"):
        return [_plain(item) for item in data]
    return data


# --- trees of arrays as a file ----------------------------------------------------------------------------


def _write(path: Path, tree: Any) -> None:
    arrays: Arrays = {}
    text = json.dumps(pack(tree, arrays), allow_nan=False)
    new = path.with_name(f".{path.name}.tmp")
    try:
        safetensors.numpy.save_file(arrays, new, metadata={"tree": text, "digest": _digest(text, arrays)})
    except safetensors.SafetensorError as e:
        raise OSError(str(e)) from e
    with open(new, "rb+") as f:
        os.fsync(f.fileno())
    os.replace(new, path)


def _read(path: Path) -> Any:
    """What `_write` wrote, or None if there is nothing, or nothing that can be trusted."""
    if not path.is_file():
        return None
    try:
        with safetensors.safe_open(path, framework="numpy") as f:
            about = f.metadata()
            arrays = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118  # no mapping
        if _digest(about["tree"], arrays) != about["digest"]:
            raise ValueError("its digest is another")
        return unpack(parse_json(about["tree"].encode()), arrays)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, safetensors.SafetensorError) as e:
        warnings.warn(
            f"{path} cannot be continued from ({' '.join(str(e).split())}): the fit begins anew.",
            CheckpointWarning,
            stacklevel=2,
        )
        return None


def tree_digest(tree: Any) -> str:
    """Hash of a tree of arrays."""
    arrays: Arrays = {}
    return _digest(json.dumps(pack(tree, arrays), allow_nan=False), arrays)


def _digest(text: str, arrays: Arrays) -> str:
    h = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        h.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        h.update(arrays[name].reshape(-1).view(np.uint8).data)
    return h.hexdigest()


def pack(tree: Any, arrays: Arrays) -> Any:
    """The tree as JSON, with its arrays put into `arrays`; an array that occurs twice is kept once."""
    known: dict[int, Any] = {}

    def go(x: Any) -> Any:
        if x is None or isinstance(x, bool | str) or type(x) is int:
            return x
        if type(x) is float:
            return {"float": x.hex()}  # all bits, and infinity and NaN too
        if isinstance(x, np.ndarray | np.generic):
            if id(x) not in known:
                array = np.asarray(x)
                columns_first = array.flags.f_contiguous and not array.flags.c_contiguous
                name = f"a{len(arrays)}"
                arrays[name] = np.asarray(array.T if columns_first else array, order="C")
                # the order of the numbers is kept: products of matrices round by it
                known[id(x)] = {"array": name, "columns_first": columns_first, "scalar": isinstance(x, np.generic)}
            return known[id(x)]
        if isinstance(x, list):
            return [go(item) for item in x]
        if isinstance(x, dict):
            return {"dict": [[go(key), go(value)] for key, value in x.items()]}
        if isinstance(x, tuple) and type(x) is tuple:
            return {"tuple": [go(item) for item in x]}
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return {"type": _name(type(x)), "values": [go(item) for item in x]}
        if dataclasses.is_dataclass(x) and not isinstance(x, type):
            values = [go(getattr(x, f.name)) for f in dataclasses.fields(x) if f.init]
            return {"type": _name(type(x)), "values": values}
        raise TypeError(f"a checkpoint cannot hold {type(x).__name__}")

    return go(tree)


def unpack(tree: Any, arrays: Arrays) -> Any:
    """What `pack` was given."""
    # copies: Numba compiles once more for arrays that cannot be written
    made: dict[str, NDArray[Any]] = {name: np.array(x) for name, x in arrays.items()}

    def go(x: Any) -> Any:
        if isinstance(x, list):
            return [go(item) for item in x]
        if not isinstance(x, dict):
            return x
        if "float" in x:
            return float.fromhex(x["float"])
        if "array" in x:
            array = made[x["array"]]
            return array[()] if x["scalar"] else array.T if x["columns_first"] else array
        if "dict" in x:
            return {go(key): go(value) for key, value in x["dict"]}
        if "tuple" in x:
            return tuple(go(item) for item in x["tuple"])
        return _class(x["type"])(*(go(item) for item in x["values"]))

    return go(tree)


def _name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _class(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not module.startswith("undertow."):
        raise ValueError(f"it names the foreign class {short(name)}")
    cls = getattr(importlib.import_module(module), attribute)
    if not (dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))):
        raise ValueError(f"it names the class {short(name)}, which is not a record")
    return cls


__all__ = [
    "Checkpoint",
    "CheckpointSource",
    "CheckpointWarning",
    "OpenCheckpoint",
    "as_checkpoint",
    "fit_key",
    "open_checkpoint",
    "pack",
    "tree_digest",
    "unpack",
]
