"""Checks of CRFsuite's model file before CRFsuite reads it, as its reader follows every offset without a check.

All numbers are little-endian and 4 bytes wide except the weights. After the header there are five chunks, each with a
name and its size:

    FEAT   number of features, and for each its kind (0: attribute → label, 1: label → label), source, label, weight
    CQDB   labels by name and by number; and a second one with the attributes. 256 hash tables of (hash, record) with
           at least one empty place each, which ends a search; a record is a number, a length and a name; then the
           records by number. Offsets are counted from the chunk's beginning
    LFRF   for each label (and two more, for the ends of a sentence) where the list of its features is
    AFRF   the same for each attribute
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from undertow.errors import FormatError
from undertow.kernels.types import I64

HEADER = struct.Struct("<4sI4sI3I5I")  # magic, size, type, version, counts of features, labels, attributes, 5 offsets
FEATURE = np.dtype([("kind", "<u4"), ("source", "<u4"), ("label", "<u4"), ("weight", "<f8")])
N_TABLES = 256
BYTE_ORDER = 0x62445371

Bytes = npt.NDArray[np.uint8]


def check_model_bytes(blob: bytes, n_labels: int) -> None:
    """Raise FormatError unless these bytes are a whole model of n_labels labels whose offsets all lie within it."""
    try:
        _check(np.frombuffer(blob, dtype=np.uint8), n_labels)
    except ValueError as e:
        raise FormatError(f"the CRFsuite model inside is not whole ({e}).") from None


def _check(data: Bytes, n_labels: int) -> None:
    if len(data) < HEADER.size:
        raise ValueError("it is too short")
    magic, size, kind, _, _, found, n_attributes, *offsets = HEADER.unpack_from(data.data)
    if magic != b"lCRF" or kind != b"FOMC" or size != len(data):
        raise ValueError("its header is not one of a CRFsuite model of this size")
    if found != n_labels:
        raise ValueError(f"it has {found} labels and the tagger {n_labels}")
    features, labels, attributes, label_lists, attribute_lists = (
        (at, _chunk(data, name, at))
        for name, at in zip((b"FEAT", b"CQDB", b"CQDB", b"LFRF", b"AFRF"), offsets, strict=True)
    )
    n_features = _check_features(features[1], n_labels, n_attributes)
    _check_names(labels[1], n_labels)
    _check_names(attributes[1], n_attributes)
    _check_lists(*label_lists, n_labels, n_features)
    _check_lists(*attribute_lists, n_attributes, n_features)


def _chunk(data: Bytes, name: bytes, at: int) -> Bytes:
    found, size = struct.unpack_from("<4sI", data.data, at) if at + 8 <= len(data) else (b"", 0)
    if found != name or at < HEADER.size or at + size > len(data):
        raise ValueError(f"the chunk {name.decode()} is not where it should be")
    return data[at : at + size]


def _numbers(data: Bytes, at: I64) -> I64:
    """The numbers at these places, wherever they lie; none may reach beyond the end."""
    if len(at) and not 0 <= at.min() <= at.max() <= len(data) - 4:
        raise ValueError("an offset leads out of its chunk")
    return sum((data[at + k].astype(np.int64) << (8 * k) for k in range(4)), np.zeros(len(at), dtype=np.int64))


def _row(data: Bytes, at: int, n: int) -> I64:
    """n numbers side by side."""
    if not 0 <= at <= at + 4 * n <= len(data):
        raise ValueError("a table leads out of its chunk")
    return np.frombuffer(data, dtype="<u4", count=n, offset=at).astype(np.int64) if n else np.zeros(0, dtype=np.int64)


def _check_features(chunk: Bytes, n_labels: int, n_attributes: int) -> int:
    n = int(_row(chunk, 8, 1)[0])
    if len(chunk) != 12 + n * FEATURE.itemsize:
        raise ValueError("its size does not fit its number of features")
    if n:
        table = np.frombuffer(chunk, dtype=FEATURE, offset=12)
        sources = np.where(table["kind"] == 0, n_attributes, n_labels)
        if table["kind"].max() > 1 or (table["source"] >= sources).any() or table["label"].max() >= n_labels:
            raise ValueError("a feature names a label or attribute that is not there")
        if not np.isfinite(table["weight"]).all():
            raise ValueError("a weight is not finite")
    return n


def _check_names(chunk: Bytes, n: int) -> None:
    order, n_records, records_at = _row(chunk, 12, 3).tolist()
    if order != BYTE_ORDER or n_records != n:
        raise ValueError("the table of names has the wrong byte order or number of names")
    tables = _row(chunk, 24, 2 * N_TABLES).reshape(N_TABLES, 2)
    records = [_row(chunk, records_at, n)]
    for at, n_places in tables[tables[:, 1] > 0].tolist():
        places = _row(chunk, at, 2 * n_places)[1::2]
        if places.all():
            raise ValueError("a table of names is full, and no search in it would end")
        records.append(places[places > 0])
    every = np.concatenate(records)
    numbers, lengths = _numbers(chunk, every), _numbers(chunk, every + 4)
    ends = every + 8 + lengths
    if len(every) and (numbers.max() >= n or lengths.min() < 1 or ends.max() > len(chunk) or chunk[ends - 1].any()):
        raise ValueError("a name does not end where it should")


def _check_lists(begin: int, chunk: Bytes, n: int, n_features: int) -> None:
    n_lists = int(_row(chunk, 8, 1)[0])
    if n_lists < n:
        raise ValueError("lists of features are missing")
    starts = _row(chunk, 12, n_lists)[:n] - begin  # counted from the beginning of the file
    lengths = _numbers(chunk, starts)
    if len(starts) and ((starts + 4 + 4 * lengths).max() > len(chunk) or 4 * (n + lengths.sum()) > len(chunk)):
        raise ValueError("a list of features leads out of its chunk")
    shift = np.repeat(starts + 4 - 4 * (np.cumsum(lengths) - lengths), lengths)
    listed = _numbers(chunk, shift + 4 * np.arange(int(lengths.sum())))
    if len(listed) and listed.max() >= n_features:
        raise ValueError("a list names a feature that is not there")
