"""The map page in a real Chromium: it moves, answers to mouse, finger and keys, and keeps hostile names text."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chi2

from browser import Browser
from map_samples import sample_map
from undertow.models.dynamic.map_data import MapData
from undertow.models.dynamic.queries import nearness
from undertow.view.map_geometry import balance, plane
from undertow.view.map_page import save_html


@pytest.fixture
def show(browser: Browser, pages: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Opens a map, waits for its first picture; at the end of the test nothing may have gone wrong in the page."""

    def open_map(
        data: MapData, *, width: int = 1200, height: int = 800, scale: float = 1, dark: bool = False
    ) -> Browser:
        page = pages / f"{len(list(pages.iterdir()))}.html"
        save_html(data, page)
        browser.resize(width, height, scale)
        # without motion, flights of the camera and fading labels end at once: nothing to wait for
        browser.prefer(prefers_color_scheme="dark" if dark else "light", prefers_reduced_motion="reduce")
        browser.open(page)
        browser.wait("window.undertow !== undefined && undertow.pictures > 0")
        return browser

    yield open_map
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("file:") or not url.endswith(".html")] == []


def settle(browser: Browser) -> None:
    """Wait until what was asked for has been drawn: the picture after the next one is newer than any change."""
    browser.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")


def slide(browser: Browser, time: float) -> None:
    move = f"(s => {{ s.value = {time}; s.dispatchEvent(new Event('input')) }})"
    browser.evaluate(f"{move}(document.getElementById('slider'))")
    settle(browser)


def dots(browser: Browser, n: int) -> np.ndarray:
    """Places on the screen (n, 2), in pixels from the map's corner."""
    found = browser.evaluate(f"[...Array({n}).keys()].map(i => {{ const p = undertow.dot(i); return [p.x, p.y] }})")
    return np.array(found)


def click_dot(browser: Browser, i: int, *, shift: bool = False) -> None:
    x, y = dots(browser, i + 1)[i]
    left, top = browser.evaluate("(b => [b.left, b.top])(document.getElementById('map').getBoundingClientRect())")
    browser.click(left + x, top + y, shift=shift)
    settle(browser)


def search(browser: Browser, text: str) -> None:
    browser.evaluate("document.getElementById('search').focus()")
    browser.type(text)


def text_of(browser: Browser, selector: str) -> str:
    value: str = browser.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")
    return value


def apart(data: MapData) -> MapData:
    """The sample with entities on a grid, far from each other, so that every click is meant for one."""
    n = len(data.names)
    grid = np.array([(i % 5, i // 5) for i in range(n)], dtype=float)
    moving = grid + 0.05 * np.arange(len(data.times))[:, None, None] * np.array([1.0, 0.5])
    return data._replace(positions=moving, covariances=data.covariances * 0.1)


def test_the_slider_moves_the_dots_to_where_the_data_have_them(show: Any) -> None:
    data = sample_map()
    browser = show(data)
    n = len(data.names)
    for time in (0, 3, 2.5, 5):
        slide(browser, time)
        f, share = int(time), time - int(time)
        where = data.positions[f] if not share else (1 - share) * data.positions[f] + share * data.positions[f + 1]
        on_screen = dots(browser, n) / browser.evaluate("undertow.camera.scale")
        expected = np.linalg.norm(where[:, None] - where[None], axis=-1)
        got = np.linalg.norm(on_screen[:, None] - on_screen[None], axis=-1)
        assert_allclose(got, expected, rtol=1e-3, atol=1e-3)
        assert text_of(browser, "#now") == data.times[round(time)] or share == 0.5
    slide(browser, 2.4)
    browser.evaluate("document.getElementById('slider').dispatchEvent(new Event('change'))")
    assert browser.evaluate("undertow.state.time") == 2  # let go, it rests on a time of the data
    assert browser.evaluate("document.getElementById('slider').getAttribute('aria-valuetext')") == "1992"


def test_dots_are_painted_in_the_colour_of_their_kind(show: Any) -> None:
    data = apart(sample_map())
    browser = show(data)
    first, second = browser.evaluate(
        "(i => { const c = document.getElementById('map'), w = c.width; "
        "const all = c.getContext('2d').getImageData(0, 0, w, c.height); "
        "return i.map(undertow.dot).map(p => 4 * (w * Math.round(p.y) + Math.round(p.x))).map(p => "
        f"[...all.data.slice(p, p + 4)]) }})([0, {len(data.names) - 2}])"
    )
    assert first[3] > 100 and first[2] > first[0]  # blue
    assert second[3] > 100 and second[0] > second[2]  # rust


def test_play_goes_on_to_the_end_and_stops(show: Any) -> None:
    browser = show(sample_map(n_times=60))  # a minute: no machine is so slow that it has ended when it is looked at
    browser.evaluate("document.getElementById('play').click()")
    browser.wait("undertow.state.time > 0.2")
    assert browser.evaluate("document.getElementById('play').getAttribute('aria-label')") == "Pause"
    browser.evaluate("document.getElementById('play').click()")
    assert not browser.evaluate("undertow.state.playing")
    browser.evaluate("(s => { s.value = '4'; s.dispatchEvent(new Event('change')) })(document.getElementById('speed'))")
    slide(browser, 58)
    browser.evaluate("document.getElementById('play').click()")
    browser.wait("!undertow.state.playing && undertow.state.time === 59")
    again = "undertow.state.playing && undertow.state.time === 0"  # from the end it begins again
    assert browser.evaluate(f"document.getElementById('play').click(), {again}")


def test_search_finds_centres_and_pins(show: Any) -> None:
    data = sample_map()
    data = data._replace(names=["Zoë Müller-Ålund", *data.names[1:]])
    browser = show(data)
    search(browser, "muller")
    assert (
        "Zoë" in text_of(browser, "#found") and browser.evaluate("document.querySelectorAll('#found li').length") == 1
    )
    browser.press("Enter")
    settle(browser)
    assert browser.evaluate("undertow.state.pinned") == [0] and browser.evaluate("undertow.state.marked") == 0
    width, height = browser.evaluate("[undertow.camera.width, undertow.camera.height]")
    assert_allclose(dots(browser, 1)[0], [width / 2, height / 2], rtol=0, atol=0.5)
    assert "Zoë Müller-Ålund" in text_of(browser, "#pinned")
    assert "Zoë Müller-Ålund" in [label["name"] for label in browser.evaluate("undertow.labels()")]
    search(browser, "word 1")  # exact first, then longer ones; arrow keys choose
    browser.press("ArrowDown")
    chosen = text_of(browser, "#found [aria-selected=true] .name")
    browser.press("Enter")
    assert browser.evaluate("undertow.names[undertow.state.marked]") == chosen != "word 1"
    search(browser, "nobody")
    assert text_of(browser, "#found") == "No such name"
    browser.press("Enter")
    browser.press("Escape")
    assert browser.evaluate("document.getElementById('search').value") == ""


def test_pairs_show_their_distance_over_time(show: Any) -> None:
    data = apart(sample_map())
    browser = show(data)
    click_dot(browser, 2)
    assert browser.evaluate("undertow.state.pinned") == [2]
    assert "Nearest to author 2 in 1990" in text_of(browser, "#near-title")
    click_dot(browser, 9, shift=True)
    assert browser.evaluate("undertow.state.pairs.map(p => [p.i, p.j])") == [[2, 9]]
    assert browser.evaluate("document.querySelectorAll('.card svg .band').length") == 1
    assert "not in this file" in text_of(browser, ".card")
    label = browser.evaluate("document.querySelector('.card svg').getAttribute('aria-label')")
    assert label.startswith("Distance of author 2 and word 1 with 90 % band: 2.24 (2.")
    before = browser.evaluate("document.querySelector('.cursor').getAttribute('x1')")
    slide(browser, 4)
    assert browser.evaluate("document.querySelector('.cursor').getAttribute('x1')") != before
    assert text_of(browser, ".card p").startswith("1994: distance")
    browser.evaluate("document.querySelector('#suggested button').click()")  # with the model's own band, and counts
    series = browser.evaluate("undertow.state.pairs[0].series")
    assert_allclose(series["low"], data.pairs[0].low, rtol=1e-3)
    assert_allclose(series["probability"], data.pairs[0].probability, rtol=1e-3)
    assert browser.evaluate("document.querySelectorAll('.card:first-child .bar').length") == 6
    browser.evaluate("document.querySelector('.card button').click()")
    assert browser.evaluate("undertow.state.pairs.length") == 1
    browser.evaluate("document.getElementById('clear').click()")
    assert browser.evaluate("[undertow.state.pairs, undertow.state.pinned]") == [[], []]


@pytest.mark.parametrize("d", [1, 2, 3])
def test_how_often_beside_chance(show: Any, d: int) -> None:
    data = sample_map(d=d)
    browser = show(data)
    x, w = data.positions[0], data.weights[0]
    square = ((x[:8, None] - x[None, 8:]) ** 2).sum(-1)
    lift = np.exp(-square) / (w[:8] @ np.exp(-square) @ w[8:])
    got = browser.evaluate("[...Array(8).keys()].map(i => [...Array(12).keys()].map(j => undertow.lift(0, i, 8 + j)))")
    assert_allclose(got, lift, rtol=0.01, atol=1e-6)
    for i, j, met in ((0, 1, False), (0, 9, True)):  # two of a kind are never counted together
        browser.evaluate("document.getElementById('clear').click()")
        search(browser, data.names[i])
        browser.press("Enter")
        browser.evaluate("document.querySelector('#pinned button[aria-label^=Distance]').click()")
        search(browser, data.names[j])
        browser.press("Enter")
        assert ("× chance" in text_of(browser, ".card p")) == met
        assert (browser.evaluate("document.querySelectorAll('.card .chance').length") == 1) == met


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_nearest_are_those_of_the_model(show: Any, d: int) -> None:
    """The page ranks as `DynamicEmbedding.nearest` does, by `nearness` among those seen at the time."""
    data = sample_map(d=d)
    browser = show(data)
    kinds = np.array([data.kind_names.index(k) for k in data.kinds])
    for f, i in ((0, 0), (1, 3), (1, 9), (3, 12)):
        near = nearness(data.positions[f], np.trace(data.covariances[f], axis1=1, axis2=2), i)
        for kind in (0, 1):
            order = [j for j in np.argsort(near) if j != i and kinds[j] == kind and data.weights[f, j] > 0]
            assert browser.evaluate(f"undertow.nearest({f}, {i}, {kind}, 5)") == order[:5]


def test_no_solid_trail_where_an_entity_was_not_seen(show: Any) -> None:
    data = sample_map()
    browser = show(data)
    lines = """(i => {
      const context = document.getElementById('map').getContext('2d'), found = [];
      let dash = [];
      const setDash = context.setLineDash.bind(context), line = context.lineTo.bind(context);
      context.setLineDash = d => { dash = d; setDash(d); };
      context.lineTo = (x, y) => { found.push(dash.length); line(x, y); };
      undertow.draw();
      delete context.setLineDash; delete context.lineTo;
      return found;
    })()"""
    click_dot(browser, 1)  # author 1 is absent at the second time
    slide(browser, 4)
    browser.evaluate("document.getElementById('map')")
    dashes = browser.evaluate(lines)
    assert dashes.count(2) >= 2 and dashes.count(0) >= 2


def test_pairing_without_a_keyboard(show: Any) -> None:
    browser = show(apart(sample_map()))
    click_dot(browser, 3)
    browser.evaluate(
        "[...document.querySelectorAll('#pinned button')].find(b => b.textContent.startsWith('dist')).click()"
    )
    assert browser.evaluate("undertow.state.pairing")
    click_dot(browser, 12)
    assert browser.evaluate("undertow.state.pairs.map(p => [p.i, p.j])") == [[3, 12]]
    assert not browser.evaluate("undertow.state.pairing")
    click_dot(browser, 12)  # a second click lets go
    assert 12 not in browser.evaluate("undertow.state.pinned")


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_bands_hold_nine_tenths_of_drawn_distances(show: Any, d: int) -> None:
    data = sample_map(d=d, seed=3)
    shown = plane(data)
    # what the page knows: the variance along every axis, and the covariance of the two that are shown
    known = shown.variances[..., None] * np.eye(d)
    known[..., :2, :2] = shown.covariances
    browser = show(data)
    rng = np.random.default_rng(0)
    for f, i, j in [(0, 0, 9), (3, 4, 5), (5, 12, 19), (2, 1, 2), (4, 3, 14)]:
        got = browser.evaluate(f"undertow.distance({f}, {i}, {j})")
        ends = [rng.multivariate_normal(shown.positions[f, k], known[f, k], size=40_000) for k in (i, j)]
        distances = np.linalg.norm(ends[0] - ends[1], axis=1)
        assert_allclose(got["mean"], distances.mean(), rtol=0.02)
        below, above = (distances < got["low"]).mean(), (distances > got["high"]).mean()
        assert 0.025 < below < 0.075 and 0.025 < above < 0.075, (below, above)


def test_ellipses_are_those_of_the_covariances(show: Any) -> None:
    data = sample_map()
    browser = show(data)
    covariances = plane(data).covariances
    for f, i in [(0, 0), (4, 11)]:
        got = browser.evaluate(f"undertow.ellipse({f}, {i})")
        values, vectors = np.linalg.eigh(covariances[f, i])
        assert_allclose([got["b"], got["a"]], np.sqrt(chi2.ppf(0.9, df=2) * values), rtol=1e-2)
        along = abs(np.array([np.cos(got["angle"]), np.sin(got["angle"])]) @ vectors[:, 1])
        assert_allclose(along, 1, rtol=1e-3)


def test_keys(show: Any) -> None:
    browser = show(sample_map(n_times=60))
    state = "undertow.state."
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    assert browser.evaluate(state + "time") == 2
    browser.press("ArrowLeft")
    assert browser.evaluate(state + "time") == 1
    browser.press("End")
    assert browser.evaluate(state + "time") == 59
    browser.press("Home")
    assert browser.evaluate(state + "time") == 0
    browser.press(" ")
    assert browser.evaluate(state + "playing")
    browser.press(" ")
    assert not browser.evaluate(state + "playing")
    scale = browser.evaluate("undertow.camera.scale")
    browser.press("+")
    assert_allclose(browser.evaluate("undertow.camera.scale"), 1.3 * scale, rtol=1e-6)
    browser.press("-")
    assert_allclose(browser.evaluate("undertow.camera.scale"), scale, rtol=1e-6)
    x = browser.evaluate("undertow.camera.x")
    browser.press("ArrowLeft", shift=True)
    assert browser.evaluate("undertow.camera.x") < x
    browser.press("0")
    assert_allclose(browser.evaluate("undertow.camera.x"), x, rtol=1e-6, atol=1e-9)
    for key, name in (("e", "ellipses"), ("t", "trails")):
        browser.press(key)
        assert browser.evaluate(state + name) == "all" == browser.evaluate(f"document.getElementById('{name}').value")
    browser.press("?")
    assert browser.evaluate("document.getElementById('help').open")
    browser.press("Escape")
    browser.wait("!document.getElementById('help').open")
    browser.press("/")
    assert browser.evaluate("document.activeElement.id") == "search"
    browser.type("author 3")
    browser.press(" ")  # a blank in the search is a blank
    assert not browser.evaluate(state + "playing")
    browser.press("Enter")
    assert browser.evaluate(state + "pinned") == [3]
    browser.press("Escape")  # out of the search, then let go
    browser.press("Escape")
    assert browser.evaluate(state + "pinned") == []


def test_wheel_drag_and_pinch(show: Any) -> None:
    browser = show(apart(sample_map()))
    left, top = browser.evaluate("(b => [b.left, b.top])(document.getElementById('map').getBoundingClientRect())")
    before = dots(browser, 20)
    browser.call(
        "Input.dispatchMouseEvent",
        type="mouseWheel",
        x=left + before[7, 0],
        y=top + before[7, 1],
        deltaX=0,
        deltaY=-200,
    )
    browser.wait(f"Math.abs(undertow.dot(0).x - {before[0, 0]}) > 5")
    assert_allclose(dots(browser, 20)[7], before[7], rtol=0, atol=0.6)  # the place under the pointer stays
    before = dots(browser, 20)
    browser.move(left + 300, top + 300)
    browser.call(
        "Input.dispatchMouseEvent", type="mousePressed", x=left + 300, y=top + 300, button="left", clickCount=1
    )
    for step in (10, 25, 40):
        browser.move(left + 300 + step, top + 300 + step / 2, pressed=True)
    browser.call(
        "Input.dispatchMouseEvent", type="mouseReleased", x=left + 340, y=top + 320, button="left", clickCount=1
    )
    settle(browser)
    assert_allclose(dots(browser, 20) - before, [[40, 20]] * 20, rtol=0, atol=0.6)
    assert browser.evaluate("undertow.state.pinned") == []  # a drag is no click
    scale = browser.evaluate("undertow.camera.scale")
    for kind, gap in (("touchStart", 50), ("touchMove", 80), ("touchMove", 100)):
        points = [{"x": left + 400 - gap, "y": top + 300, "id": 1}, {"x": left + 400 + gap, "y": top + 300, "id": 2}]
        browser.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    browser.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    settle(browser)
    assert_allclose(browser.evaluate("undertow.camera.scale"), 2 * scale, rtol=0.02)


def test_kinds_can_be_hidden(show: Any) -> None:
    browser = show(apart(sample_map()))
    kinds = "new Set(undertow.labels().map(l => l.name.split(' ')[0]))"
    assert set(browser.evaluate(f"[...{kinds}]")) == {"author", "word"}
    browser.evaluate("document.querySelector('#legend button').click()")
    settle(browser)
    assert browser.evaluate(f"[...{kinds}]") == ["word"]
    assert browser.evaluate("document.querySelector('#legend button').getAttribute('aria-pressed')") == "false"
    click_dot(browser, 2)  # what is hidden is not clicked
    assert browser.evaluate("undertow.state.pinned") == []


def test_dark_and_light(show: Any) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    browser = show(sample_map())
    light = browser.evaluate(background)
    browser.evaluate("document.getElementById('theme').click()")
    dark = browser.evaluate(background)
    assert light == "rgb(251, 250, 247)" and dark == "rgb(18, 24, 30)"
    assert browser.evaluate("document.getElementById('theme').textContent") == "Light"
    show(sample_map(), dark=True)  # and as the system says
    assert browser.evaluate(background) == dark
    browser.prefer(prefers_color_scheme="light", prefers_reduced_motion="reduce")
    browser.wait(f"{background} === '{light}'")


def contrast(first: list[float], second: list[float]) -> float:
    """The contrast of two colours as WCAG 2 defines it."""

    def luminance(colour: list[float]) -> float:
        parts = [c / 255 for c in colour[:3]]
        r, g, b = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    a, b = sorted((luminance(first), luminance(second)))
    return (b + 0.05) / (a + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground(show: Any, dark: bool) -> None:
    browser = show(sample_map(), dark=dark)
    get = (
        "(name => { const c = document.createElement('canvas').getContext('2d'); c.fillStyle = "
        "getComputedStyle(document.documentElement).getPropertyValue(name); c.fillRect(0, 0, 1, 1); "
        "return [...c.getImageData(0, 0, 1, 1).data] })"
    )
    for text, ground in itertools.product(["--ink", "--faint", "--deep", "--mark", "--kind0", "--kind1"], ["--paper"]):
        assert contrast(browser.evaluate(f"{get}('{text}')"), browser.evaluate(f"{get}('{ground}')")) >= 4.5, text
    for text in ("--ink", "--faint", "--deep"):
        assert contrast(browser.evaluate(f"{get}('{text}')"), browser.evaluate(f"{get}('--panel')")) >= 4.5, text


def test_every_control_has_a_name(show: Any) -> None:
    browser = show(sample_map())
    browser.evaluate("document.querySelector('#suggested button').click()")
    nameless = browser.evaluate(
        "[...document.querySelectorAll('button, input, select, canvas')].filter(e => !(e.getAttribute('aria-label') || "
        "e.textContent.trim() || (e.labels && e.labels.length))).map(e => e.outerHTML)"
    )
    assert nameless == []


HOSTILE = [
    "<img src=x onerror='window.owned=1'>",
    "</script><script>window.owned=1</script>",
    "\"quotes\" 'and' `ticks` ${window.owned=1} \\u003c",
    "👩‍👩‍👧‍👦 family 🏳️‍🌈",
    "שלום עולם \u202e backwards",
    "long " * 60,
    "line\nbreak\u2028and\u2029more\ttabs\x00\x01",
    "__proto__",
    "constructor",
    "&lt;b&gt; &amp; @@data@@ $& $1",
    "",
    "   ",
]


def test_hostile_names_stay_text(show: Any) -> None:
    data = apart(sample_map(n_rows=len(HOSTILE), n_columns=8))
    data = data._replace(
        names=[*HOSTILE, *data.names[len(HOSTILE) :]], times=[HOSTILE[0], HOSTILE[1], *HOSTILE[3:6], "1999"],
        kind_names=[HOSTILE[1], HOSTILE[0]],
        kinds=[HOSTILE[1] if k == "authors" else HOSTILE[0] for k in data.kinds],
    )  # fmt: skip
    browser = show(data)
    assert browser.evaluate("undertow.names") == data.names
    for i, name in enumerate(HOSTILE):
        browser.press("0")
        settle(browser)
        if name.strip():
            search(browser, name.split("\n")[0][:30])
            browser.press("Enter")
            assert browser.evaluate("undertow.state.marked") == i
        else:
            click_dot(browser, i)
        browser.evaluate("document.activeElement.blur()")
        assert browser.evaluate("undertow.state.pinned").pop() == i
        assert name in browser.evaluate("[...document.querySelectorAll('#pinned .name')].map(e => e.textContent)")
    browser.evaluate("document.querySelector('#suggested button').click()")
    slide(browser, 1)
    assert browser.evaluate("window.owned") is None
    assert browser.evaluate("document.querySelectorAll('img, b').length") == browser.evaluate(
        "document.querySelectorAll('dialog b').length"
    )
    assert browser.evaluate("document.scripts.length") == 2
    fits = "[document.documentElement, document.querySelector('aside')].every(e => e.scrollWidth <= e.clientWidth)"
    assert browser.evaluate(fits)  # the long name breaks no layout


def test_the_policy_is_in_force(browser: Browser, show: Any) -> None:
    show(sample_map())
    fetched = "fetch('data:text/plain,x').then(() => 'fetched', () => 'refused')"
    assert browser.evaluate(fetched) == "refused"
    browser.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'window.owned = 1'}))"
    )
    assert browser.evaluate("window.owned") is None
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())
    browser.events.clear()  # these refusals were asked for


def no_overlap(boxes: list[dict[str, float]]) -> bool:
    return not any(
        a["x0"] < b["x1"] and b["x0"] < a["x1"] and a["y0"] < b["y1"] and b["y0"] < a["y1"]
        for a, b in itertools.combinations(boxes, 2)
    )


def test_two_thousand_entities(show: Any) -> None:
    browser = show(sample_map(n_times=40, n_rows=500, n_columns=1500))
    labels = browser.evaluate("undertow.labels()")
    assert len(labels) >= 20 and no_overlap(labels)
    before = browser.evaluate("undertow.pictures")
    slide(browser, 20.5)
    assert browser.evaluate("undertow.pictures") > before
    assert no_overlap(browser.evaluate("undertow.labels()"))
    painted = (
        "new Uint32Array(document.getElementById('map').getContext('2d').getImageData(0, 0, 800, 500).data.buffer)"
    )
    assert browser.evaluate(f"{painted}.filter(p => p !== 0).length") > 2000


@pytest.mark.parametrize("scale", [1, 2])
def test_a_narrow_window(show: Any, scale: float) -> None:
    browser = show(sample_map(), width=400, height=800, scale=scale)
    assert browser.evaluate("document.documentElement.scrollWidth <= 400")
    width, height, css = browser.evaluate("(c => [c.width, c.height, c.clientWidth])(document.getElementById('map'))")
    assert width == scale * css and css > 380 and height > 300 * scale
    browser.resize(1200, 800, scale)
    browser.wait("document.getElementById('map').clientWidth > 700 && undertow.camera.width > 700")


@pytest.mark.parametrize(
    "data",
    [
        sample_map(d=1),
        sample_map(d=3),
        sample_map(n_times=1),
        sample_map(n_rows=1, n_columns=0),
        sample_map(n_times=1, n_rows=1, n_columns=1, d=1),
        sample_map()._replace(weights=np.zeros((6, 20))),
        sample_map()._replace(positions=np.zeros((6, 20, 2)), covariances=np.zeros((6, 20, 2, 2), dtype=np.float32)),
        sample_map()._replace(positions=sample_map().positions * 1e6),
    ],
    ids=["line", "space", "one time", "one entity", "two points", "nothing seen", "all at one place", "large"],
)
def test_unusual_maps_are_drawn_too(show: Any, data: MapData) -> None:
    browser = show(data)
    n = len(data.names)
    assert np.isfinite(dots(browser, n)).all()
    if n > 1:
        browser.evaluate("document.querySelector('#suggested button').click()")
    slide(browser, len(data.times) - 1)
    for key in "et":
        browser.press(key)
    settle(browser)
    places = dots(browser, n)
    assert np.isfinite(places).all()
    assert "NaN" not in browser.evaluate("document.body.outerHTML.split('id=\"data\"')[0]")
    if data.positions.shape[-1] == 1 and len(data.times) > 1:  # time runs to the right
        slide(browser, 0)
        assert (dots(browser, n)[:, 0] < places[:, 0]).all()


def lay_out(browser: Browser, layout: str) -> None:
    choose = f"(s => {{ s.value = '{layout}'; s.dispatchEvent(new Event('change')) }})"
    browser.evaluate(f"{choose}(document.getElementById('layout'))")
    settle(browser)


def test_balanced_and_still_layouts(show: Any) -> None:
    data = sample_map()
    shown, n, n_rows = plane(data), len(data.names), data.kinds.count("authors")
    browser = show(data)
    slide(browser, 3)
    lay_out(browser, "balanced")
    found = balance(data, shown)
    assert found is not None
    kind = np.array([data.kind_names.index(k) for k in data.kinds])
    expected = np.stack([(shown.positions[3, i] - found.centres[3, kind[i]]) @ found.maps[kind[i]] for i in range(n)])
    scale = browser.evaluate("undertow.camera.scale")
    placed = dots(browser, n) * [1, -1] / scale
    assert_allclose(placed - placed[0], expected - expected[0], rtol=1e-3, atol=2e-3)
    assert "Read directions" in text_of(browser, "#layout-note")
    ellipse = browser.evaluate("undertow.ellipse(3, 0)")
    values = np.linalg.eigvalsh(found.maps[0].T @ shown.covariances[3, 0] @ found.maps[0])
    assert_allclose([ellipse["b"], ellipse["a"]], np.sqrt(chi2.ppf(0.9, df=2) * values), rtol=1e-2)
    distance = np.linalg.norm(data.positions[3, 0] - data.positions[3, 9])
    lay_out(browser, "still")
    before = dots(browser, n)
    slide(browser, 5)
    after = dots(browser, n)
    assert_allclose(after[n_rows:], before[n_rows:], rtol=0, atol=0.1)  # words stay
    assert np.abs(after[:n_rows] - before[:n_rows]).max() > 5  # authors move
    assert browser.evaluate("undertow.distance(3, 0, 9).low") < 1.2 * distance  # numbers are the model's in any layout
    browser.press("l")
    assert browser.evaluate("undertow.state.layout") == "distances"


def test_the_ribbon_ranks_the_nearest_at_each_time(show: Any) -> None:
    data = apart(sample_map())
    browser = show(data)
    assert browser.evaluate("document.getElementById('ribbon-box').hidden")
    click_dot(browser, 1)
    label = browser.evaluate("document.querySelector('#ribbon svg').getAttribute('aria-label')")
    assert "1991: not seen" in label  # author 1 is absent at the second time
    nearest = browser.evaluate("undertow.nearest(2, 1, 1, 6).map(j => undertow.names[j])")
    assert f"1992: {', '.join(nearest)}" in label and len(nearest) == 6
    before = browser.evaluate("document.querySelector('#ribbon .cursor').getAttribute('x1')")
    slide(browser, 4)
    assert browser.evaluate("document.querySelector('#ribbon .cursor').getAttribute('x1')") != before
    name = text_of(browser, "#ribbon .ribbon title")
    browser.evaluate("document.querySelector('#ribbon .ribbon').dispatchEvent(new MouseEvent('click'))")
    assert browser.evaluate("undertow.state.pairs.map(p => undertow.names[p.j])") == [name]


@pytest.mark.parametrize("key", ["Enter", " "])
def test_the_ribbon_by_keyboard(show: Any, key: str) -> None:
    browser = show(apart(sample_map()))
    click_dot(browser, 1)
    browser.evaluate("document.querySelector('#ribbon .ribbon').focus({focusVisible: true})")
    style = "getComputedStyle(document.activeElement.querySelector('text'))"
    assert browser.evaluate(f"{style}.textDecorationLine + {style}.fontWeight") == "underline700"
    browser.press(key)
    assert browser.evaluate("undertow.state.pairs.map(p => undertow.names[p.j])") == [
        text_of(browser, "#ribbon .ribbon title")
    ]
    assert not browser.evaluate("undertow.state.playing"), "space is the key of the ribbon here"


def test_names_and_their_uncertainty_are_seen_before_anything_is_pinned(show: Any) -> None:
    # opaque pixels in the box of the first name, and all painted ones; a page is read once, else Chromium complains
    ink = (
        "(() => { const c = document.getElementById('map'), ctx = c.getContext('2d'); "
        "const all = ctx.getImageData(0, 0, c.width, c.height); "
        "const box = undertow.labels()[0]; let name = 0, whole = 0; "
        "for (let y = 0; y < c.height; y++) for (let x = 0; x < c.width; x++) { "
        "const a = all.data[4 * (y * c.width + x) + 3]; whole += a > 20; "
        "name += a > 200 && x > box.x0 && x < box.x1 && y > box.y0 && y < box.y1 } return [name, whole] })()"
    )
    browser = show(apart(sample_map()))
    settle(browser)
    name, with_ellipses = browser.evaluate(ink)
    assert name > 20  # also where motion is not wanted
    browser = show(apart(sample_map()))
    browser.evaluate(
        "(s => { s.value = 'off'; s.dispatchEvent(new Event('change')) })(document.getElementById('ellipses'))"
    )
    settle(browser)
    assert browser.evaluate(ink)[1] < with_ellipses - 100
