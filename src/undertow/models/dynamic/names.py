"""Names of entities: how they are found, and how thousands of them are saved as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError


def pack(names: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All names in UTF-8, one after the other, and where each ends."""
    encoded = [name.encode("utf-8") for name in names]
    ends = np.cumsum([len(e) for e in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8).copy(), ends


def unpack(data: NDArray[np.uint8], ends: NDArray[np.int64]) -> list[str]:
    raw = data.tobytes()
    starts = np.concatenate(([0], ends[:-1]))
    if len(ends) and (ends[-1] != len(raw) or (ends < starts).any()):
        raise ValueError("the names do not end where they should")
    names = [raw[a:b].decode("utf-8") for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    if len(set(names)) < len(names):
        raise ValueError("a name is there twice")
    return names


class Names:
    """The entities of a map: rows first, then columns; a name may be in both kinds."""

    def __init__(self, rows: Sequence[str], columns: Sequence[str], kinds: tuple[str, str]) -> None:
        self.kinds = kinds
        self.all = [*rows, *columns]
        self.n_rows = len(rows)
        self._ids = [{name: k for k, name in enumerate(part)} for part in (rows, columns)]

    def kind(self, i: int) -> str:
        return self.kinds[0 if i < self.n_rows else 1]

    def side(self, kind: Any) -> int:
        """0 for rows, 1 for columns; by "row" and "column", or as the kinds are called here."""
        for side, words in enumerate((("row", self.kinds[0]), ("column", self.kinds[1]))):
            if kind in words:
                return side
        raise InputError(
            f"The kind {kind!r} is unknown: use 'row' or 'column', or {' or '.join(map(repr, self.kinds))}."
        )

    def find(self, name: Any, kind: Any = None) -> int:
        """The number of an entity given by its name, or by (kind, name)."""
        if isinstance(name, tuple) and len(name) == 2:
            kind, name = name
        if not isinstance(name, str):
            raise InputError(f"{name!r} is no name: give text, or a tuple such as ('row', 'name').")
        sides = (0, 1) if kind is None else (self.side(kind),)
        found = [self._ids[s][name] + s * self.n_rows for s in sides if name in self._ids[s]]
        if not found:
            where = "" if kind is None else f" of the kind {self.kinds[sides[0]]!r}"
            raise InputError(f"There is no {name!r}{where} on this map.")
        if len(found) > 1:
            raise InputError(
                f"{name!r} is both a {self.kinds[0]} and a {self.kinds[1]}: say which, as in "
                f"('row', {name!r}) or ('column', {name!r})."
            )
        return found[0]
