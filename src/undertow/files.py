"""Directories that are whole or not there: strict JSON, hashes, locks and atomic replacement.

Corpora, counts and models all live in directories with a JSON file that names and hashes the others. What
they share is here; what they mean is in `text.corpus`, `text.lag_counts` and `storage`.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undertow.errors import BusyError, FormatError, InputError, short

MAX_JSON_BYTES = 64 << 20
DIGEST = "digest"


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


@contextlib.contextmanager
def finished_file(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """A path beside `target` to write a file to; when the block ends well it takes the target's name."""
    check_file_target(target, overwrite=overwrite)
    with temporary_sibling(target) as room:
        yield room / target.name
        _fsync(room / target.name)
        os.replace(room / target.name, target)
        _fsync(target.parent)


def check_file_target(target: Path, *, overwrite: bool) -> None:
    """Refuse a name that no file can be moved to, before the work."""
    if target.is_dir():
        raise InputError(f"{target} is a directory: give the name of a file.")
    if (target.exists() or target.is_symlink()) and not overwrite:
        raise exists_error(target)


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


def install_directory(ready: Path, target: Path, *, overwrite: bool) -> None:
    """Move a finished directory to its name, in one step where the system can exchange two names."""
    fsync_tree(ready)
    if not (target.exists() or target.is_symlink()):
        os.rename(ready, target)
        _fsync(target.parent)
        return
    if not overwrite:
        raise exists_error(target)
    old = ready
    if not _exchange(ready, target):
        # two steps: a kill between them leaves the old directory whole beside its name
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old-", dir=target.parent))
        try:
            os.rename(target, old / target.name)
            os.rename(ready, target)
        except OSError:
            if (old / target.name).exists():
                os.rename(old / target.name, target)
            old.rmdir()
            raise
    _fsync(target.parent)
    shutil.rmtree(old)


def _exchange(a: Path, b: Path) -> bool:
    """Let two names change places atomically (Linux); False where that is not to be had."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0)


def exists_error(target: Path) -> InputError:
    return InputError(f"{target} exists already: give another name, or allow it to be overwritten.")


@contextlib.contextmanager
def temporary_sibling(target: Path) -> Iterator[Path]:
    """A fresh directory beside `target`, removed unless the block moved it away."""
    target.parent.mkdir(parents=True, exist_ok=True)
    tmp = Path(tempfile.mkdtemp(prefix=f".{target.name}.tmp-", dir=target.parent))
    os.chmod(tmp, 0o777 & ~_umask())
    try:
        yield tmp
    finally:
        shutil.rmtree(tmp, ignore_errors=True)


def _umask() -> int:
    # reading the umask means setting it; restored at once
    value = os.umask(0)
    os.umask(value)
    return value


@contextlib.contextmanager
def exclusive(directory: Path, what: str) -> Iterator[None]:
    """Hold a directory for one writer. The lock dies with the process, so a kill leaves nothing to clean up."""
    import fcntl

    directory.mkdir(parents=True, exist_ok=True)
    fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BusyError(
                f"{directory} is in use: another process is {what} there; wait for it or choose another name."
            ) from None
        try:
            yield
        finally:
            # nothing worth keeping: leave no empty directory behind; still under the lock
            with contextlib.suppress(OSError):
                if os.listdir(directory) == ["lock"]:
                    os.unlink(directory / "lock")
                    os.rmdir(directory)
    finally:
        os.close(fd)


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
