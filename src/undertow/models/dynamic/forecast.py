"""What a moving map expects of the next step: which pairs meet, and how well it knew a year it had not seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from undertow.errors import InputError
from undertow.models.dynamic.filter import Belief, predict
from undertow.models.dynamic.init import make_table
from undertow.models.dynamic.links import Outlook, rates_of_rows, usual_gap
from undertow.models.dynamic.questions import AskedMap
from undertow.models.dynamic.tables import gap_after, mean_log_probability, onto
from undertow.text.events import Events

Array = npt.NDArray[np.float64]

MOST_PAIRS = 1 << 22  # that predict_links lists unasked


class Link(NamedTuple):
    row: str
    column: str
    probability: float


class ForecastingMap(AskedMap):
    """Questions about the step after the last one."""

    def _predicted(self, gap: float) -> Belief:
        last = Belief(self.filtered_means_[-1], self.filtered_covariances_[-1])
        return predict(last, gap, self._noise(), self._settings())

    def link_probabilities(self) -> npt.NDArray[np.float32]:
        """(rows, columns) probability that a pair meets at the next step, in the order of the events' names.

        The next step is as far away as steps usually are.
        """
        self._check_fitted()
        out = np.empty((len(self.events_.row_names), len(self.events_.column_names)), dtype=np.float32)
        for part, there, rates in self._next_rates(usual_gap(self.events_.gaps)):
            out[part] = there * -np.expm1(-rates)
        return out

    def _next_rates(self, gap: float) -> Iterator[tuple[slice, Array, Array]]:
        outlook = Outlook.of(self.events_.tables, self.events_.gaps, gap)
        return rates_of_rows(outlook, self._predicted(gap), self.covariance_, self.link_weights_)

    def predict_links(self, n: int | None = None, *, new: bool = False) -> list[Link]:
        """Pairs with the probability that they meet at the next step, the likeliest first.

        n: only so many; needed where there are more than four million pairs. new: only pairs that have never met.
        """
        probabilities = self.link_probabilities()
        if n is None and probabilities.size > MOST_PAIRS:
            raise InputError(f"There are {probabilities.size:,} pairs: ask for the likeliest, with n=.")
        flat = probabilities.ravel()
        candidates = np.arange(flat.size)
        if new:
            met = sp.csr_array(sum(self.events_.tables))
            candidates = np.flatnonzero(~(met.toarray() > 0).ravel())
        if n is not None and n < len(candidates):
            cut = np.partition(flat[candidates], len(candidates) - n)[len(candidates) - n] if n > 0 else np.inf
            candidates = candidates[flat[candidates] >= cut]
        order = candidates[np.argsort(-flat[candidates], kind="stable")][:n]
        width = len(self.events_.column_names)
        rows, columns = self.events_.row_names, self.events_.column_names
        return [Link(rows[k // width], columns[k % width], float(flat[k])) for k in order.tolist()]

    def log_likelihood(self, X: Any) -> float:
        """Mean log-probability of a count of the events of one step: what pair it is.

        A step the model was fitted to is judged by the smoothed map and its own frequencies; a later one by what
        the model expects then. Names the model does not know are passed over.
        """
        self._check_fitted()
        events = Events.build(X)
        if len(events.times) != 1:
            raise InputError(f"log_likelihood takes the events of one step, and these are of {len(events.times)}.")
        counts = onto(events.tables[0], events, self.events_)
        total = float(counts.sum())
        if not total > 0:
            raise InputError("None of these events is between names on the map: there is nothing to judge.")
        time = events.times[0]
        if time in self.times_:
            t = self.times_.index(time)
            table, x = self._tables()[t], self._smoothed().means[t]
            own = make_table(counts, self._names.n_rows)
            assert own is not None
            if table is not None and set(own.present.tolist()) <= set(table.present.tolist()):
                where = [np.searchsorted(p, q) for p, q in ((table.rows, own.rows), (table.columns, own.columns))]
                spread = sp.coo_array(
                    (own.counts.tocoo().data, (where[0][own.counts.tocoo().row], where[1][own.counts.tocoo().col])),
                    shape=table.counts.shape,
                ).tocsr()
                judged = table._replace(counts=spread, transposed=sp.csr_array(spread.T))
                return mean_log_probability(judged, x)
        gap = gap_after(self.events_, time)
        total_rate, log_rate = 0.0, 0.0
        for part, there, rates in self._next_rates(gap):
            expected = there * rates
            pairs = counts[part].tocoo()
            total_rate += float(expected.sum())
            log_rate += float((pairs.data * np.log(np.maximum(expected[pairs.row, pairs.col], 1e-300))).sum())
        return log_rate / total - float(np.log(total_rate))
