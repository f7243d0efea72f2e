"""The command line: one small file per command, imported when it is called."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from undertow import __version__
from undertow.cli.common import plain_warnings, reuse_said, say
from undertow.cli.lazy import LazyGroup
from undertow.cli.signals import signal_answered, signal_received, signals_answered
from undertow.errors import LONGEST, UndertowError, cut

TERMINATED = 128 + signal.SIGTERM  # a shell reports this exit code for a process that SIGTERM ended

# command -> (module, one line for --help); the line is here so that --help imports no module
VERBS = {
    "corpus": ("undertow.cli.corpus", "Build a corpus from text files."),
    "count": ("undertow.cli.count", "Count word pairs at lags 1 to L."),
    "events": ("undertow.cli.events", "Count (time, row, column) events in dated documents."),
    "fit": ("undertow.cli.fit", "Fit a model to text or counts."),
    "clusters": ("undertow.cli.clusters", "Cluster words and write their bit-string paths (Brown clusters)."),
    "embed": ("undertow.cli.embed", "Embed the tokens of a text."),
    "perplexity": ("undertow.cli.perplexity", "Compute the perplexity of a text under a model."),
    "sample": ("undertow.cli.sample", "Sample text from a model."),
    "generate": ("undertow.cli.generate", "Generate text under exact constraints, or compute their probability."),
    "fill": ("undertow.cli.fill", "Fill the gaps of a text, given both sides."),
    "surprise": ("undertow.cli.surprise", "Compute how surprising each token of a text is."),
    "ask": ("undertow.cli.ask", "Compare words at a position, or see what another word would change."),
    "decode": ("undertow.cli.decode", "Decode the hidden states of the tokens of a text."),
    "parse": ("undertow.cli.parse", "Parse the sentences of a text into trees."),
    "transitions": ("undertow.cli.transitions", "List the strongest transitions of a model."),
    "neighbors": ("undertow.cli.neighbors", "List the nearest neighbors of a word, or of a token in its sentence."),
    "tag": ("undertow.cli.tag", "Train, evaluate and apply taggers."),
    "view": ("undertow.cli.view", "Write an HTML page of a model, or of a text as the model reads it."),
    "export": ("undertow.cli.export", "Export word vectors or a map to other formats."),
    "links": ("undertow.cli.links", "Predict the links of the next time step."),
    "movers": ("undertow.cli.movers", "List what moved on a map, beyond noise."),
    "inspect": ("undertow.cli.inspect", "Describe a corpus, counts or model directory."),
    "verify": ("undertow.cli.verify", "Check the files and values of such directories."),
    "demo": ("undertow.cli.demo", "Fit models to the bundled data and write HTML pages."),
}


@click.group(cls=LazyGroup, verbs=VERBS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="undertow")
def cli() -> None:
    """Learn latent-state models of text and query them."""


def main(args: Sequence[str] | None = None) -> None:
    """Entry point: exit codes 0, 1 (failed), 2 (bad usage), 143 (SIGTERM); an error is one sentence on stderr."""
    with _sigterm_like_ctrl_c() as is_terminated:
        if threading.current_thread() is threading.main_thread():
            with signals_answered(lambda number: _interrupted(number == signal.SIGTERM), _say_what_is_kept):
                _main(args, is_terminated)
        else:
            _main(args, is_terminated)
        if is_terminated():  # a fit keeps and saves what it has learned so far, as after Ctrl-C
            _fail("Terminated before the work was done; finished work is saved.", TERMINATED)


def _main(args: Sequence[str] | None, is_terminated: Callable[[], bool]) -> None:
    try:
        # not cli.main(): it would turn a closed pipe into a failure and Ctrl-C into an abort
        given = list(sys.argv[1:] if args is None else args)
        with plain_warnings(), reuse_said(), cli.make_context("undertow", given) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as e:
        sys.exit(e.exit_code)
    except click.UsageError as e:
        click.UsageError(cut(e.format_message(), LONGEST), ctx=e.ctx).show()
        sys.exit(2)
    except click.ClickException as e:
        _fail(e.format_message())
    except KeyboardInterrupt:
        signal_answered()
        _interrupted(is_terminated())
    except UndertowError as e:
        _fail(str(e))
    except BrokenPipeError:
        # the reader of our output is gone, which is no failure; keep the interpreter from reporting it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as e:
        cure = " Free some space and run the same command again." if e.errno == errno.ENOSPC else ""
        _fail(f"{e.filename or 'The system'}: {e.strerror or e}.{cure}")
    except MemoryError:
        _fail("Out of memory: set a lower --memory, use fewer --jobs or a smaller vocabulary.")
    except Exception as e:
        if signal_received():  # a compiler that Ctrl-C stopped half-way fails in its own words
            signal_answered()
            _interrupted(is_terminated())
        if os.environ.get("UNDERTOW_DEBUG"):
            raise
        _fail(
            f"This is a bug in undertow ({type(e).__name__}: {_one_line(e)}): set UNDERTOW_DEBUG=1 for the traceback."
        )


def _interrupted(terminated: bool) -> None:
    what, code = ("Terminated", TERMINATED) if terminated else ("Interrupted", 1)
    _fail(f"{what}; finished work is kept if the command is resumable: run it again to continue.", code)


def _say_what_is_kept(number: int) -> None:
    what = "Terminated" if number == signal.SIGTERM else "Interrupted"
    say(f"{what}; what is finished is kept and saved as soon as the step that is running ends …")


def _one_line(e: object) -> str:
    return " ".join(str(e).split())


def _fail(sentence: str, code: int = 1) -> Any:
    click.echo(f"undertow: {cut(_one_line(sentence), LONGEST)}", err=True)
    sys.exit(code)


@contextmanager
def _sigterm_like_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Handle SIGTERM like Ctrl-C, with the same clean-up; yields a function that says whether it was received."""
    received = False

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = True
        on_interrupt = signal.getsignal(signal.SIGINT)
        if callable(on_interrupt):  # a progress bar delays it until its line is drawn
            on_interrupt(number, frame)
        else:  # a shell starts background jobs with Ctrl-C ignored
            raise KeyboardInterrupt

    # leave the handler of a calling program alone; only the main thread may set one
    if (
        signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        or threading.current_thread() is not threading.main_thread()
    ):
        yield lambda: False
        return
    signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield lambda: received
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
