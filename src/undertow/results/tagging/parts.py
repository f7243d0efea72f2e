"""Fitting several models one after the other: each finished one is kept, and the time left is that of all of them."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from undertow.atomic import finished_file
from undertow.errors import FormatError
from undertow.files import read_json
from undertow.models.base import Estimator
from undertow.models.checkpoint import IGNORED_PARAMS, CheckpointWarning, as_checkpoint, fit_key
from undertow.models.fitting import (
    LOGGER,
    Callback,
    Checkpoint,
    CheckpointSource,
    TrainingEvent,
    interrupts_raise,
)
from undertow.progress import Progress, ProgressFn
from undertow.storage import load_model

# names within a directory of finished parts: corpora, models, reports and checkpoints, and what a kill leaves of them
WORK = re.compile(r"\.?[a-z-]+-[0-9a-f]{24}(\.json)?(\.partial|\.tmp-\w+)?")
UNITS = {"hmm": "pass", "clusters": "pass", "context": "part"}
Fitted = TypeVar("Fitted", bound=Estimator)


class Watch:
    """Tells callbacks and progress bars what is being fitted, and how long all that is planned will still take.

    Parameters
    ----------
    callbacks
        Called with a `TrainingEvent` after each iteration of each part.
    progress
        Called with a `Progress` as well.
    """

    def __init__(self, callbacks: Sequence[Callback], progress: ProgressFn) -> None:
        self.callbacks, self.progress = callbacks, progress
        self._seconds: dict[str, float] = {}  # expected of each part that is not finished
        self._done = 0.0  # expected seconds of what was done
        self._began = time.perf_counter()

    def plan(self, seconds: dict[str, float]) -> None:
        """Expected processor seconds by part; the time left is estimated by their ratios."""
        self._seconds |= seconds
        self._began = time.perf_counter()

    def finish(self, part: str, *, reused: bool = False) -> None:
        self._done += 0.0 if reused else self._seconds.get(part, 0.0)
        self._seconds.pop(part, None)

    def seconds_left(self, part: str, share: float) -> float | None:
        """Until all parts are finished, when `share` of this part is; None if nothing is known yet."""
        here = self._seconds.get(part, 0.0)
        done = self._done + share * here
        left = sum(self._seconds.values()) - share * here
        return (time.perf_counter() - self._began) / done * left if done else None

    def of(self, model: Estimator, part: str | None = None) -> list[Callback]:
        """Callbacks for the fit of a model, which begins now; a part without a name is called by the model's kind."""
        params = model.get_params()
        part, unit = part or model.kind, UNITS.get(model.kind, "iteration")
        self.progress(Progress(part, 0, params["n_iter"] + params.get("n_full", 0), unit))

        def tell(event: TrainingEvent) -> None:
            event = event._replace(part=part)
            left = self.seconds_left(part, event.iteration / event.n_iter)
            text = f"objective {event.objective:.4f}" + (
                "" if left is None else f", about {duration(left)} left in all"
            )
            self.progress(Progress(part, event.iteration, event.n_iter, unit, text))
            for callback in self.callbacks:
                callback(event)

        return [tell]


def duration(seconds: float) -> str:
    """Seconds up to two minutes, then minutes, then hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Kept:
    """Finished parts in a directory, each under a hash of all that it depends on; nothing is kept without one.

    Parameters
    ----------
    place
        A directory.
    checkpoint
        Where the parts keep the state of unfinished fits; None if nothing is to be kept.
    """

    def __init__(self, place: Path, checkpoint: Checkpoint | None) -> None:
        self.place, self.checkpoint = place, checkpoint

    def fit(self, model: Fitted, text: Any, data: Callable[[], Any], watch: Watch) -> Fitted:
        """The model fitted to `data()`, which `text` determines; one that is kept is not fitted again.

        Ctrl-C ends the fit of a part without a result, as all that come after it would be worse for it.
        """
        part, place = model.kind, self.place / f"part-{model.kind}-{fit_key(model, text)[:24]}"
        found = self._load(place) if self.checkpoint is not None else None
        if isinstance(found, type(model)):
            LOGGER.info("%s: taken from %s", part, place)
            watch.finish(part, reused=True)
            given = model.get_params()
            return found.set_params(**{name: given[name] for name in IGNORED_PARAMS if name in given})
        LOGGER.info("fitting %s", model)
        X = data()
        with interrupts_raise():
            model.set_params(callbacks=watch.of(model))
            model.fit(X, checkpoint=self.checkpoint)  # type: ignore[attr-defined]
            model.set_params(callbacks=None)
        vars(model).pop("_counts", None)  # the pair counts of an LDS; a model that was kept has none either
        if self.checkpoint is not None:
            model.save(place, overwrite=True)
        watch.finish(part)
        return model

    def _load(self, place: Path) -> Estimator | None:
        if not place.exists():
            return None
        try:
            return load_model(place)
        except FormatError as e:
            warnings.warn(f"{e} It is made again.", CheckpointWarning, stacklevel=4)
            return None

    def report(self, name: str, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A result that JSON can hold, made once."""
        path = self.place / f"{name}-{key[:24]}.json"
        if self.checkpoint is not None and path.exists():
            with contextlib.suppress(FormatError):
                return read_json(path)
        found = make()
        if self.checkpoint is not None:
            with finished_file(path, overwrite=True) as ready:
                ready.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
        return found


@contextlib.contextmanager
def kept_parts(checkpoint: CheckpointSource) -> Iterator[Kept]:
    """Where finished parts are kept: the directory of the checkpoint, or one that is removed at the end."""
    opened = as_checkpoint(checkpoint)
    if opened is None:
        with tempfile.TemporaryDirectory(prefix="undertow-") as place:
            yield Kept(Path(place), None)
        return
    opened.path.mkdir(parents=True, exist_ok=True)
    yield Kept(opened.path, opened)
