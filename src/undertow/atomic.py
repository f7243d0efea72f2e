"""Atomic output: files and directories are written beside their target and renamed to it when they are complete.

A new directory grows in a staging directory beside its target: `ready` becomes the target, `old` is what the target was
where two names cannot be exchanged at once, `lock` is held as long as the writer lives. A resumable writer keeps its
work there too, under names that no other work has. `ready` and `old` are never taken for work.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from undertow.errors import BusyError, FormatError, InputError
from undertow.files import read_json

READY, OLD, LOCK = "ready", "old", "lock"
RECIPE = "recipe.json"  # how a directory of any kind was made (`recipe`)


@contextlib.contextmanager
def finished_file(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a path to write a file to; if the block ends without an error, the file is renamed to `target`."""
    check_file_target(target, overwrite=overwrite)
    with temporary_staging(target) as staging:
        ready = staging / READY / target.name
        yield ready
        _fsync(ready)
        os.replace(ready, target)
        _flush_name(target)


def check_file_target(target: Path, *, overwrite: bool) -> None:
    """Check before the work that a file can be written to this name."""
    if target.is_dir():
        raise InputError(f"{target} is a directory: give the name of a file.")
    if (target.exists() or target.is_symlink()) and not overwrite:
        raise exists_error(target)


def exists_error(target: Path) -> InputError:
    return InputError(
        f"{target} exists already: give another name, or replace it with --overwrite (in Python overwrite=True)."
    )


class DirectoryKind(NamedTuple):
    """Describes the directories of one kind, so that only these are ever overwritten."""

    what: str  # "a corpus"
    manifest: str
    names: re.Pattern[str]  # of the files that undertow writes there
    wrote: Callable[[dict[str, Any]], bool]  # whether undertow wrote this manifest


def check_directory_target(target: Path, kind: DirectoryKind, *, overwrite: bool) -> None:
    """Check before the work that a directory of this kind can be written to this name.

    Overwriting removes the old directory, so it must be empty, or of the same kind, written by undertow and without
    other files.
    """
    target = Path(os.path.abspath(target))
    if target.is_symlink():
        raise InputError(f"{target} is a symbolic link: give the directory that it leads to, or another name.")
    if not target.exists():
        place = next(p for p in target.parents if p.exists())
        if not place.is_dir() or not os.access(place, os.W_OK):
            raise InputError(f"{target} cannot be written ({place} is not a writable directory): choose another place.")
        return
    if not target.is_dir():
        raise InputError(f"{target} is a file, so it is not overwritten: give the name of a directory.")
    if not overwrite:
        raise exists_error(target)
    if not written_by_undertow(target, kind):
        raise InputError(
            f"{target} is not {kind.what} that undertow wrote, so it is not overwritten: remove it yourself, or give "
            "another name."
        )


def written_by_undertow(directory: Path, kind: DirectoryKind) -> bool:
    """Whether undertow wrote the directory and it holds no other files; True for an empty one."""
    names = os.listdir(directory)
    if not names:
        return True
    # a kill may have left a temporary file
    plain = (re.sub(r"^\.(.*)\.\d+\.tmp$", r"\1", name) for name in names)
    ours = (name == RECIPE or kind.names.fullmatch(name) for name in plain)
    if not all(ours) or not all((directory / name).is_file() for name in names):
        return False
    try:
        return kind.wrote(read_json(directory / kind.manifest))
    except FormatError:
        return False


@contextlib.contextmanager
def resumable_staging(target: Path, work: re.Pattern[str], what: str) -> Iterator[Path]:
    """Lock and yield `<target>.partial`; it is kept if the block fails, and removed if it succeeds.

    Files whose names match `work` are kept for the next writer, who decides by their names whether to reuse them.
    """
    staging = target.with_name(target.name + ".partial")
    with write_errors_name(target):
        if staging.is_symlink() or (staging.exists() and not staging.is_dir()):
            raise InputError(f"{staging} is in the way: move it away or choose another name than {target.name}.")
        names = set(os.listdir(staging)) if staging.exists() else set()
        if names and (LOCK not in names or any(not work.fullmatch(n) for n in names - {LOCK, READY, OLD})):
            raise InputError(f"{staging} holds files that undertow did not write: move it away or choose another name.")
        with exclusive_lock(staging, what):
            _clear(staging, target)
            try:
                yield staging
            except BaseException:
                with contextlib.suppress(OSError):
                    _clear(staging, target)
                raise
            _remove_staging(staging, target)


@contextlib.contextmanager
def temporary_staging(target: Path) -> Iterator[Path]:
    """Yield a new staging directory beside `target` with an empty `ready`; it is removed when the block ends.

    Staging directories of killed writers of the same target are removed first.
    """
    with write_errors_name(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned_staging(target)
        staging, lock = _locked_staging(target)
        try:
            try:
                (staging / READY).mkdir()
                yield staging
            finally:
                _remove_staging(staging, target)
        finally:
            os.close(lock)


def install_directory(staging: Path, target: Path, kind: DirectoryKind, *, overwrite: bool) -> None:
    """Move the finished `ready` of a staging directory to its target, in one step where the system supports it."""
    ready = staging / READY
    fsync_tree(ready)
    check_directory_target(target, kind, overwrite=overwrite)  # once more: it may have changed meanwhile
    if not target.exists():
        os.rename(ready, target)
    elif not _exchange(ready, target):
        # two steps: after a failure or a kill between them, the staging gives the old directory back (`_clear`)
        os.rename(target, staging / OLD)
        os.rename(ready, target)
    _flush_name(target)


def fsync_tree(directory: Path) -> None:
    """Flush every file in a (flat) directory and the directory itself to the disk."""
    for path in [*(p for p in directory.iterdir() if p.is_file()), directory]:
        _fsync(path)


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _flush_name(target: Path) -> None:
    """Flush the directory entry of the target. The output is complete by now, so a failure is only a warning."""
    try:
        _fsync(target.parent)
    except OSError as e:
        warnings.warn(
            f"{target} was written, but {target.parent} could not be flushed to the disk ({_why(e)}): "
            "a power cut may lose it.",
            stacklevel=2,
        )


def _exchange(a: Path, b: Path) -> bool:
    """Exchange two names atomically (Linux); False if the system does not support it."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0)


def _clear(staging: Path, target: Path) -> None:
    """Remove `ready` and `old` of an earlier writer; if the target is missing, move `old` back to it first."""
    if (staging / OLD).exists() and not target.exists():
        os.rename(staging / OLD, target)
        _fsync(target.parent)
    for name in (OLD, READY):
        if (staging / name).exists():
            shutil.rmtree(staging / name)


def _remove_staging(staging: Path, target: Path) -> None:
    """Remove a staging directory that this process holds, its lock last, as the lock marks it as ours."""
    try:
        _clear(staging, target)
        for name in os.listdir(staging):
            if name != LOCK:
                path = staging / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        (staging / LOCK).unlink()
    except OSError as e:
        warnings.warn(
            f"{staging} could not be removed ({_why(e)}): the next writer of {target} tries again, or remove it "
            "yourself.",
            stacklevel=2,
        )
        return
    with contextlib.suppress(OSError):  # another writer may be using it already
        staging.rmdir()


def _remove_abandoned_staging(target: Path) -> None:
    """Remove the temporary staging directories of writers that were killed; nobody holds their locks."""
    for staging in target.parent.glob(f".{glob.escape(target.name)}.tmp-*"):
        with contextlib.suppress(OSError):  # of another user, or removed meanwhile
            names = set(os.listdir(staging))
            if not names:
                staging.rmdir()  # if its owner is alive, it makes another
            elif LOCK in names and names <= {LOCK, READY, OLD} and not staging.is_symlink():
                lock = _lock(staging)
                try:
                    _remove_staging(staging, target)
                finally:
                    os.close(lock)


def _locked_staging(target: Path) -> tuple[Path, int]:
    while True:
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.tmp-", dir=target.parent))
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # another writer took it for abandoned
            return staging, _lock(staging)


def _lock(staging: Path) -> int:
    """Lock a staging directory; the lock ends with the process, so a kill leaves nothing to unlock.

    BlockingIOError if it is held, FileNotFoundError if it is being removed.
    """
    import fcntl

    fd = os.open(staging / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(fd), os.stat(staging / LOCK)):  # who held it has removed it since we opened it
            raise FileNotFoundError
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextlib.contextmanager
def exclusive_lock(directory: Path, what: str) -> Iterator[None]:
    """Hold the lock of a directory; a BusyError if another process holds it."""
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            lock = _lock(directory)
            break
        except FileNotFoundError:
            continue
        except BlockingIOError:
            raise BusyError(
                f"{directory} is in use: another process is {what} there; wait for it or choose another name."
            ) from None
    try:
        try:
            yield
        finally:
            # leave no empty directory behind; still under the lock
            with contextlib.suppress(OSError):
                mine = os.path.samestat(os.fstat(lock), os.stat(directory / LOCK))
                if mine and os.listdir(directory) == [LOCK]:
                    os.unlink(directory / LOCK)
                    os.rmdir(directory)
    finally:
        os.close(lock)


@contextlib.contextmanager
def write_errors_name(target: Path) -> Iterator[None]:
    """Turn an OSError while writing `target` or beside it into an InputError that names the target and the cure."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise  # a closed pipe or a lost cluster, not a file
    except OSError as e:
        if isinstance(e.filename, str | os.PathLike) and not _is_written_for(Path(e.filename), target):
            raise  # what was read, and its name is in the error
        full = e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        free = f"; {_free(target.parent)} are free there" if full else ""
        raise InputError(
            f"{target} cannot be written ({_why(e)}{free}): make space there or choose another place."
        ) from e


def _is_written_for(path: Path, target: Path) -> bool:
    """Whether a path is the target, one of its parents, or in one of its staging directories."""
    path, target = Path(os.path.abspath(path)), Path(os.path.abspath(target))
    staging = (target.name, f"{target.name}.partial", f".{target.name}.tmp-")
    inside = path.is_relative_to(target.parent) and path != target.parent
    return path in target.parents or (inside and path.relative_to(target.parent).parts[0].startswith(staging))


def _free(directory: Path) -> str:
    try:
        return f"{shutil.disk_usage(directory).free / 1e6:.1f} MB"
    except OSError:
        return "an unknown number of bytes"


def _why(e: OSError) -> str:
    return " ".join(str(e.strerror or e).split())
