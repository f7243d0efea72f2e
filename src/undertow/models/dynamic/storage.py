"""Saving a moving map: events, names and the filtered path as tensors; smoothed values are computed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from undertow.errors import InputError, short
from undertow.kernels.gaussian.linalg import check_covariance
from undertow.kernels.types import I64
from undertow.models.base import SavedState, TensorSpec
from undertow.models.dynamic.state import FittedMap
from undertow.text.event_times import clean_time
from undertow.text.events import LARGEST_COUNT, Events, check_kinds

MAX_DRIFT = 1e6  # variance per unit of time: a map is a few units wide
ROUNDING = 1e-8  # relative to the largest variance, how negative rounding may make an eigenvalue


def tensor_spec(state: SavedState) -> dict[str, TensorSpec]:
    """Name, dtype and shape of every tensor."""
    f = state.fitted
    a, w, d, T = (f[k] for k in ("n_rows", "n_columns", "dim", "n_times"))
    n = a + w
    cov = (T, n, d, d) if f["covariance"] == "blocks" else (T, n * d, n * d)
    return {
        "column_ends": TensorSpec("int64", (w,)),
        "column_names": TensorSpec("uint8", (f["column_bytes"],)),
        "drift": TensorSpec("float64", (2,)),
        "event_columns": TensorSpec("int32", (f["n_events"],)),
        "event_counts": TensorSpec("float64", (f["n_events"],)),
        "event_rows": TensorSpec("int32", (f["n_events"],)),
        "event_steps": TensorSpec("int64", (T + 1,)),
        "filtered_covariances": TensorSpec("float64", cov),
        "filtered_means": TensorSpec("float64", (T, n, d)),
        "gaps": TensorSpec("float64", (T,)),
        "link_weights": TensorSpec("float64", (2, 4)),
        "row_ends": TensorSpec("int64", (a,)),
        "row_names": TensorSpec("uint8", (f["row_bytes"],)),
    }


def to_tensors(fitted: FittedMap) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a map, and its names as bytes."""
    events = fitted.events
    (row_names, row_ends), (column_names, column_ends) = pack_names(events.row_names), pack_names(events.column_names)
    tables = [t.tocoo() for t in events.tables]
    return {
        "column_ends": column_ends,
        "column_names": column_names,
        "drift": fitted.drift,
        "event_columns": np.concatenate([t.col for t in tables]).astype(np.int32),
        "event_counts": np.concatenate([t.data for t in tables]),
        "event_rows": np.concatenate([t.row for t in tables]).astype(np.int32),
        "event_steps": np.cumsum([0, *(t.nnz for t in tables)]).astype(np.int64),
        "filtered_covariances": fitted.filtered_covariances,
        "filtered_means": fitted.filtered_means,
        "gaps": np.array(events.gaps),
        "link_weights": fitted.link_weights,
        "row_ends": row_ends,
        "row_names": row_names,
    }


def to_scalars(fitted: FittedMap) -> dict[str, Any]:
    """The values of a map that are not tensors, for JSON."""
    events = fitted.events
    return {
        "dim": int(fitted.filtered_means.shape[2]),
        "n_times": len(events.times),
        "n_rows": len(events.row_names),
        "n_columns": len(events.column_names),
        "n_events": events.n_events,
        "row_bytes": sum(len(x.encode()) for x in events.row_names),
        "column_bytes": sum(len(x.encode()) for x in events.column_names),
        "times": events.times,
        "kind_names": list(events.kind_names),
        "covariance": fitted.covariance,
        "covariance_reason": fitted.covariance_reason,
        "start_variance": fitted.start_variance,
        "tempering": fitted.tempering,
        "burstiness": fitted.burstiness,
        "free_frequencies": fitted.free_frequencies,
    }


def check_values(tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
    """Raise InputError for values that no fit gives."""
    f = state.fitted
    rows, columns, counts = (tensors[f"event_{k}"] for k in ("rows", "columns", "counts"))
    steps, gaps = tensors["event_steps"], tensors["gaps"]
    if len(f["times"]) != f["n_times"] or [clean_time(t, "times") for t in f["times"]] != f["times"]:
        raise InputError("the times are not in the form in which undertow writes them.")
    if len(set(f["times"])) < len(f["times"]):
        raise InputError("a time occurs twice.")
    if (np.diff(steps) < 0).any() or steps[0] != 0 or steps[-1] != len(counts) or not len(counts):
        raise InputError("the step boundaries do not match the events.")
    if min(rows.min(), columns.min()) < 0 or rows.max() >= f["n_rows"] or columns.max() >= f["n_columns"]:
        raise InputError("an event refers to an entity that does not exist.")
    if not (counts.min() > 0 and counts.max() <= LARGEST_COUNT):
        raise InputError(f"an event count is not between 0 and {LARGEST_COUNT:g}.")
    if gaps[0] != 0 or not (gaps[1:] > 0).all():
        raise InputError("the gaps between the times are not positive.")
    check_kinds(f["kind_names"])
    if f["covariance"] not in ("full", "blocks"):
        raise InputError(f"the form of the covariances is {short(f['covariance'])}, not 'full' or 'blocks'.")
    if not 0 < tensors["drift"].min() <= tensors["drift"].max() <= MAX_DRIFT:
        raise InputError("the drift is not a positive variance.")
    for name in ("start_variance", "tempering"):
        if not f[name] > 0:
            raise InputError(f"{name}={short(f[name])} is not positive.")
    if not f["burstiness"] >= 0:
        raise InputError(f"burstiness={short(f['burstiness'])} is negative.")
    if not isinstance(f["free_frequencies"], bool):
        raise InputError(f"free_frequencies={short(f['free_frequencies'])} is not true or false.")
    check_covariance(tensors["filtered_covariances"], "covariance of the positions", ROUNDING)


def from_tensors(tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> FittedMap:
    """The map from checked tensors."""
    f = state.fitted
    shape, steps = (f["n_rows"], f["n_columns"]), tensors["event_steps"]
    rows, columns, counts = (tensors[f"event_{k}"] for k in ("rows", "columns", "counts"))
    tables = [
        sp.coo_array((counts[a:b], (rows[a:b], columns[a:b])), shape=shape).tocsr()
        for a, b in zip(steps[:-1].tolist(), steps[1:].tolist(), strict=True)
    ]
    row_names, column_names = (unpack_names(tensors[f"{k}_names"], tensors[f"{k}_ends"]) for k in ("row", "column"))
    kinds = (f["kind_names"][0], f["kind_names"][1])
    events = Events(list(f["times"]), tensors["gaps"].tolist(), row_names, column_names, tables, kinds)
    return FittedMap(
        events=events,
        filtered_means=tensors["filtered_means"],
        filtered_covariances=tensors["filtered_covariances"],
        covariance=f["covariance"],
        covariance_reason=str(f["covariance_reason"]),
        drift=tensors["drift"],
        start_variance=float(f["start_variance"]),
        tempering=float(f["tempering"]),
        burstiness=float(f["burstiness"]),
        free_frequencies=bool(f["free_frequencies"]),
        link_weights=tensors["link_weights"],
    )


# --- names as bytes --------------------------------------------------------------------------------------


def pack_names(names: Sequence[str]) -> tuple[npt.NDArray[np.uint8], I64]:
    """All names in UTF-8, concatenated, and where each ends."""
    encoded = [name.encode("utf-8") for name in names]
    ends = np.cumsum([len(e) for e in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8).copy(), ends


def unpack_names(data: npt.NDArray[np.uint8], ends: I64) -> list[str]:
    raw = data.tobytes()
    starts = np.concatenate(([0], ends[:-1]))
    if len(ends) and (ends[-1] != len(raw) or (ends < starts).any()):
        raise ValueError("the ends of the names do not match their bytes")
    names = [raw[a:b].decode("utf-8") for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    if len(set(names)) < len(names):
        raise ValueError("a name occurs twice")
    return names
