"""Directories that are whole or not there: strict JSON, hashes, locks and atomic replacement.

Corpora, counts and models all live in directories with a JSON file that names and hashes the others. What
they share is here; what they mean is in `text.corpus`, `text.lag_counts` and `storage`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import glob
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, ParamSpec, TypeVar

from undertow.errors import BusyError, FormatError, InputError, short

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_JSON_BYTES = 64 << 20
DIGEST = "digest"
MAX_READS = 10  # of a directory that is replaced while it is read

P = ParamSpec("P")
T = TypeVar("T")


def sha256_file(path: Path) -> str:
    """Hash of a file's bytes, read in pieces."""
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out:
            raise ValueError(f"the key {key!r} appears twice")
        out[key] = value
    return out


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


def parse_json(data: bytes) -> Any:
    """JSON, strictly: UTF-8, no duplicate keys, no NaN, no infinity. Raises ValueError with the reason."""
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_refuse_duplicates,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, strictly."""
    check_plain(path)
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise FormatError(f"{path} has {size} bytes, too many for a description: it was not written by undertow.")
        data = path.read_bytes()
    except FileNotFoundError:
        raise FormatError(f"{path} is missing: the directory is not whole; write it again.") from None
    except OSError as e:
        raise FormatError(f"{path} cannot be read ({e.strerror}): look at its permissions.") from None
    try:
        value = parse_json(data)
    except ValueError as e:
        raise FormatError(f"{path} is not readable as JSON ({e}): write the directory again.") from None
    if not isinstance(value, dict):
        raise FormatError(f"{path} holds {type(value).__name__}, not an object: it was not written by undertow.")
    return value


def _digest(value: dict[str, Any]) -> str:
    """Hash of what the JSON says, whatever its layout: the keys sorted, no spaces, the digest itself left out."""
    content = {key: item for key, item in value.items() if key != DIGEST}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write the JSON file that describes a directory, with a digest over all that it says.

    As the hashes of the directory's other files are among what it says, the digest covers every byte of them too.
    """
    write_json(path, {**value, DIGEST: _digest(value)})


def check_seal(path: Path, value: dict[str, Any]) -> None:
    """Refuse what `write_sealed` did not write, or what was changed since."""
    if DIGEST not in value:
        raise FormatError(
            f"{path} has no digest: it was written by an older undertow, or by another program; write it again."
        )
    if value[DIGEST] != _digest(value):
        raise FormatError(f"{path} does not match its own digest: it was changed or damaged; write it again.")


Fields = dict[str, type | tuple[type, ...]]


def check_fields(path: Path, value: Any, fields: Fields, what: str = "") -> None:
    """Refuse an object of JSON with a key more or less than `fields`, a value of another type, or a negative count."""
    place = f"{path}: {what} " if what else f"{path} "
    if not isinstance(value, dict):
        raise FormatError(f"{place}is {short(value)}, not an object: write the directory again.")
    for key in [*value, *fields]:
        if key not in fields:
            raise FormatError(f"{place}has the key {short(key)}, which undertow never writes: write it again.")
        if key not in value:
            raise FormatError(f"{place}lacks the key {short(key)}: write the directory again.")
    for key, types in fields.items():
        found, allowed = value[key], types if isinstance(types, tuple) else (types,)
        if type(found) not in allowed or (type(found) is int and found < 0):  # not isinstance: True is no number
            raise FormatError(f"{place}has {key}={short(found)}, which cannot be: write the directory again.")


def check_plain(path: Path) -> None:
    """Refuse pipes and devices, which would block or never end, and links that lead out of the directory.

    A directory that somebody sent must not read, by its own choice, what lies elsewhere on this machine. What is
    missing is said when it is read.
    """
    if path.is_symlink() and path.parent.resolve() not in path.resolve().parents:
        raise FormatError(f"{path} is a link out of its directory: put the file itself there.")
    if path.exists() and not path.is_file():
        raise FormatError(f"{path} is not a file: write the directory again.")


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write and fsync; the caller makes the directory atomic."""
    data = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_bytes(path, data.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that it is either absent or whole, even after a power cut."""
    tmp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(tmp, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.replace(tmp, path)


def write_array(f: BinaryIO, array: NDArray[Any]) -> None:
    """Write a contiguous array's bytes. Not by `tofile`, which loses the last bytes on a full disk without an error."""
    f.write(array.data)


@contextlib.contextmanager
def finished_file(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """A path beside `target` to write a file to; when the block ends well it takes the target's name."""
    check_file_target(target, overwrite=overwrite)
    with temporary_room(target) as room:
        ready = room / READY / target.name
        yield ready
        _fsync(ready)
        os.replace(ready, target)
        _settle(target)


def check_file_target(target: Path, *, overwrite: bool) -> None:
    """Refuse a name that no file can be moved to, before the work."""
    if target.is_dir():
        raise InputError(f"{target} is a directory: give the name of a file.")
    if (target.exists() or target.is_symlink()) and not overwrite:
        raise exists_error(target)


def exists_error(target: Path) -> InputError:
    return InputError(f"{target} exists already: give another name, or allow it to be overwritten.")


# --- directories: what may be replaced, and how ------------------------------------------------------------


class Kind(NamedTuple):
    """What the directories of one kind look like, so that nothing but these is ever replaced."""

    what: str  # "a corpus"
    manifest: str
    names: re.Pattern[str]  # of the files that undertow writes there
    wrote: Callable[[dict[str, Any]], bool]  # whether undertow wrote this manifest


def check_directory_target(target: Path, kind: Kind, *, overwrite: bool) -> None:
    """Refuse, before the work, a name that no directory of this kind may be moved to.

    Overwriting removes what was there, so that must be a directory of the same kind that undertow wrote, without
    a file of anybody else in it; or empty.
    """
    target = Path(os.path.abspath(target))
    if target.is_symlink():
        raise InputError(f"{target} is a symbolic link: give the directory that it leads to, or another name.")
    if not target.exists():
        place = next(p for p in target.parents if p.exists())
        if not place.is_dir() or not os.access(place, os.W_OK):
            raise InputError(f"{target} cannot be written ({place} is no directory to write to): give another place.")
        return
    if not target.is_dir():
        raise InputError(f"{target} is a file, so it is not overwritten: give the name of a directory.")
    if not overwrite:
        raise exists_error(target)
    if not is_own(target, kind):
        raise InputError(
            f"{target} is not {kind.what} that undertow wrote, so it is not overwritten: remove it yourself, or give "
            "another name."
        )


def is_own(directory: Path, kind: Kind) -> bool:
    """Whether undertow wrote the directory and nobody put anything else into it; True for an empty one."""
    names = os.listdir(directory)
    if not names:
        return True
    # a kill may have left the file that another was being written as
    ours = (kind.names.fullmatch(re.sub(r"^\.(.*)\.\d+\.tmp$", r"\1", name)) for name in names)
    if not all(ours) or not all((directory / name).is_file() for name in names):
        return False
    try:
        return kind.wrote(read_json(directory / kind.manifest))
    except FormatError:
        return False


# A room is a directory beside the target in which the new one grows: `ready` becomes the target, `old` is what the
# target was where two names cannot change places, `lock` is held as long as the writer lives. A resumable writer
# keeps its work there too, under names that no other work has. `ready` and `old` are never taken for work.
READY, OLD, LOCK = "ready", "old", "lock"


@contextlib.contextmanager
def resumable_room(target: Path, work: re.Pattern[str], what: str) -> Iterator[Path]:
    """`<target>.partial`, held for one writer. It stays when the block fails, and goes when it ends well.

    What fits `work` may be found there again by the next writer, who must tell by its name whether to use it.
    """
    room = target.with_name(target.name + ".partial")
    with writing(target):
        if room.is_symlink() or (room.exists() and not room.is_dir()):
            raise InputError(f"{room} is in the way: move it away or choose another name than {target.name}.")
        names = set(os.listdir(room)) if room.exists() else set()
        if names and (LOCK not in names or any(not work.fullmatch(n) for n in names - {LOCK, READY, OLD})):
            raise InputError(f"{room} holds files that undertow did not write: move it away or choose another name.")
        with exclusive(room, what):
            _clear(room, target)
            try:
                yield room
            except BaseException:
                with contextlib.suppress(OSError):
                    _clear(room, target)
                raise
            _remove_room(room, target)


@contextlib.contextmanager
def temporary_room(target: Path) -> Iterator[Path]:
    """A fresh room beside `target` with an empty `ready`; it goes however the block ends.

    Rooms that killed writers of the same target left are removed first.
    """
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_dead_rooms(target)
        room, lock = _locked_room(target)
        try:
            try:
                (room / READY).mkdir()
                yield room
            finally:
                _remove_room(room, target)
        finally:
            os.close(lock)


def install_directory(room: Path, target: Path, kind: Kind, *, overwrite: bool) -> None:
    """Move the finished `ready` of a room to its name, in one step where the system can exchange two names."""
    ready = room / READY
    fsync_tree(ready)
    check_directory_target(target, kind, overwrite=overwrite)  # again: hours may have passed
    if not target.exists():
        os.rename(ready, target)
    elif not _exchange(ready, target):
        # two steps: after a failure or a kill between them, the room gives the old directory back (`_clear`)
        os.rename(target, room / OLD)
        os.rename(ready, target)
    _settle(target)


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


def _settle(target: Path) -> None:
    """Flush the new name to the disk. The output is in its place by now: what fails is a warning, not a failure."""
    try:
        _fsync(target.parent)
    except OSError as e:
        warnings.warn(
            f"{target} was written, but {target.parent} could not be flushed to the disk ({_why(e)}): "
            "a power cut may lose it.",
            stacklevel=2,
        )


def _exchange(a: Path, b: Path) -> bool:
    """Let two names change places atomically (Linux); False where that is not to be had."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0)


def _clear(room: Path, target: Path) -> None:
    """Remove what an earlier writer was about to install or had replaced; give back what it had only moved away."""
    if (room / OLD).exists() and not target.exists():
        os.rename(room / OLD, target)
        _fsync(target.parent)
    for name in (OLD, READY):
        if (room / name).exists():
            shutil.rmtree(room / name)


def _remove_room(room: Path, target: Path) -> None:
    """Remove a room that this process holds, the lock last: without it the rest would not be known as ours."""
    try:
        _clear(room, target)
        for name in os.listdir(room):
            if name != LOCK:
                path = room / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        (room / LOCK).unlink()
    except OSError as e:
        warnings.warn(
            f"{room} could not be removed ({_why(e)}): the next writer of {target} tries again, or remove it yourself.",
            stacklevel=2,
        )
        return
    with contextlib.suppress(OSError):  # another writer may have moved in already
        room.rmdir()


def _remove_dead_rooms(target: Path) -> None:
    """Remove the temporary rooms of writers that were killed; nobody holds their locks."""
    for room in target.parent.glob(f".{glob.escape(target.name)}.tmp-*"):
        with contextlib.suppress(OSError):  # somebody else's, or removed by somebody else: not ours to complain
            names = set(os.listdir(room))
            if not names:
                room.rmdir()  # its maker, if it lives, makes another
            elif LOCK in names and names <= {LOCK, READY, OLD} and not room.is_symlink():
                lock = _lock(room)
                try:
                    _remove_room(room, target)
                finally:
                    os.close(lock)


def _locked_room(target: Path) -> tuple[Path, int]:
    while True:
        room = Path(tempfile.mkdtemp(prefix=f".{target.name}.tmp-", dir=target.parent))
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # another writer thought it was left behind
            return room, _lock(room)


def _lock(room: Path) -> int:
    """Lock a room; the lock dies with the process, so a kill leaves nothing to unlock. BlockingIOError if it is held,
    FileNotFoundError if it is being removed."""
    import fcntl

    fd = os.open(room / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(fd), os.stat(room / LOCK)):  # who held it has removed it since we opened it
            raise FileNotFoundError
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextlib.contextmanager
def exclusive(directory: Path, what: str) -> Iterator[None]:
    """Hold a directory for one writer."""
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
            # nothing worth keeping: leave no empty directory behind; still under the lock
            with contextlib.suppress(OSError):
                mine = os.path.samestat(os.fstat(lock), os.stat(directory / LOCK))
                if mine and os.listdir(directory) == [LOCK]:
                    os.unlink(directory / LOCK)
                    os.rmdir(directory)
    finally:
        os.close(lock)


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """Around all work that ends in `target`: a failure to write anywhere beside it names the place and the cure."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise  # a closed pipe or a lost cluster, not a file
    except OSError as e:
        if isinstance(e.filename, str | os.PathLike) and not _is_written_for(Path(e.filename), target):
            raise  # what was read, and its name is in the error
        full = e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        free = f"; {_free(target.parent)} are free there" if full else ""
        raise InputError(f"{target} cannot be written ({_why(e)}{free}): make room there or give another place.") from e


def _is_written_for(path: Path, target: Path) -> bool:
    """Whether a path is the target, above it, or in a room of it."""
    path, target = Path(os.path.abspath(path)), Path(os.path.abspath(target))
    rooms = (target.name, f"{target.name}.partial", f".{target.name}.tmp-")
    inside = path.is_relative_to(target.parent) and path != target.parent
    return path in target.parents or (inside and path.relative_to(target.parent).parts[0].startswith(rooms))


def _free(directory: Path) -> str:
    try:
        return f"{shutil.disk_usage(directory).free / 1e6:.1f} MB"
    except OSError:
        return "an unknown number of bytes"


def _why(e: OSError) -> str:
    return " ".join(str(e.strerror or e).split())


# --- what is in a directory ---------------------------------------------------------------------------------


def reread_if_replaced(manifest: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a reader of directories (its first path): it reads once more what was replaced while it read.

    Otherwise it would find files of two directories, and call damaged, or take for one, what is neither.
    """

    def decorate(read: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(read)
        def steady(*args: P.args, **kwargs: P.kwargs) -> T:
            given = next((a for a in (*args, *kwargs.values()) if isinstance(a, str | os.PathLike)), "")
            for _ in range(MAX_READS):
                before = _identity(Path(given), manifest)
                try:
                    result = read(*args, **kwargs)
                except (FormatError, OSError):
                    if _identity(Path(given), manifest) == before:
                        raise
                else:
                    if _identity(Path(given), manifest) == before:
                        return result
            raise FormatError(f"{given} is replaced again and again while it is read: wait for who writes it.")

        return steady

    return decorate


def _identity(directory: Path, manifest: str) -> list[tuple[int, int, int] | None]:
    """Which directory and which manifest stand there now; numbers of files come again, so with their times."""
    found: list[tuple[int, int, int] | None] = []
    for path in (directory, directory / manifest):
        try:
            state = os.stat(path)
            found.append((state.st_dev, state.st_ino, state.st_ctime_ns))
        except (OSError, ValueError):  # not there, or no path at all: the reader says so
            found.append(None)
    return found


def check_files(directory: Path, files: dict[str, Any], *, hashes: bool) -> None:
    """Compare the files of a directory with the sizes (and hashes) its manifest recorded."""
    for name, record in files.items():
        if "/" in name or name in ("", ".", ".."):
            raise FormatError(f"{directory}: the manifest names the file {short(name)}, which undertow never writes.")
        path = directory / name
        check_fields(directory, record, {"bytes": int, "sha256": str}, f"the record of {short(name)}")
        check_plain(path)
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise FormatError(f"{path} is missing: the directory is not whole; write it again.") from None
        if size != record["bytes"]:
            raise FormatError(
                f"{path} has {size} bytes, the manifest says {short(record['bytes'])}: the file was cut or changed; "
                "write the directory again."
            )
        if hashes and sha256_file(path) != record["sha256"]:
            raise FormatError(
                f"{path} does not match the hash in its manifest: the file was changed or damaged; "
                "write the directory again."
            )


def describe_files(directory: Path, names: list[str]) -> dict[str, Any]:
    """The sizes and hashes to put into a manifest."""
    return {
        name: {"bytes": (directory / name).stat().st_size, "sha256": sha256_file(directory / name)} for name in names
    }
