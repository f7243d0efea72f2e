"""How a job is sent to another process and its result or exception comes back.

Needed for the promise of one-sentence errors (README.md, docs/design.md): what cannot be pickled, imported or unpickled
on the other side is named, and an exception keeps its type and its traceback. Pickle is safe here: both ends are the
same program, and the bytes never rest in a file.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any, cast

from undertow.errors import EngineError, InputError


def name_of(fn: object) -> str:
    """The qualified name of a function; the repr of a partial or callable object."""
    return str(getattr(fn, "__qualname__", None) or repr(fn))[:80]


def pack_task(fn: Callable[..., Any]) -> bytes:
    """Pickle `fn`; an InputError if it cannot be sent."""
    try:
        return pickle.dumps(fn, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # pickle raises whatever a __reduce__ raises
        raise InputError(
            f"{name_of(fn)} cannot be sent to a worker process ({flat(error)}): "
            "use a function defined at the top level of a module, not a lambda or an inner function."
        ) from error


def pack_shard(shard: object, name: str) -> bytes:
    """Pickle a shard; an InputError names it if it cannot be sent."""
    try:
        return pickle.dumps(shard, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise InputError(
            f"{name} cannot be sent to a worker process ({flat(error)}): pass plain data such as bytes, "
            "arrays, paths or offsets, not open files or iterators."
        ) from error


def load_task(task: bytes) -> Callable[[Any], Any]:
    """Unpickle a function; if it cannot be imported, return one that raises this error for every shard."""
    try:
        return cast(Callable[[Any], Any], pickle.loads(task))  # noqa: S301 (see the module docstring)
    except Exception as error:
        refusal = InputError(
            f"a worker cannot import the function it was sent ({flat(error)}): "
            "define it in a module that is installed where the workers run."
        )

        def refuse(_: object) -> None:
            raise refusal

        return refuse


def run(fn: Callable[[Any], Any], shard: bytes) -> bytes:
    """Run one job in the worker; the reply holds the result, or the exception and its traceback."""
    try:
        result = fn(pickle.loads(shard))  # noqa: S301
    except BaseException as error:  # SystemExit too: it would end the worker and look like a crash
        return _failure(error)
    try:
        return pickle.dumps((result, None, ""), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return _failure(InputError(f"the result of {name_of(fn)} cannot be sent back ({flat(error)})."))


def open_reply(reply: bytes, name: str) -> Any:
    """The result in a reply; a remote exception is raised here, with the remote traceback as a note."""
    result, error, trace = pickle.loads(reply)  # noqa: S301
    if error is None:
        return result
    error.add_note(f"raised by a worker on {name}:\n{trace}")
    raise error


def _failure(error: BaseException) -> bytes:
    trace = "".join(traceback.format_exception(error)).rstrip()
    error.__traceback__ = None
    try:
        sent = pickle.dumps((None, error, trace), pickle.HIGHEST_PROTOCOL)
        # Exceptions with their own __init__ often pickle and then fail to unpickle: find out on this side.
        if type(pickle.loads(sent)[1]) is type(error):  # noqa: S301
            return sent
    except Exception:  # the substitute below carries the message
        pass
    substitute = EngineError(f"a worker raised {type(error).__name__}: {flat(error)}")
    return pickle.dumps((None, substitute, trace), pickle.HIGHEST_PROTOCOL)


def flat(error: BaseException) -> str:
    """The message of an exception on one line."""
    return " ".join(str(error).split()) or type(error).__name__
