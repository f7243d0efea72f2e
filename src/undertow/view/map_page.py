"""An offline HTML page of a dynamic embedding: a time slider, dots, trails, ellipses, and distances of pairs.

Its body is `page/map.html`; `document.py` adds the style, the scripts and the data.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.models.dynamic.map_data import MapData
from undertow.view.document import base64_codes, clean, digits, document, fill, save_page, text
from undertow.view.map_geometry import Plane, balance, census, chance_offsets, check_map, plane

# one scope, in this order
SCRIPTS = (
    *("dom.js", "data.js", "camera.js", "state.js", "labels.js", "draw.js", "charts.js", "panel.js"),
    *("ribbon.js", "combobox.js", "search.js", "controls.js", "pointer.js", "start.js"),
)

# what the help says of ellipses, where frequencies were fitted and where they are sums
CALIBRATED = (
    "On maps simulated from the model, bands of 90 % held about 90 % of the true values. Much of an ellipse is "
    "common to all dots, as the scale of the map is uncertain: how often two occur together, “2× chance”, is known "
    "better than their distance."
)
OVERCONFIDENT = (
    "This map is overconfident, because it takes the sums of a time as frequencies: compare ellipses with one another, "
    "and do not take the 90 % literally."
)
RING = (
    "There one kind often forms a ring around the other, because the model takes the sums of a time as frequencies: "
    "how often each occurs is given, so that none can be closer to all others than the rest."
)


def save_html(
    map_data: MapData, path: str | os.PathLike[str], *, title: str | None = None, overwrite: bool = False
) -> None:
    """Write the HTML page of a map.

    Parameters
    ----------
    data
        The map, from `DynamicEmbedding.map_data`.
    path
        The file to write; it appears complete or not at all.
    title
        The title; by default it describes the content.
    overwrite
        Replace an existing file.

    Raises
    ------
    InputError
        If the map cannot be drawn, or the file exists or cannot be written.
    """
    save_page(map_page(map_data, title=title), path, overwrite=overwrite)


def map_page(map_data: MapData, *, title: str | None = None) -> str:
    """The HTML page of a map as a string; it works offline."""
    check_map(map_data)
    heading = f"A moving map of {census(map_data)}" if title is None else title
    shown = plane(map_data)
    parts = {
        "title": text(heading),
        "lead": text(_lead(map_data)),
        "axes": text(_axes_note(map_data, shown)),
        "band": text(_band_note(map_data)),
        "ellipses": text(CALIBRATED if map_data.calibrated else OVERCONFIDENT),
        "ring": "" if map_data.calibrated else text(RING),
        "circle": " and the dotted circle around the dot pinned last" if shown.positions.shape[-1] == 2 else "",
    }
    body = fill("map.html", parts)
    return document(heading, body, styles=["map.css"], scripts=SCRIPTS, data=_payload(map_data, shown))


def _payload(data: MapData, shown: Plane) -> dict[str, Any]:
    """Everything the page draws; arrays as base64 of little-endian 16-bit numbers, frame by frame."""
    sd = np.sqrt(shown.variances)  # (T, n, d)
    payload = {
        "times": [clean(t) for t in data.times],
        "names": [clean(name) for name in data.names],
        "kinds": [data.kind_names.index(kind) for kind in data.kinds],
        "kindNames": [clean(name) for name in data.kind_names],
        "d": shown.positions.shape[-1],
        "positions": _linear(shown.positions),
        "sd": _logarithmic(sd),
        "weights": _logarithmic(data.weights),
        "offsets": _linear(chance_offsets(data)),
        "pairs": [
            {
                "i": int(p.i),
                "j": int(p.j),
                **{name: digits(getattr(p, name)) for name in ("mean", "low", "high", "probability")},
            }
            for p in data.pairs
        ],
    }
    if sd.shape[-1] > 1:
        product = sd[..., 0] * sd[..., 1]
        with np.errstate(invalid="ignore", divide="ignore"):
            correlation = np.where(product > 0, shown.covariances[..., 0, 1] / product, 0.0)
        payload["correlation"] = _linear(correlation.clip(-1, 1), 1.0)
    balanced = balance(data, shown)
    if balanced is not None:
        payload["balanced"] = {"maps": balanced.maps.tolist(), "centres": balanced.centres.round(6).tolist()}
    return payload


def _linear(values: NDArray[np.float64], largest: float | None = None) -> dict[str, Any]:
    """value = step · code, code an int16."""
    top = float(np.abs(values).max(initial=0.0)) if largest is None else largest
    step = (top or 1.0) / 32767
    return {"step": step, "data": base64_codes(np.rint(values / step).astype("<i2"))}


def _logarithmic(values: NDArray[np.float64]) -> dict[str, Any]:
    """value = exp(low + step · (code − 1)), code an uint16; code 0 is the value 0."""
    positive = values > 0
    logs = np.log(values, where=positive, out=np.zeros(values.shape))
    low, high = (float(logs[positive].min()), float(logs[positive].max())) if positive.any() else (0.0, 0.0)
    step = (high - low) / 65534 or 1.0
    codes = np.where(positive, 1 + np.rint((logs - low) / step), 0)
    return {"low": low, "step": step, "data": base64_codes(codes.astype("<u2"))}


def _lead(data: MapData) -> str:
    first, second = (*data.kind_names, data.kind_names[-1])[:2]
    d = data.positions.shape[-1]
    axes = " Time runs from left to right." if d == 1 else f" Drawn are two of {d} dimensions." if d > 2 else ""
    span = f", from {data.times[0]} to {data.times[-1]}" if len(data.times) > 1 else f" in {data.times[0]}"
    return clean(
        f"{census(data)} on one map{span}. The closer {first} and {second} are, the more often they occur together, "
        "compared with what their frequencies alone predict. Only distances count, not directions; "
        "ellipses show how uncertain a position is." + axes
    )


def _axes_note(data: MapData, shown: Plane) -> str:
    d = shown.positions.shape[-1]
    if d == 1:
        return (
            "This model has one dimension: it is drawn from bottom to top, and time runs from left to right. "
            "Vertical distances are the model’s."
        )
    if d == 2:
        return "Directions have no meaning, only distances; all times are rotated in the same way."
    return (
        f"This model has {d} dimensions. Drawn are the two principal axes of all positions, which hold "
        f"{shown.shown:.0%} of their spread, and the uncertainty along them: dots that look close may be apart "
        "along the others. Distances and nearest neighbors in the list use all dimensions."
    )


def _band_note(data: MapData) -> str:
    d = data.positions.shape[-1]
    if d == 1:
        return ""
    note = "its square is matched to a gamma distribution of the same mean and variance"
    if d > 2:
        note += ", in which the errors along axes that are not drawn count as independent"
    return f" ({note})"
