"""The one fitting loop, on iterations that are written down."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from undertow.errors import InputError
from undertow.models.fitting import InterruptedFitWarning, Iteration, TrainingEvent, run_iterations


def made(objectives: list[float], held_out: list[float] | None = None) -> Iterator[Iteration[str]]:
    for i, value in enumerate(objectives):
        yield Iteration(value, f"params {i}", None if held_out is None else held_out[i])


def test_without_held_out_text_the_last_parameters_are_kept() -> None:
    result = run_iterations(made([-3.0, -1.0, -2.0]), n_iter=3)
    assert result.params == "params 2" and result.history == [-3.0, -1.0, -2.0]
    assert result.validation_history == [] and not result.interrupted


def test_stops_at_the_first_worse_iteration_and_keeps_the_best() -> None:
    result = run_iterations(made([1, 2, 3, 4], [-5.0, -4.0, -4.5, -1.0]), n_iter=4)
    assert result.params == "params 1"
    assert result.history == [1, 2, 3] and result.validation_history == [-5.0, -4.0, -4.5]


def test_patience_counts_worse_iterations_in_a_row() -> None:
    held = [-5.0, -6.0, -4.0, -4.0, -4.5, -1.0]
    assert run_iterations(made([0.0] * 6, held), n_iter=6, patience=2).params == "params 2"
    assert run_iterations(made([0.0] * 6, held), n_iter=6, patience=3).params == "params 5"
    assert run_iterations(made([0.0] * 6, held), n_iter=6, patience=None).params == "params 5"


def test_callbacks_get_every_event_with_the_time_left() -> None:
    events: list[TrainingEvent] = []
    run_iterations(made([1.0, 2.0], [-2.0, -1.0]), n_iter=4, callbacks=[events.append])
    assert [(e.iteration, e.n_iter, e.objective, e.held_out) for e in events] == [(1, 4, 1.0, -2.0), (2, 4, 2.0, -1.0)]
    assert events[1].seconds_left == pytest.approx(events[1].seconds, rel=1e-12)
    with pytest.raises(InputError, match="list of functions"):
        run_iterations(made([1.0]), n_iter=1, callbacks=print)


def interrupted_after(n: int, closed: list[bool]) -> Iterator[Iteration[str]]:
    try:
        yield from made([float(i) for i in range(n)])
        raise KeyboardInterrupt
    finally:
        closed.append(True)


def test_ctrl_c_keeps_the_last_finished_iteration() -> None:
    with pytest.warns(InterruptedFitWarning, match="after 2 passes") as caught:
        result = run_iterations(interrupted_after(2, []), n_iter=9, unit="pass", stacklevel=2)
    assert result.params == "params 1" and result.interrupted and result.history == [0.0, 1.0]
    assert caught[0].filename == __file__


def test_ctrl_c_before_the_first_iteration_ends_the_fit() -> None:
    with pytest.raises(KeyboardInterrupt):
        run_iterations(interrupted_after(0, []), n_iter=9)


def test_ctrl_c_in_a_callback_is_caught_too() -> None:
    def stop(event: TrainingEvent) -> None:
        raise KeyboardInterrupt

    with pytest.warns(InterruptedFitWarning, match="after 1 iteration;"):
        assert run_iterations(made([1.0, 2.0]), n_iter=2, callbacks=[stop]).params == "params 0"


def test_the_generator_is_closed_when_fitting_stops_early() -> None:
    closed: list[bool] = []

    def endless() -> Iterator[Iteration[str]]:
        try:
            while True:
                yield Iteration(0.0, "p", -1.0)
        finally:
            closed.append(True)

    run_iterations(endless(), n_iter=5)
    assert closed == [True]


def test_verbose_shows_the_log_on_standard_error_and_leaves_logging_as_it_was(capsys: Any) -> None:
    logger = logging.getLogger("undertow")
    before = (logger.level, list(logger.handlers))
    handlers = logging.getLogger().handlers[:]
    logging.getLogger().handlers.clear()  # pytest's own, which would count as the program's
    try:
        run_iterations(made([1.5]), n_iter=2, unit="epoch", verbose=True)
    finally:
        logging.getLogger().handlers[:] = handlers
    assert "epoch 1 of 2: objective 1.50000" in capsys.readouterr().err
    assert (logger.level, list(logger.handlers)) == before


def test_a_program_that_set_up_logging_gets_records(caplog: Any) -> None:
    with caplog.at_level(logging.INFO, logger="undertow"):
        run_iterations(made([1.5], [2.5]), n_iter=1)
    assert "held out 2.50000" in caplog.text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        caplog.clear()
        run_iterations(made([1.5]), n_iter=1)
    assert caplog.text == ""
