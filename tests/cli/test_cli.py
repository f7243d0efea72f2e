"""The command line as people meet it: real files, and real processes where starting or ending one is the point."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import select
import signal
import subprocess
import sys
import termios
from array import array
from collections.abc import Iterator
from inspect import Parameter
from pathlib import Path
from typing import Any

import click
import psutil
import pytest

import undertow
from cli_runner import failed, run, run_process
from undertow import Corpus, LagCounts
from undertow.cli.fitting import written_defaults
from undertow.cli.main import VERBS, cli
from undertow.models.constraints import Choice
from waiting import HANGS, wait_for

TEXT = "The cat sat on the mat. The dog sat too.\nAnother line, with 3 numbers.\n" * 50


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    (tmp_path / "news.txt").write_text(TEXT)
    return tmp_path / "news.txt"


def test_from_text_to_counts_step_by_step(text_file: Path, tmp_path: Path) -> None:
    corpus, counts = tmp_path / "news.corpus", tmp_path / "news.counts"
    built = run_process("corpus", "build", text_file, "-o", corpus, "--vocab-size", "9")
    assert built.returncode == 0 and "950" in built.stdout and built.stderr == ""
    counted = run("count", corpus, "-o", counts, "--lags", "3", "--json")
    facts = json.loads(counted.stdout)
    assert facts["lags"] == 3 and facts["tokens"] == Corpus.open(corpus).n_tokens
    assert facts["pairs"][0] == LagCounts.open(counts).n_pairs(1)
    assert facts["across_sentences"] is False
    for path, kind in ((corpus, "corpus"), (counts, "counts")):
        assert json.loads(run("inspect", path, "--json").stdout)["kind"] == kind
        assert "most frequent" in run("inspect", path).stdout
        assert run("verify", path).stdout == f"{path}: whole ({kind})\n"


def test_from_text_to_counts_in_one_command(text_file: Path, tmp_path: Path) -> None:
    done = run("count", text_file, "-o", tmp_path / "news.counts", "--vocab-size", "all", "--json")
    assert json.loads(done.stdout)["corpus"] == str(tmp_path / "news.corpus")
    assert LagCounts.open(tmp_path / "news.counts").n_tokens == Corpus.open(tmp_path / "news.corpus").n_tokens


def test_counts_are_added(text_file: Path, tmp_path: Path) -> None:
    run("count", text_file, "-o", tmp_path / "a.counts")
    run("count", text_file, "-o", tmp_path / "b.counts", "--vocabulary", tmp_path / "a.counts")
    done = run("count", tmp_path / "a.counts", tmp_path / "b.counts", "-o", tmp_path / "c.counts")
    assert done.returncode == 0
    a, c = LagCounts.open(tmp_path / "a.counts"), LagCounts.open(tmp_path / "c.counts")
    assert (c.matrix(2) != a.matrix(2) * 2).nnz == 0 and c.n_tokens == 2 * a.n_tokens


def test_standard_input_and_options(tmp_path: Path) -> None:
    done = run(
        "corpus", "build", "-", "-o", tmp_path / "c", "--lower", "--boundary", "</s>", "--json", stdin=b"The THE the.\n"
    )
    assert json.loads(done.stdout)["tokens"] == 5
    assert list(Corpus.open(tmp_path / "c").token_lists()) == [["the", "the", "the", ".", "</s>"]]


def test_bad_utf8_is_counted_when_told_to(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"ok \xff\xfe fine\n")
    sentence = failed(run("corpus", "build", tmp_path / "x.txt", "-o", tmp_path / "c"))
    assert "x.txt" in sentence and "byte 3" in sentence and "--on-bad-utf8" in sentence
    facts = json.loads(
        run("corpus", "build", tmp_path / "x.txt", "-o", tmp_path / "c", "--on-bad-utf8", "skip", "--json").stdout
    )
    assert facts["invalid_utf8"] == 2 and facts["tokens"] == 2


def test_counting_on_a_dask_cluster(text_file: Path, tmp_path: Path) -> None:
    run("count", text_file, "-o", tmp_path / "a.counts")
    done = run_process("count", tmp_path / "a.corpus", "-o", tmp_path / "b.counts", "--dask", "local", "-j", "2")
    assert done.returncode == 0, done.stderr
    names = sorted(p.name for p in (tmp_path / "a.counts").iterdir())
    assert [(tmp_path / "a.counts" / n).read_bytes() for n in names] == [
        (tmp_path / "b.counts" / n).read_bytes() for n in names
    ]


def test_failures_are_one_sentence(text_file: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "dir").mkdir()
    (tmp_path / "bad.jsonl").write_text('{"text": "ok"}\n{"body": "x"}\n')
    (tmp_path / "bad.conllu").write_text("1\ta\n")
    run("corpus", "build", text_file, "-o", tmp_path / "c")
    out = ("-o", tmp_path / "out")
    for arguments in [
        ("corpus", "build", tmp_path / "nowhere.txt", *out),
        ("corpus", "build", tmp_path / "*.nothing", *out),
        ("corpus", "build", tmp_path / "dir", *out),
        ("corpus", "build", tmp_path / "empty.txt", *out),
        ("corpus", "build", tmp_path / "bad.jsonl", *out),
        ("corpus", "build", tmp_path / "bad.conllu", *out),
        ("corpus", "build", text_file, "-o", tmp_path / "c", "--vocab-size", "3"),  # another one is there
        ("corpus", "build", text_file, *out, "--keep-empty"),
        ("corpus", "build", text_file, *out, "--vocabulary", tmp_path / "nowhere"),
        ("corpus", "build", text_file, "-o", text_file / "below" / "a" / "file"),
        ("corpus", "build", text_file, *out, "-j", "0"),
        ("count", tmp_path / "dir", *out),
        ("count", tmp_path / "c", text_file, *out),
        ("count", tmp_path / "c", tmp_path / "c", *out),
        ("count", tmp_path / "c", *out, "--memory", "10M"),
        ("count", tmp_path / "c", *out, "--dask", "tcp://127.0.0.1:1"),
        ("inspect", tmp_path / "dir"),
        ("inspect", tmp_path / "nowhere"),
    ]:
        failed(run(*arguments))
        assert not (tmp_path / "out").exists()


def test_places_in_the_messages(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"text": "ok"}\n{"body": "x"}\n')
    assert "line 2" in failed(run_process("corpus", "build", tmp_path / "bad.jsonl", "-o", tmp_path / "c"))


def test_verify_tells_the_damaged_from_the_whole(text_file: Path, tmp_path: Path) -> None:
    run("corpus", "build", text_file, "-o", tmp_path / "a")
    run("corpus", "build", text_file, "-o", tmp_path / "b")
    raw = bytearray((tmp_path / "b" / "tokens.bin").read_bytes())
    raw[0] ^= 1
    (tmp_path / "b" / "tokens.bin").write_bytes(raw)
    done = run("verify", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 1 and "a: whole" in done.stdout and "tokens.bin" in done.stderr
    assert json.loads(run("verify", tmp_path / "a", tmp_path / "b", "--json").stdout)["whole"] is False
    assert "tokens.bin" in failed(run("count", tmp_path / "b", "-o", tmp_path / "n"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("corpus", "build"),
        ("corpus", "build", "x.txt"),
        ("nonsense",),
        ("count", "x", "-o", "y", "--lags", "0"),
        ("count", "x", "-o", "y", "--memory", "lots"),
        ("corpus", "build", "x", "-o", "y", "--vocab-size", "-3"),
        ("count", "x", "-o", "y", "--tls-ca", "z"),
    ],
)
def test_bad_usage_is_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    failed(run(*arguments), 2)


def test_help_and_version() -> None:
    done = run_process("--help")
    assert done.returncode == 0
    for verb in VERBS:
        assert f"  {verb} " in done.stdout
        assert run_process(verb, "--help").returncode == 0  # a process each: it imports what the verb needs, alone
    assert run_process("--version").stdout.startswith("undertow, version 0")
    failed(run_process("nonsense"), 2)


def every_command(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands, groups included, with what is typed to call them."""
    yield words, group
    for name in getattr(group, "verbs", ()):
        yield from every_command(group.get_command(click.Context(group), name), (*words, name))


def test_help_loads_nothing_heavy() -> None:
    """What makes --help of each command quick: none of the slow packages is imported (the time is in benchmarks/)."""
    commands = [words for words, _ in every_command(cli)]
    assert ("fit", "hmm") in commands and ("tag", "train") in commands
    code = (
        "import sys, undertow.cli.main as m\n"
        f"for words in {commands!r}:\n"
        "    try:\n        m.main([*words, '--help'])\n    except SystemExit as e:\n        assert e.code == 0, words\n"
        "    heavy = {'numpy', 'scipy', 'numba', 'safetensors', 'dask', 'sklearn', 'tqdm'} & sys.modules.keys()\n"
        "    assert not heavy, (words, heavy)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr


def test_options_of_fit_are_those_of_the_models() -> None:
    """Defaults come from the source and choices are written out, as neither may import a model: they must agree."""
    for name, module in (
        ("HMM", "hmm"),
        ("FactorialHMM", "fhmm"),
        ("LDS", "lds"),
        ("Grammar", "grammar"),
        ("DynamicEmbedding", "dynamic"),
        ("WordClusters", "clusters"),
        ("PMIVectors", "pmi"),
        ("ContextVectors", "context"),
    ):
        model = getattr(undertow, name)
        assert written_defaults(name) == {k: v for k, v in model.param_defaults().items() if v is not Parameter.empty}
        options = importlib.import_module(f"undertow.cli.fit_{module}").OPTIONS
        for option, (parameter, type_, _) in options.items():
            if isinstance(type_, click.Choice):
                constraint = model.constraints[parameter]
                assert isinstance(constraint, Choice), (name, option)
                assert set(type_.choices) == set(constraint._words), (name, option)


def test_a_closed_pipe_is_no_error(text_file: Path, tmp_path: Path) -> None:
    run("corpus", "build", text_file, "-o", tmp_path / "c")
    command = f"{sys.executable} -m undertow inspect {tmp_path / 'c'} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, text=True)
    assert done.returncode == 0 and done.stderr == ""


def waits_for_input(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has read all that we wrote, and rests."""
    assert process.stdin
    unread = array("i", [0])
    fcntl.ioctl(process.stdin, termios.FIONREAD, unread)
    return unread[0] == 0 and psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 1, "Interrupted"), (signal.SIGTERM, 143, "Terminated")]
)
def test_ctrl_c_and_sigterm_leave_a_state_that_goes_on(
    number: signal.Signals, code: int, word: str, tmp_path: Path
) -> None:
    """The reader waits on a pipe with parts behind it; a signal; the same command takes the parts over."""
    first, rest = (TEXT * 500).encode(), b"The last line.\n"
    arguments = [
        sys.executable,
        "-m",
        "undertow",
        "corpus",
        "build",
        "-",
        "-o",
        str(tmp_path / "c"),
        "-j",
        "1",
    ]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin and process.stderr
        process.stdin.write(first * 3)
        process.stdin.flush()
        wait_for(lambda: list((tmp_path / "c.partial").glob("part-*")) and waits_for_input(process))
        for _ in range(3):  # Python drops an interrupt that falls into a finalizer; a person would press again
            process.send_signal(number)
            if select.select([process.stderr], [], [], HANGS / 3)[0]:
                break
        else:
            process.kill()
        stderr = process.stderr.read().decode()
        assert process.wait(HANGS) == code
    assert stderr.startswith(f"undertow: {word}") and "Traceback" not in stderr and not (tmp_path / "c").exists()
    done = run("corpus", "build", "-", "-o", tmp_path / "c", "-j", "1", "--json", stdin=first * 3 + rest)
    assert json.loads(done.stdout)["parts_resumed"].startswith(("1 of", "2 of"))


@pytest.mark.parametrize("on_sigint", [signal.default_int_handler, signal.SIG_IGN])
@pytest.mark.parametrize("swallowed", [False, True])
def test_sigterm_ends_what_ctrl_c_would(on_sigint: Any, swallowed: bool, monkeypatch, capsys) -> None:
    """Also where a shell has Ctrl-C ignored; and a fit that keeps what it has still ends with the signal's code."""
    from undertow.cli import main as module

    cleaned = []

    def work(*_: object) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(cleaned.append, True)
            if swallowed:
                stack.enter_context(contextlib.suppress(KeyboardInterrupt))
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(module, "plain_warnings", contextlib.nullcontext)
    monkeypatch.setattr(module.cli, "make_context", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(module.cli, "invoke", work)
    before = signal.signal(signal.SIGINT, on_sigint)
    try:
        with pytest.raises(SystemExit) as e:
            module.main([])
    finally:
        signal.signal(signal.SIGINT, before)
    err = capsys.readouterr().err
    assert e.value.code == 143 and cleaned == [True] and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert err.startswith("undertow: Terminated") and err.count("\n") == 1 and ("is saved" in err) == swallowed


def test_an_unexpected_fault_is_still_one_sentence(monkeypatch, capsys) -> None:
    from undertow.cli import main as module

    def broken(*_: object) -> None:
        raise KeyError("a\nb")

    monkeypatch.setattr(module.cli, "make_context", broken)
    with pytest.raises(SystemExit) as e:
        module.main([])
    assert e.value.code == 1
    out = capsys.readouterr().err
    assert out.count("\n") == 1 and "bug in undertow" in out and "Traceback" not in out


def test_demo_ends_in_pages(text_file: Path, tmp_path: Path) -> None:
    place = tmp_path / "d"
    run("corpus", "build", text_file, "-o", place / "demo.corpus")  # what an earlier demonstration left is replaced
    (place / "map.html").write_text("old")
    done = run("demo", "-o", place)
    assert done.returncode == 0 and "Open " in done.stdout and "bank" in done.stdout
    index = (place / "index.html").read_text()
    assert index.startswith("<!doctype html>") and "undertow view" in index
    for name in ("reader", "hmm", "lds", "map", "corpus"):
        assert f'href="{name}.html"' in index and (place / f"{name}.html").stat().st_size < 2_000_000
    assert "South Africa" in (place / "map.html").read_text()
    assert run("verify", *sorted(place.glob("demo.*"))).returncode == 0
