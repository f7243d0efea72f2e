"""The drawing coordinates of a dynamic embedding: its principal axes, of which a picture shows the first two."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.types import F64
from undertow.models.dynamic.map_data import MapData


class Plane(NamedTuple):
    """The map in drawing coordinates: one rotation of all frames, so that distances and movements do not change."""

    positions: F64  # (T, n, d), the axes with the widest spread first
    covariances: F64  # (T, n, k, k), k = min(d, 2): of the axes that are shown
    variances: F64  # (T, n, d) along every axis
    shown: float  # share of the spread that the shown axes hold, 1 for d <= 2


def check_map(data: MapData) -> None:
    """Raise InputError for a map that cannot be drawn."""
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
    """Center the map and rotate it to its principal axes; entities count at the times they were observed."""
    d = data.positions.shape[-1]
    k = min(d, 2)
    # an entity has the same weight whether rare or frequent: a few large dots should not decide the rotation
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
        # the sign of an eigenvector is arbitrary: make its largest entry positive
        axes = axes * np.where(axes[np.abs(axes).argmax(0), np.arange(d)] < 0, -1.0, 1.0)
    cov = np.asarray(data.covariances, dtype=np.float64)
    turned = np.einsum("ia,tnij,jb->tnab", axes[:, :k], cov, axes[:, :k], optimize=True)
    variances = np.einsum("ia,tnij,ja->tna", axes, cov, axes, optimize=True).clip(0)
    total = float(spread.sum())
    shown = float(spread[:k].sum() / total) if total > 0 else 1.0
    return Plane(centred @ axes, turned, variances, shown)


class Balance(NamedTuple):
    """Linear maps that give both kinds the same spread about one middle, from the coordinates of a `Plane`."""

    maps: F64  # (2, d, 2): of the first kind and of the second
    centres: F64  # (T, 2, d): mean place of each kind at each time, by weight


def balance(data: MapData, shown: Plane) -> Balance | None:
    """A biplot of the map: (x − x̄) B of the first kind beside (y − ȳ) B⁻¹ of the second, on two axes.

    The counts determine log-odds ratios, 2 (x_i − x_k)·(y_j − y_l) in this model, and these stay as they are. Distances
    do not, nor need they: with the sums of a time as frequencies, Σ_j p_j exp(−|x_i − y_j|²) must be about the same for
    all i, which forces one kind onto a ring around the other. B is chosen such that both kinds have the same second
    moments: B² is the geometric mean of G⁻¹ and H, those of the two kinds.

    None where there is nothing to balance: in one dimension, or where a kind does not spread along all axes.
    """
    x, d = shown.positions, shown.positions.shape[-1]
    if d < 2 or len(data.kind_names) != 2:
        return None
    members = [np.array([kind == name for kind in data.kinds]) for name in data.kind_names]
    if not all(m.any() for m in members):
        return None
    weights = np.where(data.weights > 0, data.weights, 1e-9)  # where nothing was seen, all alike
    centres = np.stack([np.average(x[:, m], axis=1, weights=_each(weights[:, m], d)) for m in members], axis=1)
    moments = []
    for k, m in enumerate(members):
        centred = (x[:, m] - centres[:, k, None])[data.weights[:, m] > 0]
        moments.append(centred.T @ centred / max(len(centred), 1))
    G, H = moments
    if any(np.linalg.eigvalsh(S)[0] <= 1e-9 * max(np.trace(S), 1e-300) for S in moments):
        return None
    root = _power(G, 0.5)
    B = _power(_power(G, -0.5) @ _power(root @ H @ root, 0.5) @ _power(G, -0.5), 0.5)
    axes = np.linalg.eigh(B @ G @ B)[1][:, ::-1][:, :2]
    axes = axes * np.where(axes[np.abs(axes).argmax(0), [0, 1]] < 0, -1.0, 1.0)
    return Balance(np.stack([B @ axes, np.linalg.inv(B) @ axes]), centres)


def _each(weights: F64, d: int) -> F64:
    return np.repeat(weights[..., None], d, axis=-1)


def _power(S: F64, exponent: float) -> F64:
    """A power of a symmetric positive matrix."""
    values, vectors = np.linalg.eigh((S + S.T) / 2)
    out: F64 = (vectors * values.clip(0) ** exponent) @ vectors.T
    return out


def chance_offsets(data: MapData) -> F64:
    """(T, n) o: an entity i of the first kind and j of the second meet just as often as by chance where d² = o_i + o_j.

    Without offsets of its own a map has the sums for frequencies, p(i, j) = p_i p_j exp(−d²) / Z, and half of −log Z is
    the o of each. All distances of a time may grow together at nearly no cost to the fit: a pair is near or far only
    relative to chance.
    """
    if data.offsets is not None:
        return data.offsets
    first = np.array([kind == data.kind_names[0] for kind in data.kinds])
    second = ~first
    if first.all() or second.all():
        first = second = np.ones(len(first), dtype=bool)
    log_Z = [
        _log_mean_affinity(x[first], w[first], x[second], w[second])
        for x, w in zip(data.positions, data.weights, strict=True)
    ]
    return np.repeat(np.maximum(-np.array(log_Z), 0.0)[:, None] / 2, len(first), axis=1)


def _log_mean_affinity(x: F64, w_x: F64, y: F64, w_y: F64) -> float:
    """log Σ p_i p_j exp(−|x_i − y_j|²) with weights made to sum to 1; all alike where nothing was seen."""
    p = w_x / w_x.sum() if w_x.sum() > 0 else np.full(len(w_x), 1 / len(w_x))
    q = w_y / w_y.sum() if w_y.sum() > 0 else np.full(len(w_y), 1 / len(w_y))
    x, p, y, q = x[p > 0], p[p > 0], y[q > 0], q[q > 0]
    total = -np.inf
    for start in range(0, len(x), 256):  # a few rows at a time: the whole may be large
        part = slice(start, start + 256)
        square = ((x[part, None] - y[None]) ** 2).sum(-1)
        shift = float(square.min())  # far apart, exp would underflow
        total = float(np.logaddexp(total, np.log(p[part] @ (np.exp(shift - square) @ q)) - shift))
    return total


def thousands(n: int) -> str:
    return f"{n:,}".replace(",", "\N{NO-BREAK SPACE}") if n >= 10_000 else str(n)


def census(data: MapData) -> str:
    """The number of entities of each kind, such as "90 countries and 300 words"."""
    counts = [(kind, data.kinds.count(kind)) for kind in data.kind_names]
    return " and ".join(f"{thousands(count)} {kind}" for kind, count in counts if count)


def time_places(times: list[str]) -> F64:
    """The position of each time between 0 and 1: proportional if all times are increasing numbers.

    Else evenly spaced.
    """
    try:
        places = np.array([float(t) for t in times])
        if not np.isfinite(places).all() or (np.diff(places) <= 0).any():
            raise ValueError
    except ValueError:
        places = np.arange(float(len(times)))
    span = places[-1] - places[0]
    out: F64 = (places - places[0]) / (span if span > 0 else 1.0)
    return out


def picture_positions(data: MapData, shown: Plane) -> F64:
    """(T, n, 2) where everything is drawn; with one dimension, time runs from left to right."""
    if shown.positions.shape[-1] > 1:
        return shown.positions[..., :2]
    height = float(np.ptp(shown.positions)) or 1.0
    x = (time_places(data.times) - 0.5) * 1.6 * height
    y = shown.positions[..., 0]
    return np.stack([np.broadcast_to(x[:, None], y.shape), y], axis=-1)


def extent(positions: F64, weights: F64, wide: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Limits of x and y that contain nearly all observed positions, `wide` times as wide as high."""
    seen = weights > 0
    xy = positions[seen] if seen.any() else positions.reshape(-1, 2)
    low, high = np.quantile(xy, [0.004, 0.996], axis=0)
    middle = (low + high) / 2
    size = (high - low).max() or 1.0
    half = np.maximum(high - low, 0.02 * size) / 2 * 1.16
    half_height = float(max(half[1], half[0] / wide))
    half_width = half_height * wide
    return (
        (float(middle[0] - half_width), float(middle[0] + half_width)),
        (float(middle[1] - half_height), float(middle[1] + half_height)),
    )


def label_order(data: MapData, kind: NDArray[np.integer], frame: int) -> NDArray[np.int64]:
    """Entities by rank of weight within their kind, so that no kind crowds out the other; the absent last."""
    weights = data.weights[frame]
    score = np.where(weights > 0, weights + data.weights.mean(0), data.weights.mean(0) * 1e-6)
    rank = np.empty(len(score))
    for k in range(len(data.kind_names)):
        members = np.flatnonzero(kind == k)
        rank[members[np.argsort(-score[members], kind="stable")]] = np.arange(len(members)) + k / 10
    rank[weights <= 0] += len(score)
    return np.argsort(rank, kind="stable")
