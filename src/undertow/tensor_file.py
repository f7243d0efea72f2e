"""Safetensors files, whose header is checked here before anything maps them.

The layout: eight bytes with the header's length, little-endian; the header, JSON; the tensors' bytes.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from undertow.errors import FormatError, short
from undertow.files import parse_json

# NumPy's and safetensors' names for the only types undertow saves
DTYPES = {
    "bool": "BOOL", "uint8": "U8", "uint32": "U32", "uint64": "U64", "int8": "I8", "int32": "I32",
    "int64": "I64", "float32": "F32", "float64": "F64",
}  # fmt: skip
NUMPY_NAMES = {name: numpy_name for numpy_name, name in DTYPES.items()}
MAX_HEADER_BYTES = 1 << 20
FINITE_CHUNK = 1 << 20

Tensors = dict[str, npt.NDArray[Any]]


class TensorSlice(NamedTuple):
    """Where a tensor lies in a file, by the checked header; `begin` and `end` count from the start of the file."""

    begin: int
    end: int
    dtype: str  # NumPy's name
    shape: tuple[int, ...]


def read_tensors(path: Path, spec: Mapping[str, tuple[str, tuple[int, ...]]]) -> Tensors:
    """The tensors of a model file, if they are finite and of exactly the types and shapes of `spec`."""
    cure = "save the model again"
    header = read_header(path, cure)
    if set(header) != set(spec):
        raise damaged(path, f"it must hold the tensors {', '.join(sorted(spec))} and no others", cure)
    for name, found in header.items():
        dtype, shape = spec[name]
        if found.dtype != dtype:
            raise damaged(path, f"the tensor {name} is not {dtype} but {found.dtype}", cure)
        if found.shape != shape:
            raise damaged(path, f"the shape of the tensor {name} is not {shape} but {short(list(found.shape))}", cure)
    try:
        tensors: Tensors = safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, ValueError) as e:
        raise damaged(path, why(e), cure) from None
    for name, tensor in tensors.items():
        if not all_finite(tensor):
            raise damaged(path, f"the tensor {name} has values that are not finite", cure)
    return tensors


def write_tensors(path: Path, tensors: Tensors) -> None:
    """Write a safetensors file; a failure to write is an OSError, as of any other file."""
    with open(path, "wb") as f:
        mode = os.fstat(f.fileno()).st_mode
    try:
        safetensors.numpy.save_file(tensors, path)
    except safetensors.SafetensorError as e:
        code = re.search(r"os error (\d+)", str(e))
        raise OSError(int(code[1]), os.strerror(int(code[1]))) if code else OSError(errno.EIO, why(e)) from e
    path.chmod(mode)  # of any new file: safetensors puts one there that nobody but the owner may read


def read_header(path: Path, cure: str) -> dict[str, TensorSlice]:
    """The tensors that a file holds, which lie side by side and fill it; `cure` ends the sentence of an error."""
    size = path.stat().st_size
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        if size < 8 or not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise damaged(path, f"its header cannot have {length} bytes", cure)
        raw = f.read(length)
    try:
        header = parse_json(raw)
    except ValueError as e:
        raise damaged(path, f"its header is not JSON, {why(e)}", cure) from None
    if not isinstance(header, dict):
        raise damaged(path, "its header is not an object", cure)
    slices = {name: _slice(path, name, entry, 8 + length, cure) for name, entry in header.items()}
    end = 8 + length
    for name in sorted(slices, key=slices.__getitem__):
        if slices[name].begin != end:
            raise damaged(path, f"the tensor {short(name)} does not begin where the one before ends", cure)
        end = slices[name].end
    if end != size:
        raise damaged(path, "its length is not that of its tensors", cure)
    return slices


def _slice(path: Path, name: str, entry: Any, start: int, cure: str) -> TensorSlice:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise damaged(path, f"the tensor {short(name)} is not described as safetensors does", cure)
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in NUMPY_NAMES:
        raise damaged(path, f"the tensor {short(name)} has the unknown type {short(dtype)}", cure)
    if not _is_size_list(entry["shape"]) or not _is_size_list(entry["data_offsets"]):
        raise damaged(path, f"the shape or the place of the tensor {short(name)} is not a list of sizes", cure)
    shape, offsets = tuple(entry["shape"]), entry["data_offsets"]
    n_bytes = math.prod(shape) * np.dtype(NUMPY_NAMES[dtype]).itemsize
    if len(offsets) != 2 or offsets[1] - offsets[0] != n_bytes:
        raise damaged(path, f"the tensor {short(name)} does not have the {n_bytes} bytes of its shape", cure)
    return TensorSlice(start + offsets[0], start + offsets[1], NUMPY_NAMES[dtype], shape)


def _is_size_list(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)  # for True == 1 and 2.0 == 2


def all_finite(tensor: npt.NDArray[Any]) -> bool:
    """Whether a tensor has no NaN and no infinity."""
    if tensor.dtype.kind != "f":
        return True
    flat = tensor.reshape(-1)  # in pieces, or the answers would take up to a quarter of the tensor's memory
    return all(np.isfinite(flat[i : i + FINITE_CHUNK]).all() for i in range(0, flat.size, FINITE_CHUNK))


def damaged(path: Path, reason: str, cure: str) -> FormatError:
    """The error of a file that is not what undertow writes."""
    return FormatError(f"{path} is damaged ({reason}): {cure}.")


def why(error: Exception) -> str:
    """The reason an error gives, on one line."""
    return " ".join(str(getattr(error, "strerror", None) or error).split())
