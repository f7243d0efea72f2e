"""Positions of two kinds of entities on one moving map, with uncertainty: a Kalman filter over co-occurrence counts.

Authors and words (or countries and words, actors and directors…) have positions that drift; the nearer two are, the
more often they meet. After Sarkar, Siddiqi and Gordon (2006), with the information of the counts that the paper lacks,
a smoother, learned noise, link prediction and a form for large sets. See `docs/dynamic.md`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from undertow.engine import Engine, count_workers
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError, short
from undertow.kernels.types import F32, F64
from undertow.models.base import Estimator, SavedState, TensorSpec, check_engine
from undertow.models.constraints import (
    CALLBACKS,
    N_JOBS,
    RANDOM_STATE,
    Checked,
    Choice,
    Constraint,
    Number,
    Verbosity,
    Whole,
    check_random_state,
    is_number,
)
from undertow.models.dynamic import links, queries, storage
from undertow.models.dynamic.filter import MIN_VARIANCE
from undertow.models.dynamic.fit import FitOptions, extend_map, fit_map, fit_movement_map
from undertow.models.dynamic.links import Link
from undertow.models.dynamic.map_data import MapData, empirical_shares, make_map_data
from undertow.models.dynamic.queries import Mover, Movers, Neighbor, Timeline
from undertow.models.dynamic.state import FittedMap
from undertow.models.fitting import Callback, CheckpointSource, open_checkpoint
from undertow.tables import Table
from undertow.text.event_times import Time
from undertow.text.events import Events, EventSource

Name = str | tuple[str, str]
"""An entity: its name, or (kind, name) where the name is both a row and a column."""


def _drift_pair(drift: Any) -> tuple[float, float] | None:
    """The drift of rows and of columns; None if it is to be learned."""
    if drift is None:
        return None
    pair = (drift, drift) if is_number(drift) else tuple(drift) if isinstance(drift, list | tuple) else ()
    if len(pair) != 2 or not all(is_number(v) and 0 <= v <= storage.MAX_DRIFT for v in pair):
        raise InputError(
            f"DynamicEmbedding: drift={short(drift)} must be a variance up to {storage.MAX_DRIFT:g}, a pair (rows, "
            "columns) of them, or None."
        )
    return max(float(pair[0]), MIN_VARIANCE), max(float(pair[1]), MIN_VARIANCE)


class DynamicEmbedding(Estimator):
    """Positions of rows and columns that drift over time, from counts of how often they meet.

    Parameters
    ----------
    dim
        Coordinates of the map.
    purpose
        "look" takes counts at face value, so that the map follows them, and widens the uncertainty by their dispersion;
        "predict" damps repetitions, tempers the counts and keeps a wide prior, for a map that moves less and predicts
        the next step better; "auto" means "look" for dim ≤ 3, else "predict".
    n_iter
        Maximal number of iterations that learn the drift of a map to look at.
    drift
        Variance of a step, one number or (rows, columns). None learns it: from the evidence for purpose "look", by
        predicting the last training step for "predict".
    frequencies
        "free": fitted to each step together with the positions, so that positions say only who meets whom more often
        than others do, and the 90 % bands hold what they say; "sums": the sums of each step, as in the paper, so that
        distances follow observed shares most closely, with bands far too narrow; "auto": free for purpose "look" where
        the steps have four rows and columns or more, and at most a million pairs.
    tempering
        β, the weight of a count as evidence; None means 1 for "look" and 0.1 for "predict".
    burstiness
        k for counts with variance μ + k μ²: c repetitions count as log(1 + k c)/log(1 + k). None means 0 for "look" and
        10 for "predict".
    covariance
        "full", "blocks" (one block per entity), or "auto": full for up to 1,200 coordinates.
    tol
        Tolerance of the search for positions: log posterior per entity.
    random_state
        Seed or generator of the initial positions.
    n_jobs
        Threads; -1 means one per core. The result does not depend on it.
    verbose
        Log the progress to the logger "undertow".
    callbacks
        Functions called with a `TrainingEvent` after each iteration.

    Attributes
    ----------
    events_
        The events the map was fitted to.
    times_
        The steps, in order.
    names_
        All entities, rows first.
    history_
        Log evidence after each iteration, and after each `partial_fit`.
    filtered_means_, filtered_covariances_
        (T, n, dim) means and (T, n dim, n dim) or (T, n, dim, dim) covariances given the steps so far.
    covariance_, covariance_reason_
        The covariance form, "full" or "blocks", and why it was chosen.
    drift_
        (2,) variance of a step of rows and of columns.
    start_variance_
        Prior variance at the first step.
    frequencies_
        "free" or "sums".
    tempering_, burstiness_
        The values used.
    link_weights_
        (2, 4) weights of the link model: for pairs that never met and for pairs that did, the constant and the weights
        of log popularity, squared distance and past meetings.

    Examples
    --------
    >>> events = [(t, r, c, 9 if (r, c) in {("a", "x"), ("b", "y")} else 1) for t in (1, 2) for r in "ab" for c in "xy"]
    >>> model = DynamicEmbedding(dim=2, n_iter=2, random_state=0).fit(events)
    >>> model.nearest("a", 2, 1, of="column")[0].name
    'x'
    """

    kind = "dynamic"
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "dim": Whole(1, 1000),
        "purpose": Choice("auto", "look", "predict"),
        "n_iter": Whole(1),
        "drift": Checked(_drift_pair),
        "frequencies": Choice("auto", "free", "sums"),
        "tempering": Number(1e-9, 1e9) | None,
        "burstiness": Number(0, 1e9) | None,
        "covariance": Choice("auto", "full", "blocks"),
        "tol": Number(1e-15, 1e9),
        "random_state": RANDOM_STATE,
        "n_jobs": N_JOBS,
        "verbose": Verbosity(),
        "callbacks": CALLBACKS,
    }

    events_: Events
    filtered_means_: F64
    filtered_covariances_: F64
    covariance_: str
    covariance_reason_: str
    drift_: F64
    start_variance_: float
    tempering_: float
    burstiness_: float
    frequencies_: str
    link_weights_: F64
    _fitted: FittedMap
    _movement: FittedMap | None

    def __init__(
        self,
        dim: int = 2,
        *,
        purpose: str = "auto",
        n_iter: int = 10,
        drift: float | Sequence[float] | None = None,
        frequencies: str = "auto",
        tempering: float | None = None,
        burstiness: float | None = None,
        covariance: str = "auto",
        tol: float = 1e-4,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.dim = dim
        self.purpose = purpose
        self.n_iter = n_iter
        self.drift = drift
        self.frequencies = frequencies
        self.tempering = tempering
        self.burstiness = burstiness
        self.covariance = covariance
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def _options(self) -> FitOptions:
        return FitOptions(
            dim=int(self.dim),
            look=self.purpose == "look" or (self.purpose == "auto" and self.dim <= 3),
            free={"auto": None, "free": True, "sums": False}[self.frequencies],
            n_iter=int(self.n_iter),
            drift=_drift_pair(self.drift),
            tempering=self.tempering,
            burstiness=self.burstiness,
            covariance=self.covariance,
            tol=self.tol,
            n_threads=count_workers(self.n_jobs),
        )

    # --- fitting ----------------------------------------------------------------------------------------

    @one_blas_thread()
    def fit(
        self,
        X: EventSource,
        y: object = None,
        *,
        times: Sequence[Any] | None = None,
        engine: Engine | None = None,
        checkpoint: CheckpointSource = None,
    ) -> Self:
        """Fit the map to events.

        Parameters
        ----------
        X
            Events, a DataFrame, rows of (time, row, column, count), or the path of a CSV, TSV or JSON lines file.
        y
            Ignored.
        times
            The order of the steps, where numbers, dates or text do not give it; it may name steps without events.
        engine
            Refused: a map is fitted on this machine, by `n_jobs` threads.
        checkpoint
            A directory for the state of an unfinished fit, from which the same call goes on.

        Returns
        -------
        DynamicEmbedding
            The fitted model itself.

        Raises
        ------
        InputError
            If a parameter or an event is invalid, or the evidence is not finite.
        """
        self._check_params()
        check_engine("DynamicEmbedding", engine)
        rng = check_random_state(self.random_state)
        events = Events.build(X, times=times)
        with open_checkpoint(checkpoint, self, events, rng, repeat_start=True) as saved:
            fitted, history = fit_map(
                events, self._options(), rng, callbacks=self.callbacks, verbose=self.verbose, checkpoint=saved
            )
            self._set_fitted(fitted, history)
        return self

    @one_blas_thread()
    def partial_fit(self, X: EventSource, y: object = None, *, engine: Engine | None = None) -> Self:
        """Continue the filter over the events of later steps; earlier steps are not refitted.

        New names join the map with the prior of the first fit. A model that is not fitted yet is fitted.

        Parameters
        ----------
        X
            Events of steps after the last one, in any form that `fit` takes.
        y
            Ignored.
        engine
            Refused, as in `fit`.

        Returns
        -------
        DynamicEmbedding
            The model itself.

        Raises
        ------
        InputError
            If a step is not after the last one of the map.
        """
        check_engine("DynamicEmbedding", engine)
        if not self.__sklearn_is_fitted__():
            return self.fit(X)
        self._check_params()
        fitted, log_evidence = extend_map(
            self._fitted, Events.build(X), self.history_[-1], tol=self.tol, n_threads=count_workers(self.n_jobs)
        )
        self._set_fitted(fitted, [*self.history_, log_evidence])
        return self

    def _set_fitted(self, fitted: FittedMap, history: list[float] | None = None) -> None:
        self.events_ = fitted.events
        self.filtered_means_ = fitted.filtered_means
        self.filtered_covariances_ = fitted.filtered_covariances
        self.covariance_ = fitted.covariance
        self.covariance_reason_ = fitted.covariance_reason
        self.drift_ = fitted.drift
        self.start_variance_ = fitted.start_variance
        self.tempering_ = fitted.tempering
        self.burstiness_ = fitted.burstiness
        self.frequencies_ = "free" if fitted.free_frequencies else "sums"
        self.link_weights_ = fitted.link_weights
        self._fitted = fitted
        self._movement = None
        if history is not None:  # the storage restores it itself
            self.history_ = history

    def _map(self) -> FittedMap:
        """The fitted state, of which all queries are functions."""
        self._check_fitted()
        return self._fitted

    # --- queries on the fitted steps --------------------------------------------------------------------

    @property
    def times_(self) -> list[Time]:
        """The steps, in order."""
        return self._map().events.times

    @property
    def names_(self) -> list[str]:
        """All entities, rows first."""
        return self._map().entities.names

    def position(self, name: Name, time: Any, *, kind: str | None = None, filtered: bool = False) -> tuple[F64, F64]:
        """Position of an entity at a time.

        Parameters
        ----------
        name
            The entity; ("row", name) or ("column", name) for a name that is both.
        time
            One of `times_`.
        kind
            "row" or "column", or the name of the kind: another way to say which.
        filtered
            Use only the steps up to the time instead of all steps.

        Returns
        -------
        mean
            (dim,)
        covariance
            (dim, dim)

        Raises
        ------
        InputError
            If there is no such name or time, or the name is both a row and a column.
        """
        return queries.position(self._map(), name, time, kind, filtered)

    def distance(self, a: Name, b: Name, *, filtered: bool = False) -> Timeline:
        """Distance of two entities at every step.

        Parameters
        ----------
        a, b
            The entities.
        filtered
            Use only the steps up to each time instead of all steps.

        Returns
        -------
        Timeline
            Expected distance, and the edges of its 90 % band.
        """
        return queries.distance(self._map(), a, b, filtered)

    def affinity(self, a: Name, b: Name, *, filtered: bool = False) -> Timeline:
        """Log of how much more often two entities meet than their frequencies predict: −E|x_a − x_b|² − log Z.

        Unlike distances, which can all grow at little cost to the likelihood, affinities compare between steps and
        maps.

        Parameters
        ----------
        a, b
            The entities.
        filtered
            Use only the steps up to each time instead of all steps.

        Returns
        -------
        Timeline
            Expected value, and the edges of its 90 % band; a step without data has the Z of the step before.
        """
        return queries.affinity(self._map(), a, b, filtered)

    def nearest(
        self, name: Name, time: Any, n: int = 10, *, kind: str | None = None, of: str | None = None
    ) -> Table[Neighbor]:
        """The entities nearest to one at a time, among those with events then.

        They are ranked by `|x_j − x_i|² + tr Σ_j`, so that uncertain ones come later, as on the page of the map.

        Parameters
        ----------
        name, time
            The entity and the time, as in `position`.
        n
            How many.
        kind
            "row" or "column", for a name that is both.
        of
            Only rows, or only columns.

        Returns
        -------
        Table of Neighbor
            With the root of the expected squared distance.
        """
        return queries.nearest(self._map(), name, time, n, kind, of)

    def movers(self, n: int = 10, *, first: Any = None, last: Any = None, significance: float = 0.05) -> Movers:
        """The entities that moved most between two steps, of those whose movement is significant.

        Movement is tested with Wald's statistic on a separate map, fitted on first use: its frequencies are free (with
        the sums of a step as frequencies, words that stay would have to move), and its covariance is full; of large
        sets the most frequent entities are tested. See docs/dynamic.md.

        Parameters
        ----------
        n
            How many.
        first, last
            The two steps; by default the first and the last.
        significance
            False discovery rate: the share of those listed that is expected by chance.

        Returns
        -------
        Movers
            A list; its `verdict` says how many entities moved, or why none is listed.
        """
        return queries.movers(self._map(), self._movement_map, n, first, last, significance)

    def _movement_map(self) -> FittedMap:
        if self._movement is None:
            self._movement = self._fit_movement_map()
        return self._movement

    @one_blas_thread()
    def _fit_movement_map(self) -> FittedMap:
        return fit_movement_map(self._fitted.events, self._options(), verbose=self.verbose)

    # --- queries on the next step -----------------------------------------------------------------------

    def link_probabilities(self) -> F32:
        """Probability of each pair to meet at the next step, one median gap after the last.

        Returns
        -------
        array
            (rows, columns) in the order of the names of `events_`.
        """
        return links.link_probabilities(self._map())

    def predict_links(self, n: int | None = None, *, new: bool = False) -> Table[Link]:
        """The pairs most likely to meet at the next step.

        Parameters
        ----------
        n
            How many; needed where there are more than four million pairs.
        new
            Only pairs that have never met.

        Returns
        -------
        Table of Link
            The most probable first.

        Raises
        ------
        InputError
            If there are too many pairs to list without n.
        """
        return links.predict_links(self._map(), n, new)

    def log_likelihood(self, X: EventSource) -> float:
        """Mean log-probability per count of the pairs at one step.

        A step of the map is scored with its smoothed positions and its own frequencies, a later one with the forecast.
        Names that are not on the map are ignored.

        Parameters
        ----------
        X
            Events of one step, in any form that `fit` takes.

        Returns
        -------
        float
            Mean log-probability of a count's pair.

        Raises
        ------
        InputError
            If the events are of several steps, or none is between known names.
        """
        fitted = self._map()
        return links.log_likelihood(fitted, Events.build(X))

    # --- pages and pictures -----------------------------------------------------------------------------

    def map_data(self, n_pairs: int = 12) -> MapData:
        """The smoothed map as plain arrays, for pages and pictures.

        Parameters
        ----------
        n_pairs
            How many pairs to include, those whose share of counts changed most.

        Returns
        -------
        MapData
            Times, names, positions, covariances, shares and pairs.
        """
        return make_map_data(self._map(), n_pairs)

    def empirical(self, row: Name, column: Name) -> F64:
        """Observed share of a row in the counts of a column.

        Parameters
        ----------
        row, column
            The pair.

        Returns
        -------
        array
            (T,); 0 where the column has no counts.
        """
        return empirical_shares(self._map(), row, column)

    def save_html(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the map as one page that needs no network.

        Parameters
        ----------
        path
            The file to write.
        overwrite
            Replace an existing file.

        Raises
        ------
        InputError
            If the file exists and is not to be replaced.
        """
        from undertow.view import map_page  # type: ignore[attr-defined,unused-ignore]

        map_page.save_html(self.map_data(), path, overwrite=overwrite)

    # --- saving -----------------------------------------------------------------------------------------

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        return storage.tensor_spec(state)

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return storage.to_tensors(self._fitted)

    def _fitted_scalars(self) -> dict[str, Any]:
        return storage.to_scalars(self._fitted)

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        storage.check_values(tensors, state)

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        self._set_fitted(storage.from_tensors(tensors, state))


__all__ = ["DynamicEmbedding", "Link", "Mover", "Movers", "Neighbor", "Timeline"]
