"""How a moving map is saved: its events, names and filtered path as tensors; what is smoothed is smoothed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from undertow.errors import InputError, short
from undertow.kernels.gaussian.linalg import check_covariance
from undertow.models.base import Estimator, SavedState, TensorSpec
from undertow.models.dynamic.names import Names, pack, unpack
from undertow.text.event_times import clean_time
from undertow.text.events import LARGEST_COUNT, Events, check_kinds

Array = npt.NDArray[np.float64]

LARGEST_DRIFT = 1e6  # variance of a step: a map is a few units wide
ROUNDING = 1e-8  # share of the largest variance by which an eigenvalue may come out negative


class SavedMap(Estimator):
    """The fitted state of a moving map, and its way to a directory and back."""

    events_: Events
    drift_: Array  # (2,) σ² of rows, of columns
    start_variance_: float
    tempering_: float
    burstiness_: float
    link_weights_: Array  # (2, 4) what links are told by, as `dynamic_links` has it
    covariance_: str
    covariance_reason_: str
    filtered_means_: Array  # (T, n, d)
    filtered_covariances_: Array  # (T, n d, n d) or (T, n, d, d)
    _names: Names
    _cache: dict[str, Any]

    def _prepare(self) -> None:
        """What queries share; the smoother runs when it is first asked for."""
        self._names = Names(self.events_.row_names, self.events_.column_names, self.events_.kind_names)
        self._cache = {}

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
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

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        events = self.events_
        (row_names, row_ends), (column_names, column_ends) = pack(events.row_names), pack(events.column_names)
        tables = [t.tocoo() for t in events.tables]
        return {
            "column_ends": column_ends,
            "column_names": column_names,
            "drift": self.drift_,
            "event_columns": np.concatenate([t.col for t in tables]).astype(np.int32),
            "event_counts": np.concatenate([t.data for t in tables]),
            "event_rows": np.concatenate([t.row for t in tables]).astype(np.int32),
            "event_steps": np.cumsum([0, *(t.nnz for t in tables)]).astype(np.int64),
            "filtered_covariances": self.filtered_covariances_,
            "filtered_means": self.filtered_means_,
            "gaps": np.array(events.gaps),
            "link_weights": self.link_weights_,
            "row_ends": row_ends,
            "row_names": row_names,
        }

    def _fitted_scalars(self) -> dict[str, Any]:
        events = self.events_
        return {
            "dim": int(self.filtered_means_.shape[2]),
            "n_times": len(events.times),
            "n_rows": len(events.row_names),
            "n_columns": len(events.column_names),
            "n_events": events.n_events,
            "row_bytes": sum(len(x.encode()) for x in events.row_names),
            "column_bytes": sum(len(x.encode()) for x in events.column_names),
            "times": events.times,
            "kind_names": list(events.kind_names),
            "covariance": self.covariance_,
            "covariance_reason": self.covariance_reason_,
            "start_variance": self.start_variance_,
            "tempering": self.tempering_,
            "burstiness": self.burstiness_,
        }

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        f = state.fitted
        rows, columns, counts = (tensors[f"event_{k}"] for k in ("rows", "columns", "counts"))
        steps, gaps = tensors["event_steps"], tensors["gaps"]
        if len(f["times"]) != f["n_times"] or [clean_time(t, "times") for t in f["times"]] != f["times"]:
            raise InputError("the times are not as undertow writes them.")
        if len(set(f["times"])) < len(f["times"]):
            raise InputError("a time is there twice.")
        if (np.diff(steps) < 0).any() or steps[0] != 0 or steps[-1] != len(counts) or not len(counts):
            raise InputError("the steps do not fit the events.")
        if min(rows.min(), columns.min()) < 0 or rows.max() >= f["n_rows"] or columns.max() >= f["n_columns"]:
            raise InputError("an event names an entity that is not there.")
        if not (counts.min() > 0 and counts.max() <= LARGEST_COUNT):
            raise InputError(f"a count of events does not lie between 0 and {LARGEST_COUNT:g}.")
        if gaps[0] != 0 or not (gaps[1:] > 0).all():
            raise InputError("the gaps between the times are not positive.")
        check_kinds(f["kind_names"])
        if f["covariance"] not in ("full", "blocks"):
            raise InputError(f"the form of the covariances is {short(f['covariance'])}, not 'full' or 'blocks'.")
        if not 0 < tensors["drift"].min() <= tensors["drift"].max() <= LARGEST_DRIFT:
            raise InputError("the drift is no positive variance.")
        for name in ("start_variance", "tempering"):
            if not f[name] > 0:
                raise InputError(f"{name}={short(f[name])} is not positive.")
        if not f["burstiness"] >= 0:
            raise InputError(f"burstiness={short(f['burstiness'])} is negative.")
        check_covariance(tensors["filtered_covariances"], "covariance of the positions", ROUNDING)

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        f = state.fitted
        shape, steps = (f["n_rows"], f["n_columns"]), tensors["event_steps"]
        rows, columns, counts = (tensors[f"event_{k}"] for k in ("rows", "columns", "counts"))
        tables = [
            sp.coo_array((counts[a:b], (rows[a:b], columns[a:b])), shape=shape).tocsr()
            for a, b in zip(steps[:-1].tolist(), steps[1:].tolist(), strict=True)
        ]
        row_names, column_names = (unpack(tensors[f"{k}_names"], tensors[f"{k}_ends"]) for k in ("row", "column"))
        kinds = (f["kind_names"][0], f["kind_names"][1])
        self.events_ = Events(list(f["times"]), tensors["gaps"].tolist(), row_names, column_names, tables, kinds)
        self.drift_ = tensors["drift"]
        self.link_weights_ = tensors["link_weights"]
        self.filtered_means_ = tensors["filtered_means"]
        self.filtered_covariances_ = tensors["filtered_covariances"]
        self.covariance_ = f["covariance"]
        self.covariance_reason_ = str(f["covariance_reason"])
        for name in ("start_variance", "tempering", "burstiness"):
            setattr(self, name + "_", float(f[name]))
        self._prepare()
