"""What values the parameters of an estimator may take, declared by its class and checked in one place.

A class says `constraints = {"n_states": Whole(1), "rank": Whole(1) | None, "init": Choice("auto", "random"), …}` with
one entry for each parameter of its constructor; `Estimator._check_params` applies them. Only conditions between several
parameters are written by hand.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.engine import count_workers
from undertow.errors import InputError, short

if TYPE_CHECKING:
    from undertow.models.fitting import Callback

MOST = 10**9  # a whole number above this is a slip: no loop over it ends and no array of it fits


class Constraint(abc.ABC):
    """What one parameter may be. `constraint | None` also accepts None."""

    @abc.abstractmethod
    def check(self, who: str, name: str, value: Any) -> None:
        """Raise InputError for a value that the parameter `name` of the class `who` may not take."""

    def __or__(self, other: None) -> Constraint:
        return OrNone(self)


class OrNone(Constraint):
    """None, or what another constraint accepts."""

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint

    def check(self, who: str, name: str, value: Any) -> None:
        if value is not None:
            self._constraint.check(who, name, value)


class Whole(Constraint):
    """A whole number from `low` to `high`; True is none, NumPy's integers are."""

    def __init__(self, low: int, high: int = MOST) -> None:
        self._low, self._high = low, high

    def check(self, who: str, name: str, value: Any) -> None:
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < self._low:
            raise InputError(f"{who}: {name}={short(value)} must be a whole number, at least {self._low}.")
        if value > self._high:
            raise InputError(f"{who}: {name}={short(value)} must be a whole number, at most {self._high:,}.")


class Wholes(Whole):
    """A whole number from `low` to `high`, or a list or tuple of such numbers."""

    def check(self, who: str, name: str, value: Any) -> None:
        if not isinstance(value, list | tuple):
            return super().check(who, name, value)
        if not value:
            raise InputError(f"{who}: {name}={short(value)} is empty: give a whole number, or several.")
        for i, one in enumerate(value):
            super().check(who, f"{name}[{i}]", one)


class Number(Constraint):
    """A number from `low` to `high`."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high

    def check(self, who: str, name: str, value: Any) -> None:
        if not is_number(value) or not self._low <= value <= self._high:
            raise InputError(f"{who}: {name}={short(value)} must be a number from {self._low:g} to {self._high:g}.")


class Share(Constraint):
    """None, or a share of the text: a number between 0 and 1, both excluded."""

    def check(self, who: str, name: str, value: Any) -> None:
        if value is not None and not (is_number(value) and 0 < value < 1):
            raise InputError(f"{who}: {name}={short(value)} must be a share between 0 and 1, or None.")


class Choice(Constraint):
    """One of some words."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def check(self, who: str, name: str, value: Any) -> None:
        if not isinstance(value, str) or value not in self._words:
            raise InputError(f"{who}: {name}={short(value)} must be one of {', '.join(self._words)}.")


class Flag(Constraint):
    """True or False."""

    def check(self, who: str, name: str, value: Any) -> None:
        if not isinstance(value, bool | np.bool_):
            raise InputError(f"{who}: {name}={short(value)} must be True or False.")


class Verbosity(Flag):
    """True or False; a level from 0 up too, as scikit-learn's estimators have it."""

    def check(self, who: str, name: str, value: Any) -> None:
        if not (isinstance(value, int | np.integer) and 0 <= value <= MOST):
            super().check(who, name, value)


class Checked(Constraint):
    """What a function accepts that raises InputError for anything else."""

    def __init__(self, function: Callable[[Any], object]) -> None:
        self._function = function

    def check(self, who: str, name: str, value: Any) -> None:
        self._function(value)


def is_number(value: Any) -> bool:
    """An integer or a float of Python or NumPy; True is none."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | np.bool_)


def check_random_state(random_state: Any) -> np.random.Generator:
    """A generator from None (fresh entropy), an integer seed, or a Generator, which is used as it is."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    is_seed = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if random_state is not None and not (is_seed and random_state >= 0):
        raise InputError(
            f"random_state={short(random_state)} cannot seed a random generator: give a non-negative integer, "
            "a numpy.random.Generator, or None."
        )
    return np.random.default_rng(random_state)


def check_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """The functions to call with each `TrainingEvent`; None means none."""
    if callbacks is None:
        return ()
    if not isinstance(callbacks, list | tuple) or not all(callable(fn) for fn in callbacks):
        raise InputError(f"callbacks={short(callbacks)} is not a list of functions: give a list, such as [print].")
    return tuple(callbacks)


# parameters that mean the same in every estimator
RANDOM_STATE = Checked(check_random_state)
N_JOBS = Checked(count_workers)
CALLBACKS = Checked(check_callbacks)


__all__ = [
    "CALLBACKS",
    "MOST",
    "N_JOBS",
    "RANDOM_STATE",
    "Checked",
    "Choice",
    "Constraint",
    "Flag",
    "Number",
    "Share",
    "Verbosity",
    "Whole",
    "Wholes",
    "check_callbacks",
    "check_random_state",
    "is_number",
]
