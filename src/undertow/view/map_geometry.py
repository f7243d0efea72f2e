"""A moving map in the coordinates it is drawn in: its own principal axes, of which a picture shows the first two."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.models.dynamic_map import MapData

Floats = NDArray[np.float64]

# a Gaussian lies within this many standard deviations with 90 % probability, in one and in two dimensions
RADIUS_90 = {1: 1.6448536269514722, 2: 2.145966026289347}


class Plane(NamedTuple):
    """What is drawn: one rotation of all frames alike, so that distances and movements stay what they are."""

    positions: Floats  # (T, n, d), the axes with the widest spread first
    covariances: Floats  # (T, n, k, k), k = min(d, 2): of the axes that are shown
    rest: Floats  # (T, n) mean variance along each of the axes that are not shown; 0 without such axes
    shown: float  # share of the spread that the shown axes hold, 1 for d <= 2


def check_map(data: MapData) -> None:
    """Refuse what cannot be drawn, in a sentence."""
    times, n = len(data.times), len(data.names)
    shape = data.positions.shape
    d = shape[-1] if len(shape) == 3 else 0
    if not times or not n or not d:
        raise InputError("The map is empty: it needs at least one time, one entity and one dimension.")
    expected = {"positions": (times, n, d), "covariances": (times, n, d, d), "weights": (times, n)}
    for name, should in expected.items():
        array = getattr(data, name)
        if array.shape != should:
            raise InputError(f"The map's {name} have the shape {array.shape}: {should} is needed.")
        if not np.isfinite(array).all():
            raise InputError(f"The map's {name} are not all finite: fit the model again.")
    if len(data.kinds) != n or not set(data.kinds) <= set(data.kind_names):
        raise InputError("The map's kinds do not fit its entities: give each one of kind_names.")
    if (data.weights < 0).any():
        raise InputError("A weight of the map is negative: weights are shares of counts.")
    for pair in data.pairs:
        if not (0 <= pair.i < n and 0 <= pair.j < n):
            raise InputError(f"The map's pair ({pair.i}, {pair.j}) names an entity that is not there.")
        if any(np.shape(x) != (times,) or not np.isfinite(x).all() for x in pair[2:]):
            raise InputError(f"The map's pair ({pair.i}, {pair.j}) needs {times} finite numbers of each sort.")


def plane(data: MapData) -> Plane:
    """Centre and turn the map onto its principal axes; entities count where they were seen."""
    d = data.positions.shape[-1]
    k = min(d, 2)
    # an entity weighs the same whether rare or frequent: a map should not be turned by its few largest dots
    seen = (data.weights > 0).astype(float)
    if not seen.any():
        seen = np.ones_like(seen)
    centre = np.einsum("tn,tnd->d", seen, data.positions) / seen.sum()
    centred = data.positions - centre
    axes = np.eye(d)
    spread = np.ones(d)
    if d > 1:
        spread, axes = np.linalg.eigh(np.einsum("tn,tni,tnj->ij", seen, centred, centred))
        spread, axes = spread[::-1].clip(0), axes[:, ::-1]
        # eigenvectors have no sign of their own: make each axis point where its largest entry is positive
        axes = axes * np.where(axes[np.abs(axes).argmax(0), np.arange(d)] < 0, -1.0, 1.0)
    cov = np.asarray(data.covariances, dtype=np.float64)
    turned = np.einsum("ia,tnij,jb->tnab", axes[:, :k], cov, axes[:, :k], optimize=True)
    # the trace does not depend on the axes
    left = np.trace(cov, axis1=2, axis2=3) - np.trace(turned, axis1=2, axis2=3)
    rest = (left / (d - k)).clip(0) if d > k else np.zeros(data.weights.shape)
    total = float(spread.sum())
    shown = float(spread[:k].sum() / total) if total > 0 else 1.0
    return Plane(centred @ axes, turned, rest, shown)


def typical_distance(data: MapData) -> Floats:
    """(T,) root mean square distance of an entity of the first kind and one of the second, each by its weight.

    All distances of a time may grow or shrink together at nearly no cost to the fit: a pair is near or far beside this.
    """
    first = np.array([kind == data.kind_names[0] for kind in data.kinds])
    if first.all() or not first.any():
        first = np.ones(len(first), dtype=bool)
        second = first
    else:
        second = ~first
    square = np.zeros(len(data.times))
    means = []
    for side in (first, second):
        weight = data.weights[:, side]
        weight = np.where(weight.sum(1, keepdims=True) > 0, weight, 1.0)
        weight = weight / weight.sum(1, keepdims=True)
        mean = np.einsum("tn,tnd->td", weight, data.positions[:, side])
        square += np.einsum("tn,tnd->t", weight, (data.positions[:, side] - mean[:, None]) ** 2)
        means.append(mean)
    typical: Floats = np.sqrt(square + ((means[0] - means[1]) ** 2).sum(1))
    return typical


def thousands(n: int) -> str:
    return f"{n:,}".replace(",", "\N{NO-BREAK SPACE}") if n >= 10_000 else str(n)


def census(data: MapData) -> str:
    """How many of what, such as "90 countries and 300 words"."""
    counts = [(kind, data.kinds.count(kind)) for kind in data.kind_names]
    return " and ".join(f"{thousands(count)} {kind}" for kind, count in counts if count)
