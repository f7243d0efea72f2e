"""The one fitting loop: history, callbacks, logging, early stopping, checkpoints and Ctrl-C, whatever is fitted.

A model writes its iterations as a generator of `Iteration`; `run_iterations` consumes it and returns a `FitResult`.
Text held out for early stopping is cut off by `split_text`.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.models.base import Sentences, encode_sentences
from undertow.models.checkpoint import Checkpoint, CheckpointSource, OpenCheckpoint, open_checkpoint
from undertow.models.constraints import check_callbacks
from undertow.text.corpus import Corpus

LOGGER = logging.getLogger("undertow")
Params = TypeVar("Params")
Result = TypeVar("Result")


class TrainingEvent(NamedTuple):
    """What a callback receives after each finished iteration.

    Attributes
    ----------
    iteration
        How many are finished, those before a checkpoint included.
    n_iter
        The most there will be; fitting may stop earlier.
    objective
        The value just added to `history_`.
    seconds
        Since the fit began, without the time between a kill and the call that went on.
    held_out
        The value just added to `validation_history_`; None if no text was held out.
    part
        Which part of a fit of several models this is, such as "hmm"; None if there is one.
    """

    iteration: int
    n_iter: int
    objective: float
    seconds: float
    held_out: float | None = None
    part: str | None = None

    @property
    def seconds_left(self) -> float:
        """Estimated from the iterations so far, if none is saved by early stopping."""
        done = self.iteration / self.n_iter
        return self.seconds / done * (1 - done)


Callback = Callable[[TrainingEvent], object]


class InterruptedFitWarning(UserWarning):
    """Ctrl-C ended a fit early; the model holds the last finished iteration."""


class Iteration(NamedTuple, Generic[Params]):
    """One finished iteration of a fit."""

    objective: float
    params: Params
    held_out: float | None = None  # objective on held-out text; higher is better
    remark: str = ""  # what the log says beside the objective
    state: Callable[[], Any] | None = None  # all that the next iterations need, for a checkpoint; None: cannot go on


class LoopState(NamedTuple):
    """Where `run_iterations` is, for a checkpoint."""

    history: list[float]
    scores: list[float]
    best: Any
    n_worse: int  # iterations since the best one
    seconds: float


class FitResult(NamedTuple, Generic[Params]):
    """What a fit came to."""

    params: Params
    history: list[float]
    validation_history: list[float]  # empty if no text was held out
    interrupted: bool


def run_iterations(
    iterations: Iterable[Iteration[Params]],
    *,
    n_iter: int,
    unit: str = "iteration",
    callbacks: Sequence[Callback] | None = None,
    verbose: bool | int = False,
    patience: int | None = 1,
    checkpoint: OpenCheckpoint | None = None,
    stacklevel: int = 3,
) -> FitResult[Params]:
    """Consume the iterations of a fit and keep the best parameters, or the last ones if no text is held out.

    Parameters
    ----------
    iterations
        At most `n_iter` of them; the generator is closed when fitting stops earlier.
    n_iter
        What callbacks are told; an estimate of the time left needs it.
    unit
        What the log calls an iteration: "pass", "epoch".
    callbacks
        Functions of a `TrainingEvent`, called after each iteration.
    verbose
        Log each iteration to the logger "undertow", and show that log on standard error.
    patience
        Stop after so many iterations in a row whose held-out objective is no better than the best before; None goes on.
    checkpoint
        Where the state is written after an iteration, before its callbacks. If it holds one, the loop goes on after
        it, and `iterations` must be those that follow.
    stacklevel
        Of the warning after Ctrl-C, so that it names the line that called `fit`.

    Returns
    -------
    FitResult
        The parameters and histories, those of the iterations before the checkpoint included.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C comes before the first iteration is finished; later it ends the fit with an `InterruptedFitWarning`.
    """
    functions = check_callbacks(callbacks)
    loop = LoopState([], [], None, 0, 0.0)
    if checkpoint is not None and checkpoint.loop is not None:
        loop, checkpoint.loop = checkpoint.loop, None
    history, scores, best, n_worse, seconds = loop
    del loop  # the parameters in it may be gigabytes
    began = time.perf_counter() - seconds
    interrupted = False
    with shown_log(verbose), contextlib.closing(_as_generator(iterations)) as source:
        if history:
            LOGGER.info("continuing after %s from a checkpoint", _count(len(history), unit))
        try:
            for now in source if patience is None or n_worse < patience else ():
                n_worse = n_worse + 1 if now.held_out is not None and scores and now.held_out <= max(scores) else 0
                if n_worse == 0:
                    best = now.params
                if now.held_out is not None:
                    scores.append(now.held_out)
                history.append(float(now.objective))
                seconds = time.perf_counter() - began
                event = TrainingEvent(len(history), n_iter, history[-1], seconds, now.held_out)
                LOGGER.info("%s", log_line(event, unit, now.remark))
                if checkpoint is not None:
                    checkpoint.write_if_due(LoopState(history, scores, best, n_worse, event.seconds), now.state)
                for function in functions:
                    function(event)
                if patience is not None and n_worse >= patience:
                    break
        except KeyboardInterrupt:
            if not history:
                raise
            interrupted = True
            if checkpoint is not None:
                checkpoint.interrupted = True
            _warn_interrupted(len(history), unit, stacklevel + 1)
    assert history, "a fit has at least one iteration"
    return FitResult(best, history, scores, interrupted)


def run_last_step(
    step: Callable[[], Result],
    result: FitResult[Params],
    *,
    default: Result,
    unit: str = "iteration",
    stacklevel: int = 3,
) -> Result:
    """What `step()` returns after the iterations, or `default` if Ctrl-C ended them or comes during the step.

    Like an interrupted iteration, an interrupted step costs only itself: the fit keeps its result, with a warning.

    Parameters
    ----------
    step
        What is left to do.
    result
        Of the iterations before it.
    default
        Returned instead of the step's result.
    unit, stacklevel
        As in `run_iterations`.

    Returns
    -------
    Result
        Of the step, or the default.
    """
    if result.interrupted:
        return default
    try:
        return step()
    except KeyboardInterrupt:
        _warn_interrupted(len(result.history), unit, stacklevel + 1)
        return default


def _warn_interrupted(n: int, unit: str, stacklevel: int) -> None:
    message = f"Interrupted after {_count(n, unit)}; what was finished is kept."
    warnings.warn(message, InterruptedFitWarning, stacklevel=stacklevel)


@contextlib.contextmanager
def interrupts_raise() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where a fit would keep what it has."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptedFitWarning)
        try:
            yield
        except InterruptedFitWarning:
            raise KeyboardInterrupt from None


def _as_generator(iterations: Iterable[Iteration[Params]]) -> Generator[Iteration[Params], None, None]:
    def pass_on() -> Generator[Iteration[Params], None, None]:
        yield from iterations

    return iterations if isinstance(iterations, Generator) else pass_on()


def log_line(event: TrainingEvent, unit: str, remark: str = "") -> str:
    held = "" if event.held_out is None else f", held out {event.held_out:.5f}"
    beside = f", {remark}" if remark else ""
    return (
        f"{unit} {event.iteration} of {event.n_iter}: objective {event.objective:.5f}{held}{beside}, "
        f"{event.seconds:.1f} s, about {event.seconds_left:.0f} s left"
    )


def perplexity_remark(log_likelihood: float, held_out: float | None) -> str:
    """The same numbers as perplexities, for the log."""
    remark = f"perplexity {np.exp(-log_likelihood):.2f}"
    return remark if held_out is None else f"{remark}, held-out perplexity {np.exp(-held_out):.2f}"


def _count(n: int, unit: str) -> str:
    plural = f"{unit}es" if unit.endswith("s") else f"{unit}s"
    return f"{n} {unit if n == 1 else plural}"


@contextlib.contextmanager
def shown_log(verbose: bool | int) -> Iterator[None]:
    """While the block runs, show the log on standard error, unless the program has set up logging itself.

    Parameters
    ----------
    verbose
        If false, nothing is shown that the program does not show itself.
    """
    if not verbose or LOGGER.hasHandlers():
        level = LOGGER.level
        if verbose and LOGGER.getEffectiveLevel() > logging.INFO:
            LOGGER.setLevel(logging.INFO)
        try:
            yield
        finally:
            LOGGER.setLevel(level)
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    level = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.setLevel(level)
        LOGGER.removeHandler(handler)


# --- held-out text for early stopping ----------------------------------------------------------------


def split_text(corpus: Corpus, share: float | None, validation: Sentences | None) -> tuple[Corpus, Corpus | None]:
    """The text to learn from and the text for early stopping.

    Parameters
    ----------
    corpus
        The whole text.
    share
        Share of it, taken from its end, that is held out if there is no other text.
    validation
        Other text.

    Returns
    -------
    text : Corpus
        To learn from.
    held_out : Corpus or None
        For early stopping, over the same words.

    Raises
    ------
    InputError
        If one of the two would have no tokens.
    """
    if validation is not None:
        return corpus, part_of(corpus, encode_sentences(corpus.vocabulary, validation))
    if share is None:
        return corpus, None
    n = corpus.n_sentences - max(1, round(share * corpus.n_sentences))
    if n < 1:
        raise InputError("The corpus has one sentence, of which none can be held out: leave out validation.")
    sentences = list(corpus.sentences())
    return part_of(corpus, sentences[:n]), part_of(corpus, sentences[n:])


def part_of(corpus: Corpus, sentences: list[NDArray[np.uint32]]) -> Corpus:
    """Some sentences as a corpus over the same words, with counts of their own.

    Parameters
    ----------
    corpus
        Whose vocabulary the ids are of.
    sentences
        Arrays of ids.

    Returns
    -------
    Corpus
        Of these sentences.

    Raises
    ------
    InputError
        If they have no tokens.
    """
    ids = np.concatenate(sentences) if sentences else np.empty(0, dtype=np.uint32)
    offsets = np.concatenate(([0], np.cumsum([len(s) for s in sentences]))).astype(np.int64)
    if not len(ids):
        raise InputError("The text to validate on has no tokens: give some, or leave it out.")
    counts = np.bincount(ids, minlength=len(corpus.vocabulary))
    return Corpus(ids, offsets, corpus.vocabulary.with_counts(counts), manifest=corpus.manifest)


__all__ = [
    "LOGGER",
    "Callback",
    "Checkpoint",
    "CheckpointSource",
    "FitResult",
    "InterruptedFitWarning",
    "Iteration",
    "OpenCheckpoint",
    "TrainingEvent",
    "interrupts_raise",
    "open_checkpoint",
    "part_of",
    "perplexity_remark",
    "run_iterations",
    "run_last_step",
    "shown_log",
    "split_text",
]
