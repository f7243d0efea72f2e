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

from undertow.errors import BusyError, FormatError, InputError

MAX_JSON_BYTES = 64 << 20


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
        if "/" in name or name in (".", "..") or not isinstance(record, dict):
            raise FormatError(f"{directory}: the manifest names the file {name!r}, which undertow never writes.")
        path = directory / name
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise FormatError(f"{path} is missing: the directory is not whole; write it again.") from None
        if size != record.get("bytes"):
            raise FormatError(
                f"{path} has {size} bytes, the manifest says {record.get('bytes')}: the file was cut or changed; "
                "write the directory again."
            )
        if hashes and sha256_file(path) != record.get("sha256"):
            raise FormatError(
                f"{path} does not match the hash in its manifest: the file was changed or damaged; "
                "write the directory again."
            )


def describe_files(directory: Path, names: list[str]) -> dict[str, Any]:
    """The sizes and hashes to put into a manifest."""
    return {
        name: {"bytes": (directory / name).stat().st_size, "sha256": sha256_file(directory / name)} for name in names
    }
