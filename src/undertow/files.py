"""Strict JSON manifests that name and hash the files of a directory, and checks of both.

Corpora, counts and models all live in directories with a JSON file that names and hashes the other files. What these
files mean is in `text.corpus`, `text.counts_directory` and `storage`; how a directory takes its name is in `atomic`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ParamSpec, TypeVar

from undertow.errors import FormatError, short

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_JSON_BYTES = 64 << 20
DIGEST = "digest"
MAX_READS = 10  # attempts to read a directory that is replaced meanwhile

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
    """Hash of the content of a JSON object, independent of its layout, without the digest itself."""
    content = {key: item for key, item in value.items() if key != DIGEST}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write the JSON file that describes a directory, with a digest of its content.

    The content includes the hashes of the other files, so the digest covers them too.
    """
    write_json(path, {**value, DIGEST: _digest(value)})


def check_seal(path: Path, value: dict[str, Any]) -> None:
    """Raise FormatError if a file was not written by `write_sealed` or was changed since."""
    if DIGEST not in value:
        raise FormatError(
            f"{path} has no digest: it was written by an older undertow, or by another program; write it again."
        )
    if value[DIGEST] != _digest(value):
        raise FormatError(f"{path} does not match its own digest: it was changed or damaged; write it again.")


Fields = dict[str, type | tuple[type, ...]]


def check_fields(path: Path, value: Any, fields: Fields, what: str = "") -> None:
    """Raise FormatError if a JSON object has missing or unknown keys, wrong types, or negative numbers."""
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
            raise FormatError(f"{place}has {key}={short(found)}, which is not valid: write the directory again.")


def check_plain(path: Path) -> None:
    """Raise FormatError for pipes and devices, which may block, and for links that lead out of the directory.

    A directory from somebody else must not make us read other files of this machine. Missing files are reported when
    they are read.
    """
    if path.is_symlink() and path.parent.resolve() not in path.resolve().parents:
        raise FormatError(
            f"{path} is a link out of its directory: put the file itself there "
            "(snapshot_download of the Hugging Face Hub does so with local_dir=)."
        )
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


def reread_if_replaced(manifest: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a reader of directories (its first path argument) to read again if the directory was replaced meanwhile.

    Otherwise it could mix files of two directories.
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
            raise FormatError(
                f"{given} keeps being replaced while it is read: wait until the other program has written it."
            )

        return steady

    return decorate


def _identity(directory: Path, manifest: str) -> list[tuple[int, int, int] | None]:
    """Device, inode and change time of a directory and its manifest, as inode numbers are reused."""
    found: list[tuple[int, int, int] | None] = []
    for path in (directory, directory / manifest):
        try:
            state = os.stat(path)
            found.append((state.st_dev, state.st_ino, state.st_ctime_ns))
        except (OSError, ValueError):  # not there, or no path at all: the reader says so
            found.append(None)
    return found


def check_files(directory: Path, files: dict[str, Any], *, hashes: bool) -> None:
    """Compare the files of a directory with the sizes (and hashes) in its manifest."""
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
    """The sizes and hashes of files for a manifest."""
    return {
        name: {"bytes": (directory / name).stat().st_size, "sha256": sha256_file(directory / name)} for name in names
    }
