"""Directories that undertow writes: what they may replace, what is left behind, and what people read when it fails."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli_runner import failed, run
from contract.reference import DeletedInterpolation
from interruptions import contents, sentences, text
from undertow import Corpus, LagCounts, atomic
from undertow.atomic import finished_file, temporary_staging
from undertow.errors import BusyError, FormatError, InputError
from undertow.storage import load_model

Write = Callable[..., Any]


def write_corpus(target: Path, seed: int = 1) -> Any:
    (target.parent / "in").mkdir(exist_ok=True)
    return Corpus.build([text(target.parent / "in", seed)], target, overwrite=True)


def write_counts(target: Path, seed: int = 1) -> Any:
    LagCounts.from_corpus(Corpus.from_sentences(sentences(seed)), lags=2, out=target, overwrite=True)


def write_sum(target: Path, seed: int = 1) -> Any:
    counts = LagCounts.from_corpus(Corpus.from_sentences(sentences(seed)), lags=2)
    LagCounts.merge([counts, counts], target, overwrite=True)


def write_model(target: Path, seed: int = 1) -> Any:
    DeletedInterpolation(n_iter=2, random_state=0).fit(sentences(seed)).save(target, overwrite=True)


WRITERS: dict[str, Write] = {
    "corpus": write_corpus,
    "counts": write_counts,
    "sum": write_sum,
    "model": write_model,
}
every_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


# --- only what undertow wrote is ever replaced -----------------------------------------------------------


def foreign_directories(place: Path, write: Write) -> Iterator[Path]:
    """Directories that hold anything but what `write` writes."""
    for name, files_ in {
        "thesis": {"thesis.tex": b"years of work"},
        "manifest": {"manifest.json": b'{"name": "a web page"}', "vocabulary.txt": b"mine"},
        "broken": {"manifest.json": b"not json", "config.json": b"not json"},
    }.items():
        (place / name).mkdir()
        for file, data in files_.items():
            (place / name / file).write_bytes(data)
        yield place / name
    write(place / "notes")
    (place / "notes" / "notes.txt").write_text("mine")
    yield place / "notes"
    write(place / "folder")
    (place / "folder" / ".git").mkdir()
    yield place / "folder"
    for other in WRITERS.values():
        if other is not write and {other, write} != {write_counts, write_sum}:
            target = place / f"other-{other.__name__}"
            other(target)
            yield target


@every_writer
def test_nothing_foreign_is_overwritten(write: Write, tmp_path: Path) -> None:
    for target in foreign_directories(tmp_path, write):
        before = contents(target)
        with pytest.raises(InputError, match=r"is not .* that undertow wrote, so it is not overwritten.*\.$"):
            write(target)
        assert contents(target) == before
    assert not list(tmp_path.glob("*.partial")) and not list(tmp_path.glob(".*"))


@every_writer
def test_a_file_a_link_or_a_place_without_room(write: Write, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        write(tmp_path / "file")
    write(tmp_path / "real")
    before = contents(tmp_path / "real")
    for name, leads_to in [("link", "real"), ("dangling", "nowhere")]:
        (tmp_path / name).symlink_to(tmp_path / leads_to)
        with pytest.raises(InputError, match="symbolic link"):
            write(tmp_path / name)
    with pytest.raises(InputError, match="cannot be written"):
        write_counts(tmp_path / "file" / "inside") if write is write_corpus else write(tmp_path / "file" / "inside")
    assert contents(tmp_path / "real") == before and (tmp_path / "file").read_text() == "mine"
    assert {p.name for p in tmp_path.iterdir()} - {"in"} == {"file", "real", "link", "dangling"}
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty")
    write(tmp_path / "real")


def test_the_command_line_refuses_before_it_reads(tmp_path: Path) -> None:
    words = text(tmp_path, 1)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("mine")
    for verb in [["corpus", "build"], ["count"], ["fit", "lds"]]:
        for target, why in [("precious", "not overwritten"), ("file", "is a file")]:
            done = run(*verb, words, "-o", tmp_path / target, "--overwrite")
            assert why in failed(done)
    (tmp_path / "m.counts").mkdir()
    (tmp_path / "m.counts" / "thesis.tex").write_text("years of work")
    failed(run("fit", "lds", words, "-o", tmp_path / "m.lds", "--overwrite"))  # too few words: nothing to do with it
    assert (tmp_path / "m.counts" / "thesis.tex").read_text() == "years of work"  # the counts are called otherwise
    assert [p.name for p in (tmp_path / "m.counts").iterdir()] == ["thesis.tex"]
    assert {p.name for p in (tmp_path / "precious").iterdir()} == {"thesis.tex"}
    left = {p.name for p in tmp_path.iterdir()} - {"1.txt", "precious", "file", "m.counts"}
    assert all(re.fullmatch(r"m(-[0-9a-f]{8})?\.(corpus|counts)", name) for name in left), left


@pytest.mark.parametrize("write", [write_corpus, write_counts])
def test_a_partial_that_is_not_ours(write: Write, tmp_path: Path) -> None:
    partial = tmp_path / "x.partial"
    for names in [["thesis.tex"], ["lock", "thesis.tex"], ["ready"], ["lock", "work-mine"]]:
        partial.mkdir()
        for name in names:
            (partial / name).write_text("mine")
        with pytest.raises(InputError, match="did not write"):
            write(tmp_path / "x")
        assert sorted(os.listdir(partial)) == sorted(names)
        for name in names:
            (partial / name).unlink()
        partial.rmdir()
    partial.write_text("mine")
    with pytest.raises(InputError, match="in the way"):
        write(tmp_path / "x")
    assert partial.read_text() == "mine" and not (tmp_path / "x").exists()
    partial.unlink()
    partial.mkdir()  # a kill right after it was made
    write(tmp_path / "x")
    assert not partial.exists()


def test_half_finished_work_without_a_name_is_not_taken_over(tmp_path: Path) -> None:
    """What an older undertow left could be another corpus's counts."""
    other = Corpus.from_sentences(sentences(2))
    LagCounts.from_corpus(other, lags=2, out=tmp_path / "other")
    (tmp_path / "n.partial").mkdir()
    (tmp_path / "n.partial" / "lock").touch()
    (tmp_path / "other").rename(tmp_path / "n.partial" / "work")
    write_counts(tmp_path / "n")
    write_counts(tmp_path / "whole")
    assert contents(tmp_path / "n") == contents(tmp_path / "whole")


# --- what is left behind ---------------------------------------------------------------------------------


@every_writer
def test_only_rooms_of_dead_writers_are_removed(write: Write, tmp_path: Path) -> None:
    dead = tmp_path / ".x.tmp-dead"
    (dead / "ready").mkdir(parents=True)
    (dead / "lock").touch()
    (tmp_path / ".x.tmp-empty").mkdir()
    foreign = tmp_path / ".x.tmp-mine"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    with temporary_staging(tmp_path / "y") as other, temporary_staging(tmp_path / "x") as alive:
        assert not dead.exists()
        write(tmp_path / "x")
        assert alive.exists() and other.exists() and foreign.exists()
    assert not alive.exists() and {p.name for p in tmp_path.iterdir()} - {"in"} == {"x", ".x.tmp-mine"}


def test_a_lock_that_goes_while_it_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder removes the room between our opening the lock and locking it: the lock would be nobody's."""
    import fcntl

    real, calls = fcntl.flock, 0

    def late(fd: int, how: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            (tmp_path / "r" / "lock").unlink()
            (tmp_path / "r").rmdir()
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with atomic.exclusive_lock(tmp_path / "r", "testing"):
        assert calls == 2 and (tmp_path / "r" / "lock").exists()
        with pytest.raises(BusyError), atomic.exclusive_lock(tmp_path / "r", "testing"):
            pass
    assert not (tmp_path / "r").exists()


@every_writer
def test_what_fails_after_the_new_directory_is_there_is_a_warning(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "x")
    whole = contents(tmp_path / "x")
    (tmp_path / "x" / next(iter(whole))).touch()
    real = os.rmdir

    def stuck(path: Any, *args: Any, **kwargs: Any) -> None:
        if Path(path).name in ("ready", "old"):
            raise PermissionError(13, "Permission denied", str(path))
        real(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", stuck)
        with pytest.warns(UserWarning, match=r"could not be removed \(Permission denied\).*yourself\.$"):
            write(tmp_path / "x")
    assert contents(tmp_path / "x") == whole
    write(tmp_path / "x")  # removes what the last could not
    assert {p.name for p in tmp_path.iterdir()} - {"in"} == {"x"}


# --- what people read when the disk is full -------------------------------------------------------------


@contextmanager
def file_limit(n_bytes: int) -> Iterator[None]:
    """No file may grow beyond this: what a full disk does to a writer, for one process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("n_bytes", [0, 20, 150])
@every_writer
def test_a_full_disk_names_the_place_and_the_cure(write: Write, n_bytes: int, tmp_path: Path) -> None:
    write(tmp_path / "warm")
    with file_limit(n_bytes), pytest.raises(InputError) as e:
        write_into = tmp_path / "deep" / "x"
        (tmp_path / "deep" / "in").mkdir(parents=True)
        if write is write_corpus:
            Corpus.build([tmp_path / "in" / "1.txt"], write_into)
        else:
            write(write_into)
    message = str(e.value)
    assert f"{tmp_path / 'deep' / 'x'} cannot be written (" in message
    assert "MB are free there): make space there or choose another place." in message and "\n" not in message
    assert not (tmp_path / "deep" / "x").exists()


def test_a_full_disk_under_a_single_file(tmp_path: Path) -> None:
    with file_limit(8), pytest.raises(InputError, match=r"v\.txt cannot be written .*free there"):  # noqa: SIM117
        with finished_file(tmp_path / "v.txt", overwrite=False) as path:
            path.write_bytes(b"0123456789")
    assert list(tmp_path.iterdir()) == []


def test_an_input_that_cannot_be_read_is_not_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"c\.tokens"), atomic.write_errors_name(tmp_path / "n"):
        open(tmp_path / "c.tokens", "rb").close()
    with pytest.raises(BrokenPipeError), atomic.write_errors_name(tmp_path / "n"):
        raise BrokenPipeError(32, "Broken pipe")
    for place in [tmp_path, tmp_path / "n", tmp_path / "n.partial" / "a", tmp_path / ".n.tmp-1" / "ready"]:
        with (
            pytest.raises(InputError, match=r"n cannot be written \(Permission denied\)"),
            atomic.write_errors_name(tmp_path / "n"),
        ):
            raise PermissionError(13, "Permission denied", str(place))


def test_a_killed_process_lets_go_of_its_room(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom undertow.atomic import temporary_staging\n"
        "with temporary_staging(Path(sys.argv[1])) as room:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, tmp_path / "x"], check=False).returncode == -9
    assert list(tmp_path.glob(".x.tmp-*/lock"))
    with temporary_staging(tmp_path / "x") as room:
        assert list(tmp_path.iterdir()) == [room]
    assert list(tmp_path.iterdir()) == []


# --- reading while another process writes ---------------------------------------------------------------


OPENERS: dict[str, Callable[..., Any]] = {
    "corpus": lambda p, **o: Corpus.open(p, **o).ids[:20].tolist(),
    "counts": lambda p, **o: LagCounts.open(p, **o).matrix(1).todense().tolist(),
    "sum": lambda p, **o: LagCounts.open(p, **o).matrix(1).todense().tolist(),
    "model": lambda p, **o: load_model(p, **o).history_,
}


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", WRITERS)
def test_a_directory_replaced_while_it_is_read(
    name: str, verify: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replaced before every file that the reader looks at, one after the other: the new one is read, whole."""
    write, read = WRITERS[name], OPENERS[name]
    write(tmp_path / "new", 2)
    new = read(tmp_path / "new")
    real = os.stat
    for nth in range(1, 50):
        write(tmp_path / "x", 1)
        assert read(tmp_path / "x") != new
        calls = 0

        def replace(path: Any, *args: Any, nth: int = nth, **kwargs: Any) -> os.stat_result:
            nonlocal calls
            if str(path).startswith(f"{tmp_path / 'x'}/"):
                calls += 1
                if calls == nth:
                    with monkeypatch.context() as undone:
                        undone.setattr(os, "stat", real)
                        write(tmp_path / "x", 2)
            return real(path, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", replace)
            found = read(tmp_path / "x", verify=verify)
        if calls < nth:
            break
        assert found == new, nth
    assert 3 < nth < 49


def test_a_directory_replaced_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path / "x")
    numbers = iter(range(1000))
    monkeypatch.setattr("undertow.files._identity", lambda *_: [next(numbers)])
    with pytest.raises(FormatError, match=r"keeps being replaced.*\.$"):
        Corpus.open(tmp_path / "x")


def test_a_corpus_replaced_while_it_is_counted(tmp_path: Path) -> None:
    write_corpus(tmp_path / "c")
    corpus = Corpus.open(tmp_path / "c")
    write_corpus(tmp_path / "c", 2)
    with pytest.raises(FormatError, match="was replaced while it was counted"):
        LagCounts.from_corpus(corpus, lags=2, out=tmp_path / "n")
