"""What the commands share: options, sizes, progress bars, and output as text or JSON."""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import click

from undertow.cli.compiling import say_when_compiling
from undertow.cli.signals import ends_in_its_own_way, signal_answered
from undertow.progress import Progress, ProgressFn

if TYPE_CHECKING:
    from undertow.engine import Engine

F = TypeVar("F", bound=Callable[..., Any])
TICK = 1.0  # seconds between two drawings of a bar that does not move


class Size(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.5 on
    """A number of bytes: 800M, 2G, 1.5G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        m = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", str(value).strip().lower())
        if not m:
            self.fail(f"{value!r} is not a size: write 800M or 2G.", param, ctx)
        return int(float(m[1]) * 1024 ** " kmgt".index(m[2] or " "))


class WordCount(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.5 on
    """A number of words, or `all`."""

    name = "number|all"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "all":
            return 0
        try:
            number = int(str(value).replace("_", "").replace(",", ""))
        except ValueError:
            number = 0
        if number < 1:
            self.fail(f"{value!r} is not a number of words: write 50000, or all.", param, ctx)
        return number


def json_option(f: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object.")(f)


def markers_option(f: F) -> F:
    return click.option(
        "--markers", is_flag=True, help="Also list the unknown word, its classes and the boundary word."
    )(f)


def jobs_option(f: F) -> F:
    return click.option(
        "-j", "--jobs", type=int, default=-1, show_default="all cores", help="Number of parallel jobs."
    )(f)


def kind_options(f: F) -> F:
    """What the rows and columns of events are called, on the map and in tables."""
    for option in (
        click.option("--column-name", metavar="NAME", help="What the columns are called, such as words."),
        click.option("--row-name", metavar="NAME", help="What the rows are called, such as countries."),
    ):
        f = option(f)
    return f


def time_range(times: Sequence[Any]) -> str:
    """The first and the last time: 1946–2012, or with spaces if they hold hyphens or words."""
    first, last = str(times[0]), str(times[-1])
    if first == last:
        return first
    return f"{first}–{last}" if first.isalnum() and last.isalnum() else f"{first} – {last}"


def overwrite_option(f: F) -> F:
    return click.option("--overwrite", is_flag=True, help="Overwrite existing output.")(f)


def dask_options(f: F) -> F:
    """Address and TLS files of a Dask cluster."""
    for option in (
        click.option("--tls-key", type=click.Path(), help="Private key file for a tls:// scheduler."),
        click.option("--tls-cert", type=click.Path(), help="Certificate file for a tls:// scheduler."),
        click.option("--tls-ca", type=click.Path(), help="CA certificate file for a tls:// scheduler."),
        click.option(
            "--dask",
            metavar="ADDRESS",
            help="Address of a Dask scheduler (tcp://… or tls://…), or 'local' to start one.",
        ),
    ):
        f = option(f)
    return f


@contextmanager
def requested_engine(given: dict[str, Any]) -> Iterator[Engine | None]:
    """The cluster requested by `dask_options`, or None for the default of the command."""
    dask = given.get("dask")
    keys = {k: given.get(k) for k in ("tls_ca", "tls_cert", "tls_key")}
    if dask is None:
        if any(keys.values()):
            raise click.UsageError("--tls-ca, --tls-cert and --tls-key can only be used with --dask.")
        yield None
        return
    from undertow.engine import open_engine

    spec = "dask" if dask == "local" else dask
    with ends_in_its_own_way(), open_engine(spec, given["jobs"], **keys) as engine:  # the workers must be told
        yield engine


@contextmanager
def progress_bar() -> Iterator[ProgressFn]:
    """A progress bar on standard error if that is a terminal, otherwise nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from tqdm import tqdm

    say_when_compiling(say)
    bar: Any = None
    stage: str | None = None  # of the bar; versions of tqdm differ in what bar.desc is
    drawing, ended = threading.RLock(), threading.Event()

    def keep_the_time() -> None:
        """Redraw the bar: the first pass of a large fit takes minutes, in which its clock would stand still."""
        while not ended.wait(TICK):
            with drawing:
                if bar is not None and not ended.is_set():
                    bar.refresh()

    def draw(p: Progress) -> None:
        nonlocal bar, stage
        if p.stage != stage:
            stage = p.stage
            if bar is not None:
                bar.close()
            bar = tqdm(
                desc=p.stage,
                total=p.total,
                unit=p.unit,
                unit_scale=p.unit == "B",
                initial=p.done,
                leave=True,
                file=sys.stderr,
            )
        bar.set_postfix_str(p.text, refresh=False)
        bar.update(p.done - bar.n)

    with _interrupts_outside() as whole:

        def show(p: Progress) -> None:
            with whole(), drawing:
                draw(p)

        clock = threading.Thread(target=keep_the_time, name="undertow-clock", daemon=True)
        clock.start()
        try:
            yield show
        finally:
            with whole(), drawing:
                ended.set()
                if bar is not None:
                    bar.close()


@contextmanager
def _interrupts_outside() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Yields `whole`: Ctrl-C inside `with whole():` is raised at its end, as tqdm breaks when interrupted midway."""
    before = signal.getsignal(signal.SIGINT)
    inside = pending = False

    def on_interrupt(*_: Any) -> None:
        nonlocal pending
        if not inside:
            raise KeyboardInterrupt
        pending = True

    @contextmanager
    def whole() -> Iterator[None]:
        nonlocal inside, pending
        inside = True
        try:
            yield
        finally:
            inside = False
            if pending:
                pending = False
                raise KeyboardInterrupt

    # leave the handler of a calling program alone; only the main thread may set one
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield nullcontext
        return
    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield whole
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print warnings as one sentence on standard error, without the source line that Python adds."""

    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        yield


def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    from undertow.models.fitting import InterruptedFitWarning

    if issubclass(category, InterruptedFitWarning):
        signal_answered()  # a fit that Ctrl-C ended warns, and is then saved
    say(message)


def say(message: object) -> None:
    """Print one sentence on standard error, above a bar that is being drawn."""
    sentence = "undertow: " + " ".join(str(message).split())
    if "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.write(sentence, file=sys.stderr)
    else:
        click.echo(sentence, err=True)


@contextmanager
def reuse_said() -> Iterator[None]:
    """Print a line on standard error when existing output is reused."""

    class Say(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage())

    logger, handler = logging.getLogger("undertow.reuse"), Say()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def printable(name: str) -> str:
    """A name on one line of a terminal: names may hold any character."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)


def show(facts: dict[str, Any], as_json: bool) -> None:
    """Print facts as a JSON object, or as aligned lines of text."""
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    width = max((len(k) for k in facts), default=0)
    for key, value in facts.items():
        click.echo(f"{key.replace('_', ' '):<{width}}  {_plain(value)}")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(_plain(v) for v in value)
    if isinstance(value, dict):
        return ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
    return "none" if value is None else str(value)
