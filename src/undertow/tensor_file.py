"""The tensors of a model: a safetensors file whose header is checked by us before anything maps it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from undertow.errors import FormatError, short
from undertow.files import parse_json
from undertow.models.base import TensorSpec

# NumPy's and safetensors' names for the only types undertow saves
DTYPES = {
    "bool": "BOOL", "uint8": "U8", "uint32": "U32", "uint64": "U64", "int8": "I8", "int32": "I32",
    "int64": "I64", "float32": "F32", "float64": "F64",
}  # fmt: skip
MAX_HEADER_BYTES = 1 << 20
FINITE_CHUNK = 1 << 20

Tensors = dict[str, npt.NDArray[Any]]


def read_tensors(path: Path, spec: Mapping[str, TensorSpec]) -> Tensors:
    _check_header(path, spec)
    try:
        tensors: Tensors = safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, ValueError) as e:
        raise _damaged(path, why(e)) from None
    for name, tensor in tensors.items():
        if not all_finite(tensor):
            raise _damaged(path, f"the tensor {name} has values that are not finite")
    return tensors


def _check_header(path: Path, spec: Mapping[str, TensorSpec]) -> None:
    """Compare a safetensors file with the expected tensors by its header alone, before anything maps it.

    The layout: eight bytes with the header's length, little-endian; the header, JSON; the tensors' bytes.
    """
    size = path.stat().st_size
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        if size < 8 or not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise _damaged(path, f"its header cannot have {length} bytes")
        raw = f.read(length)
    try:
        header = parse_json(raw)
    except ValueError as e:
        raise _damaged(path, f"its header is not JSON, {why(e)}") from None
    if not isinstance(header, dict) or set(header) != set(spec):
        raise _damaged(path, f"it must hold the tensors {', '.join(sorted(spec))} and no others")
    end = 0
    for piece in sorted(_slice(path, name, header[name], spec[name]) for name in spec):
        if piece.begin != end:
            raise _damaged(path, f"the tensor {piece.name} does not begin where the one before ends")
        end = piece.end
    if end != size - 8 - length:
        raise _damaged(path, "its length is not that of its tensors")


class _Slice(NamedTuple):
    begin: int
    end: int
    name: str


def _slice(path: Path, name: str, entry: Any, spec: TensorSpec) -> _Slice:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _damaged(path, f"the tensor {name} is not described as safetensors does")
    if entry["dtype"] != DTYPES[spec.dtype]:
        raise _damaged(path, f"the tensor {name} is not {spec.dtype} but {short(entry['dtype'])}")
    if not _is_int_list(entry["shape"]) or tuple(entry["shape"]) != spec.shape:
        raise _damaged(path, f"the shape of the tensor {name} is not {spec.shape} but {short(entry['shape'])}")
    offsets = entry["data_offsets"]
    n_bytes = math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
    if not _is_int_list(offsets) or len(offsets) != 2 or offsets[1] - offsets[0] != n_bytes:
        raise _damaged(path, f"the tensor {name} does not have the {n_bytes} bytes of its shape")
    return _Slice(offsets[0], offsets[1], name)


def _is_int_list(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int for n in value)  # for True == 1 and 2.0 == 2


def all_finite(tensor: npt.NDArray[Any]) -> bool:
    if tensor.dtype.kind != "f":
        return True
    flat = tensor.reshape(-1)  # in pieces, or the answers would take up to a quarter of the tensor's memory
    return all(np.isfinite(flat[i : i + FINITE_CHUNK]).all() for i in range(0, flat.size, FINITE_CHUNK))


def _damaged(path: Path, reason: str) -> FormatError:
    return FormatError(f"{path} is damaged ({reason}): save the model again.")


def why(error: Exception) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split())
