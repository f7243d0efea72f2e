"""The command line: one verb, one small file, imported when it is called."""

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
from undertow.cli.common import plain_warnings
from undertow.cli.lazy import LazyGroup
from undertow.errors import LONGEST, UndertowError, cut

TERMINATED = 128 + signal.SIGTERM  # what a shell says of a process that SIGTERM ended

# verb -> (module, one line for --help); the line stands here so that --help imports no module
VERBS = {
    "corpus": ("undertow.cli.corpus", "Build a corpus from text files."),
    "count": ("undertow.cli.count", "Count word pairs at lags 1..L."),
    "events": ("undertow.cli.events", "Count who met what, when, in dated documents."),
    "fit": ("undertow.cli.fit", "Fit a model to text or counts."),
    "clusters": ("undertow.cli.clusters", "Cluster words and give each a bit-string path."),
    "embed": ("undertow.cli.embed", "Give every token of a text its vector."),
    "perplexity": ("undertow.cli.perplexity", "Say how well a model predicts a text."),
    "sample": ("undertow.cli.sample", "Draw text from a model."),
    "decode": ("undertow.cli.decode", "Give every token of a text its hidden state."),
    "transitions": ("undertow.cli.transitions", "List the strongest steps a model's hidden state takes."),
    "neighbors": ("undertow.cli.neighbors", "List the words most like a word, alone or in its sentence."),
    "tag": ("undertow.cli.tag", "Learn a tagger from labelled text, score it, tag with it."),
    "view": ("undertow.cli.view", "Write a moving map as a page to open in a browser."),
    "export": ("undertow.cli.export", "Write a model's word vectors or map for other programs."),
    "links": ("undertow.cli.links", "List the pairs that will meet next."),
    "inspect": ("undertow.cli.inspect", "Say what a corpus, counts or model directory holds."),
    "verify": ("undertow.cli.verify", "Check such directories down to the last byte."),
    "demo": ("undertow.cli.demo", "Run on the bundled corpus and write a page to open."),
}


@click.group(cls=LazyGroup, verbs=VERBS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="undertow")
def cli() -> None:
    """Latent-state models of text: the hidden state under the words."""


def main(args: Sequence[str] | None = None) -> None:
    """Entry point: exit codes 0, 1 (failed), 2 (bad usage), 143 (SIGTERM); an error is one sentence on stderr."""
    with _sigterm_like_ctrl_c() as is_terminated:
        _main(args, is_terminated)
        if is_terminated():  # a fit keeps and saves what it has learned so far, as after Ctrl-C
            _fail("Terminated before the work was done; what was finished is saved.", TERMINATED)


def _main(args: Sequence[str] | None, is_terminated: Callable[[], bool]) -> None:
    try:
        # not cli.main(): it would turn a closed pipe into a failure and Ctrl-C into an abort
        with plain_warnings(), cli.make_context("undertow", list(sys.argv[1:] if args is None else args)) as context:
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
        what, code = ("Terminated", TERMINATED) if is_terminated() else ("Interrupted", 1)
        kept = "what was finished is kept where the command says it can be resumed: run it again to go on."
        _fail(f"{what}; {kept}", code)
    except UndertowError as e:
        _fail(str(e))
    except BrokenPipeError:
        # the reader of our output is gone: nothing is wrong; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as e:
        cure = " Make room and run the same command again." if e.errno == errno.ENOSPC else ""
        _fail(f"{e.filename or 'The system'}: {e.strerror or e}.{cure}")
    except MemoryError:
        _fail("There is not enough memory: allow less with --memory, use fewer --jobs or a smaller vocabulary.")
    except Exception as e:
        if os.environ.get("UNDERTOW_DEBUG"):
            raise
        _fail(f"This is a fault in undertow ({type(e).__name__}: {_one_line(e)}); UNDERTOW_DEBUG=1 shows where.")


def _one_line(e: object) -> str:
    return " ".join(str(e).split())


def _fail(sentence: str, code: int = 1) -> Any:
    click.echo(f"undertow: {cut(_one_line(sentence), LONGEST)}", err=True)
    sys.exit(code)


@contextmanager
def _sigterm_like_ctrl_c() -> Iterator[Callable[[], bool]]:
    """While this lasts SIGTERM interrupts whatever Ctrl-C would, with the same cleaning up; gives whether it came."""
    received = False

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = True
        on_interrupt = signal.getsignal(signal.SIGINT)
        if callable(on_interrupt):  # a progress bar puts it off to the end of its line
            on_interrupt(number, frame)
        else:  # a shell starts background jobs with Ctrl-C ignored
            raise KeyboardInterrupt

    # another handler is the program's that called us; signals are the main thread's
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


if __name__ == "__main__":
    main()
