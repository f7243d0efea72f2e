"""Choose the parameters of a language model by held-out text."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from undertow.errors import InputError
from undertow.models.base import Estimator, Sentences, as_corpus
from undertow.models.constraints import Share, is_number
from undertow.models.fitting import LOGGER, InterruptedFitWarning, shown_log, split_text
from undertow.tables import Table
from undertow.text.corpus import Corpus

Grid = Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]]


class Candidate(NamedTuple):
    """A model that was tried.

    Attributes
    ----------
    params
        The parameters in which it differs from the model that `select` was given.
    perplexity
        Of the held-out text.
    seconds
        That its fit took.
    """

    params: dict[str, Any]
    perplexity: float
    seconds: float


class Selection(NamedTuple):
    """What `select` found; its `repr` is the table.

    Attributes
    ----------
    best_params
        Parameters of the candidate with the lowest held-out perplexity; of equal ones, the first.
    best_model
        The model fitted with them: to the training part, or to all of the text if `refit`.
    table
        A row for each candidate that was finished, in the order of the grid.
    n_candidates
        How many there were to try; more than rows in the table after Ctrl-C.
    """

    best_params: dict[str, Any]
    best_model: Any
    table: Table[Candidate]
    n_candidates: int

    def curve(self, parameter: str) -> list[tuple[Any, float]]:
        """Held-out perplexity against one parameter.

        Parameters
        ----------
        parameter
            One of those that were tried.

        Returns
        -------
        list of (value, perplexity)
            In the order of the grid; the lowest perplexity for each value, whatever the other parameters are.

        Raises
        ------
        InputError
            If the parameter was not tried.
        """
        rows = [row for row in self.table if parameter in row.params]
        if not rows:
            tried = ", ".join(dict.fromkeys(name for row in self.table for name in row.params))
            raise InputError(f"The parameter {parameter!r} was not tried: choose among {tried}.")
        values: list[Any] = []
        for row in rows:
            if row.params[parameter] not in values:
                values.append(row.params[parameter])
        return [(v, min(row.perplexity for row in rows if row.params[parameter] == v)) for v in values]

    def __repr__(self) -> str:
        names = list(dict.fromkeys(name for row in self.table for name in row.params))
        cells = [[*names, "held-out perplexity", "seconds", ""]]
        for row in self.table:
            best = "best" if row.params == self.best_params else ""
            own = [str(row.params.get(name, "")) for name in names]
            cells.append([*own, f"{row.perplexity:,.2f}", f"{row.seconds:,.1f}", best])
        widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
        lines = ["  ".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)).rstrip() for line in cells]
        if len(self.table) < self.n_candidates:
            lines.append(f"interrupted: {len(self.table)} of {self.n_candidates} candidates")
        return "\n".join(lines)


def select(
    estimator: Estimator,
    X: Sentences,
    grid: Grid,
    *,
    validation: float | Sentences = 0.05,
    refit: bool = False,
    verbose: bool = False,
    **fit_options: Any,
) -> Selection:
    """Fit a model with several parameters and choose by the perplexity of held-out text.

    All candidates are fitted to the same part of the text and scored on the same other part. Ctrl-C ends the search and
    keeps what is finished; the candidate that it interrupts is dropped, as a shorter fit cannot be compared.

    Parameters
    ----------
    estimator
        A model with a perplexity, such as HMM, FactorialHMM, Grammar or LDS. It is copied, not fitted.
    X
        A corpus or token lists.
    grid
        Values to try by parameter, in all combinations; or a list of combinations, each a mapping of one value by
        parameter.
    validation
        Share of X, taken from its end, that is held out; or other text.
    refit
        Fit the best model once more, to all of X. Its perplexity is then not known.
    verbose
        Log each candidate to the logger "undertow", and show that log on standard error.
    **fit_options
        Passed to each `fit`, such as `engine`, or `checkpoint`: one directory serves all candidates.

    Returns
    -------
    Selection
        The best parameters and model, and a table of all candidates.

    Raises
    ------
    InputError
        If the model has no perplexity, the grid is empty or names something that is no parameter, a candidate is
        invalid (before anything is fitted), or no text can be held out.
    KeyboardInterrupt
        If Ctrl-C comes before the first candidate is finished.

    Examples
    --------
    >>> from undertow import HMM, select
    >>> text = [["the", "cat", "sat"], ["the", "dog", "ran"], ["a", "cat", "ran"]] * 20
    >>> found = select(HMM(n_iter=5, random_state=0), text, {"n_states": [1, 3]}, validation=0.2)
    >>> found.best_params
    {'n_states': 3}
    >>> [row.params["n_states"] for row in found.table]
    [1, 3]
    """
    if not (isinstance(estimator, Estimator) and hasattr(estimator, "perplexity")):
        raise InputError(
            f"select needs a model with a perplexity, and {type(estimator).__name__} has none: give an HMM, "
            "FactorialHMM, Grammar or LDS."
        )
    candidates = _candidates(grid)
    models = [_copy(estimator, params) for params in candidates]  # a wrong one is refused before any work
    corpus, share = as_corpus(X), is_number(validation)
    if share:
        Share().check("select", "validation", validation)
    either: Any = validation
    text, held_out = split_text(corpus, either if share else None, None if share else either)
    if held_out is None:
        raise InputError("select needs held-out text: give validation as a share of the text, or other text.")
    table = Table(Candidate)
    best: Any = None
    with shown_log(verbose):
        try:
            while models:
                model, params = models.pop(0), candidates[len(table)]
                row = _tried(model, params, text, held_out, fit_options)
                if best is None or row.perplexity < min(tried.perplexity for tried in table):
                    best = model  # of the others only the figures are kept
                table.append(row)
                LOGGER.info(
                    "candidate %d of %d: %s: held-out perplexity %.2f, %.1f s",
                    *(len(table), len(candidates), _words(params), row.perplexity, row.seconds),
                )
            if refit and share:
                LOGGER.info("fitting %s to all of the text", _words(_best(table)))
                best = _fitted(_copy(estimator, _best(table)), corpus, fit_options)
        except (KeyboardInterrupt, InterruptedFitWarning):
            if not table:
                raise KeyboardInterrupt from None
            message = f"Interrupted after {len(table)} of {len(candidates)} candidates; what was finished is kept."
            warnings.warn(message, InterruptedFitWarning, stacklevel=2)
    return Selection(_best(table), best, table, len(candidates))


def _best(table: list[Candidate]) -> dict[str, Any]:
    """Parameters of the lowest perplexity; of equal ones, the first."""
    return min(table, key=lambda row: row.perplexity).params


def _candidates(grid: Grid) -> list[dict[str, Any]]:
    """The combinations of a grid, in order."""
    if isinstance(grid, Mapping):
        values = {}
        for name, some in grid.items():
            if isinstance(some, str | bytes) or not isinstance(some, Iterable):
                raise InputError(f"grid[{name!r}] must be a list of values to try, such as [512, 1024].")
            values[name] = list(some)
        found = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    elif isinstance(grid, Sequence) and all(isinstance(params, Mapping) for params in grid):
        found = [dict(params) for params in grid]
    else:
        raise InputError("grid must map parameters to lists of values, or be a list of such combinations.")
    if not any(found):
        raise InputError("The grid is empty: give at least one parameter and one value to try.")
    return found


def _copy(estimator: Estimator, params: Mapping[str, Any]) -> Estimator:
    """An unfitted copy with other parameters, checked; an error names the candidate."""
    model = estimator.__sklearn_clone__().set_params(**params)
    try:
        model._check_params()
    except InputError as e:
        raise InputError(f"The candidate {_words(params)} is invalid: {e}") from None
    return model


def _tried(model: Any, params: dict[str, Any], text: Corpus, held_out: Corpus, options: dict[str, Any]) -> Candidate:
    began = time.perf_counter()
    _fitted(model, text, options)
    seconds = time.perf_counter() - began
    return Candidate(params, float(model.perplexity(held_out)), seconds)


def _fitted(model: Any, text: Corpus, options: dict[str, Any]) -> Any:
    """Fit to the end: where Ctrl-C would leave a shorter fit with a warning, the warning is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptedFitWarning)
        return model.fit(text, **options)


def _words(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in params.items())


__all__ = ["Candidate", "Selection", "select"]
