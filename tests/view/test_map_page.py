"""The page as text: compact, closed to the network, and no name of it is ever markup."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from html_page import HOSTILE, Page, check_closed, payload
from map_samples import sample_map
from undertow.errors import InputError
from undertow.view.map_geometry import plane
from undertow.view.map_page import map_page, save_html


def unpack(packed: dict[str, Any], shape: tuple[int, ...]) -> np.ndarray:
    raw = base64.b64decode(packed["data"])
    if "low" not in packed:
        return (np.frombuffer(raw, "<i2") * packed["step"]).reshape(shape)
    codes = np.frombuffer(raw, "<u2").astype(float)
    return np.where(codes > 0, np.exp(packed["low"] + packed["step"] * (codes - 1)), 0).reshape(shape)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_what_is_packed_comes_back(d: int) -> None:
    data = sample_map(d=d)
    got, shown = payload(map_page(data)), plane(data)
    n_times, n = len(data.times), len(data.names)
    assert (got["names"], got["times"], got["kindNames"]) == (data.names, data.times, data.kind_names)
    assert [data.kind_names[kind] for kind in got["kinds"]] == data.kinds
    atol = np.abs(shown.positions).max() / 60_000
    assert_allclose(unpack(got["positions"], (n_times, n, d)), shown.positions, rtol=0, atol=atol)
    weights = unpack(got["weights"], (n_times, n))
    assert_allclose(weights, data.weights, rtol=1e-3)
    assert ((weights == 0) == (data.weights == 0)).all()
    sd = unpack(got["sd"], (n_times, n, d))
    assert_allclose(sd**2, shown.variances, rtol=1e-3)
    if d > 1:
        rho = unpack(got["correlation"], (n_times, n))
        assert_allclose(rho * sd[..., 0] * sd[..., 1], shown.covariances[..., 0, 1], rtol=1e-2, atol=1e-5)
    (pair,) = data.pairs
    assert (got["pairs"][0]["i"], got["pairs"][0]["j"]) == (pair.i, pair.j)
    for name in ("mean", "low", "high", "probability"):
        assert_allclose(got["pairs"][0][name], getattr(pair, name), rtol=1e-3)


def test_zero_uncertainty_and_equal_weights_are_packed_too() -> None:
    data = sample_map()
    data = data._replace(covariances=np.zeros_like(data.covariances), weights=np.full_like(data.weights, 0.25))
    got = payload(map_page(data))
    assert (unpack(got["sd"], (6, 20, 2)) == 0).all()
    assert_allclose(unpack(got["weights"], (6, 20)), 0.25, rtol=1e-9)


def test_two_thousand_entities_at_forty_times_fit_into_five_megabytes() -> None:
    data = sample_map(n_times=40, n_rows=500, n_columns=1500)
    data = data._replace(names=[f"somebody of a rather long name, number {i}" for i in range(2000)])
    assert len(map_page(data).encode()) <= 5_000_000


def test_nothing_but_the_page_itself_may_run_or_load() -> None:
    text = map_page(sample_map())
    check_closed(text)
    assert "href" not in {name for name, _ in Page(text).attributes}


def test_names_are_data_and_never_markup() -> None:
    data = sample_map()
    names = [HOSTILE, "\ud800 alone", *data.names[2:]]
    data = data._replace(
        names=names, times=[HOSTILE, *data.times[1:]], kind_names=[HOSTILE, "words"],
        kinds=[HOSTILE if k == "authors" else k for k in data.kinds],
    )  # fmt: skip
    text = map_page(data, title=HOSTILE)
    page = Page(text)
    assert page.tags == Page(map_page(sample_map())).tags
    assert payload(text)["names"][0] == HOSTILE
    assert payload(text)["names"][1] == "? alone"
    assert not set("<>&\u2028\u2029") & set(text.split('type="application/json">')[1].split("</script>")[0])
    assert HOSTILE not in text and "\u2028" not in text.split('id="data"')[1].split("</script>")[0]
    assert "".join(page.inside("title")).strip() == HOSTILE


def test_the_same_map_gives_the_same_bytes(tmp_path: Path) -> None:
    save_html(sample_map(), tmp_path / "a.html", title="T")
    save_html(sample_map(), tmp_path / "b.html", title="T")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert (tmp_path / "a.html").read_bytes().endswith(b"</html>\n")
    with pytest.raises(InputError, match="exists already"):
        save_html(sample_map(), tmp_path / "a.html")
    save_html(sample_map(), tmp_path / "a.html", title="Other", overwrite=True)
    assert b"<title>Other</title>" in (tmp_path / "a.html").read_bytes()


def test_the_page_says_what_it_shows() -> None:
    text = map_page(sample_map(d=2))
    assert "8 authors and 12 words" in text and "from 1990 to 1995" in text
    assert "ellipses show how uncertain a position is" in text
    assert "Directions have no meaning" in text
    assert "time runs from left to right" in map_page(sample_map(d=1))
    assert "3 dimensions" in map_page(sample_map(d=3))
    assert " in 1990" in map_page(sample_map(n_times=1))
    with pytest.raises(InputError, match="title"):
        map_page(sample_map(), title=" ")


def test_the_help_says_whether_ellipses_can_be_trusted() -> None:
    data = sample_map()
    trusted, not_so = map_page(data), map_page(data._replace(calibrated=False))
    assert "held about 90 %" in trusted and "overconfident" not in trusted and "forms a ring" not in trusted
    assert "overconfident" in not_so and "forms a ring" in not_so
