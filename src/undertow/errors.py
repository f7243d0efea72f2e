"""Errors: one sentence that names the place and the cure.

Every error undertow raises on purpose is an `UndertowError`; the command line prints its sentence and exits
with 1, a program can catch the one base class. The subclasses also inherit the built-in that a Python
programmer would expect, so `except ValueError` keeps working.
"""

from __future__ import annotations

LONGEST = 500  # characters of a message: what fits a terminal and is still read


class UndertowError(Exception):
    """Base class of every error raised on purpose; no message is longer than LONGEST characters."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(cut(a, LONGEST) if isinstance(a, str) else a for a in args))


def short(value: object, most: int = 60) -> str:
    """The repr of a value on one line, shortened for an error message."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an integer of more than 4300 digits has no decimal form; an object's own repr may do anything
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= most else text[: most - 3] + "..."


def cut(sentence: str, most: int) -> str:
    """A sentence shortened in its middle if it is too long.

    As the place is at its beginning and the cure at its end.
    """
    if len(sentence) <= most:
        return sentence
    head = (most - 5) // 2
    return f"{sentence[:head]} ... {sentence[len(sentence) - (most - 5 - head) :]}"


class InputError(UndertowError, ValueError):
    """The text, table or argument that was given cannot be used."""


class UnknownWordError(InputError, KeyError):
    """A word was asked for that the vocabulary does not have."""

    __str__ = Exception.__str__  # KeyError shows the repr of its sentence


class FormatError(UndertowError, ValueError):
    """A directory or file written by undertow is missing a part, damaged, or from another version."""


class BusyError(UndertowError, RuntimeError):
    """Another process is writing to the same place."""


class EngineError(UndertowError, RuntimeError):
    """Work could not be finished: a shard kills its worker, or a cluster cannot be reached."""


class NotFittedError(UndertowError, ValueError, AttributeError):
    """A fitted attribute or method was used before `fit`."""


class MissingExtraError(UndertowError, ImportError):
    """An optional dependency is needed for this; the message names the extra that brings it."""


def missing_extra(need: str, extra: str) -> MissingExtraError:
    """The error for an optional dependency that is not installed: what is needed, and the extra that brings it."""
    return MissingExtraError(f"{need}: pip install 'undertow[{extra}]' (in a checkout: pip install '.[{extra}]').")
