"""The errors people meet: one sentence that names the place and the cure.

Every error undertow raises on purpose is an `UndertowError`; the command line prints its sentence and exits
with 1, a program can catch the one base class. The subclasses also inherit the built-in that a Python
programmer would expect, so `except ValueError` keeps working.
"""

from __future__ import annotations


class UndertowError(Exception):
    """Base class of every error raised on purpose."""


class InputError(UndertowError, ValueError):
    """The text, table or argument that was given cannot be used."""


class FormatError(UndertowError, ValueError):
    """A directory or file written by undertow is missing a part, damaged, or from another version."""


class BusyError(UndertowError, RuntimeError):
    """Another process is writing to the same place."""


class EngineError(UndertowError, RuntimeError):
    """Work could not be finished where it was sent: a shard kills its worker, or a cluster is out of reach."""


class NotFittedError(UndertowError, ValueError, AttributeError):
    """A fitted attribute or method was used before `fit`."""


class MissingExtraError(UndertowError, ImportError):
    """An optional dependency is needed for this; the message names the extra that brings it."""
