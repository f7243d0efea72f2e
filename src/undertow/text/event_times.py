"""Times of events: whole numbers, numbers, dates or labels; their order, and how far apart they are."""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from undertow.errors import InputError, short

Time = int | float | str
"""As a fitted model shows it: numbers as they are, dates in ISO form, labels as text."""

LARGEST_TIME = 1e15  # whole numbers up to it, and their distances, are exact
_WHOLE = re.compile(r"[+-]?\d{1,15}")
_DATE = re.compile(r"\d{4}-\d{2}(-\d{2})?")
_DIGITS = re.compile(r"(\d+)")


def clean_time(value: Any, place: str) -> Time:
    """One time as it is kept; text that is a whole number becomes one, dates become ISO text."""
    if isinstance(value, bool | np.bool_) or value is None:
        raise InputError(f"{place}: the time is {short(value)}; give a number, a date or a label.")
    numeric = isinstance(value, int | float | np.integer | np.floating)
    if numeric and not -LARGEST_TIME <= value <= LARGEST_TIME:
        raise InputError(
            f"{place}: the time is {short(value)}, beyond {LARGEST_TIME:g}; give a smaller number or a date."
        )
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        if not math.isfinite(number):
            raise InputError(f"{place}: the time is {number}; give a number, a date or a label.")
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    if isinstance(value, datetime.datetime):  # a pandas Timestamp is one too
        midnight = value.time() == datetime.time() and value.tzinfo is None
        return value.date().isoformat() if midnight else value.isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            raise InputError(f"{place}: the time is missing; give a number, a date or a label.")
        return clean_time(value.astype("datetime64[us]").item(), place)
    if isinstance(value, str):
        text = value.strip()
        if not text:
            raise InputError(f"{place}: the time is empty; give a number, a date or a label.")
        return int(text) if _WHOLE.fullmatch(text) else text
    raise InputError(f"{place}: the time is {type(value).__name__}; give a number, a date or a label.")


def _days(time: str) -> float | None:
    """Days since a fixed one for text that is a date; the machine's own time zone plays no part."""
    if not _DATE.match(time):
        return None
    try:
        moment = datetime.datetime.fromisoformat(time + "-01" if len(time) == 7 else time)
        naive = moment.replace(tzinfo=None) - (moment.utcoffset() or datetime.timedelta())
    except (ValueError, OverflowError):
        return None
    return (naive - datetime.datetime(1970, 1, 1)).total_seconds() / 86400


def _natural(label: str) -> list[tuple[int, int, str]]:
    """So that "week 9" comes before "week 10"; numbers by their length first, as Python reads none of 4300 digits."""
    parts = [p for p in _DIGITS.split(label) if p]
    numbers = [p.lstrip("0") if p.isdigit() and p.isascii() else None for p in parts]
    return [(1, 0, p) if n is None else (0, len(n), n) for p, n in zip(parts, numbers, strict=True)]


def order_times(times: Iterable[Time]) -> tuple[list[Time], list[float]]:
    """The distinct times in order, and the time from each to the one before (0 for the first).

    Whole numbers are as far apart as they say. Other numbers and dates are measured in the middle distance between
    neighbors, so that a step is about 1; labels are 1 apart, in the order of their text with numbers as numbers.
    """
    distinct = list(set(times))
    text = [isinstance(t, str) for t in distinct]
    if any(text) and not all(text):
        label, number = (
            next(t for t in distinct if isinstance(t, str)),
            next(t for t in distinct if not isinstance(t, str)),
        )
        raise InputError(
            f"Some times are numbers ({short(number)}) and some are text ({short(label)}): make them all alike."
        )
    if not any(text):
        ordered: list[Time] = sorted(distinct)
        steps = np.diff(np.array(ordered, dtype=np.float64))
        whole = all(isinstance(t, int) for t in ordered)
        return ordered, [0.0, *(steps if whole else _scaled(steps))]
    days = {t: _days(str(t)) for t in distinct}
    if all(d is not None for d in days.values()):
        ordered = sorted(distinct, key=lambda t: (days[t], str(t)))
        for before, after in itertools.pairwise(ordered):
            if days[before] == days[after]:
                raise InputError(f"The times {short(before)} and {short(after)} are the same moment: write them alike.")
        return ordered, [0.0, *_scaled(np.diff([days[t] for t in ordered]))]
    return sorted(distinct, key=lambda t: _natural(str(t))), [0.0] + [1.0] * (len(distinct) - 1)


def _scaled(steps: Any) -> list[float]:
    unit = float(np.median(steps)) if len(steps) else 1.0
    return [float(s) / unit if unit > 0 else 1.0 for s in steps]


def given_order(times: Sequence[Any], seen: Iterable[Time]) -> tuple[list[Time], list[float]]:
    """The times as a user ordered them; some may have no events, but none with events may be left out."""
    wanted = [clean_time(t, f"times[{k}]") for k, t in enumerate(times)]
    if len(set(wanted)) < len(wanted):
        raise InputError("times: a time is given twice; give each once.")
    for t in seen:
        if t not in set(wanted):
            raise InputError(f"times: there are events at {short(t)}, which is not among the times given; add it.")
    ordered, gaps = order_times(wanted)
    return (ordered, gaps) if ordered == wanted else (wanted, [0.0] + [1.0] * (len(wanted) - 1))
