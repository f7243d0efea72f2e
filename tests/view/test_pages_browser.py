"""The pages of models and the reader in a real Chromium: search, mouse and keys work, hostile words stay text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from browser import Browser
from html_page import HOSTILE_WORD
from page_samples import KINDS, TEXT, fitted
from undertow.models.hmm.queries import Derived
from undertow.view.document import save_page
from undertow.view.index_page import PageCard, index_page
from undertow.view.pages import page


@pytest.fixture
def show(browser: Browser, pages: Path) -> Iterator[Any]:
    """Opens a page; at the end of the test nothing may have gone wrong in it, and nothing else was asked for."""

    def open_page(html: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> Browser:
        path = pages / f"{len(list(pages.iterdir()))}.html"
        save_page(html, path)
        browser.resize(width, height)
        browser.prefer(prefers_color_scheme="dark" if dark else "light")
        browser.open(path)
        return browser

    yield open_page
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.endswith(".html")] == []


def text_of(browser: Browser, selector: str) -> str:
    value: str = browser.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")
    return value


def texts(browser: Browser, selector: str) -> list[str]:
    found: list[str] = browser.evaluate(
        f"[...document.querySelectorAll({json.dumps(selector)})].map(node => node.textContent)"
    )
    return found


def click(browser: Browser, selector: str) -> None:
    x, y = browser.evaluate(
        f"(node => {{ node.scrollIntoView({{block: 'center'}}); const b = node.getBoundingClientRect(); "
        f"return [b.left + b.width / 2, b.top + b.height / 2] }})(document.querySelector({json.dumps(selector)}))"
    )
    browser.click(x, y)


def search(browser: Browser, word: str) -> None:
    browser.evaluate("document.activeElement.blur()")
    browser.press("/")
    assert browser.evaluate("document.activeElement.id") == "search"
    browser.type(word)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dark", [False, True])
def test_every_page_opens_in_both_themes(show: Any, kind: str, dark: bool) -> None:
    browser = show(page(fitted(kind, hostile=kind != "tagger")), dark=dark)
    red, green, blue = browser.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number)"
    )
    assert (red + green + blue < 150) == dark
    assert browser.evaluate("document.images.length") == 0
    browser.evaluate("document.getElementById('theme').click()")
    now = browser.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number)")
    assert (sum(now) < 150) != dark
    assert text_of(browser, "#theme") == ("Dark" if dark else "Light")


def test_a_narrow_screen_does_not_scroll_sideways(show: Any) -> None:
    for html in (page(fitted("hmm-blocks")), page(fitted("lds")), page(fitted("hmm-blocks"), TEXT)):
        browser = show(html, width=380, height=700)
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("kind", ["hmm-blocks", "fhmm", "clusters"])
def test_the_search_shows_the_states_of_a_word(show: Any, kind: str) -> None:
    browser = show(page(fitted(kind)))
    search(browser, "rive")
    assert texts(browser, "#found li .name:first-child")[0] == "river"
    browser.press("Enter")
    assert "of “river”" in text_of(browser, "#detail h3")
    data = browser.evaluate("undertow.data")
    (found,) = [entry for entry in data["lookup"] if data["strings"][entry[0]] == "river"]
    assert browser.evaluate("undertow.chosen") == found[1][0]
    name = data["states"][found[1][0]]["name"]
    assert texts(browser, "#detail h3")[1].endswith(name)
    search(browser, "zzz")
    assert texts(browser, "#found li") == ["Not among the words of this page"]


def test_shares_too_small_to_read_are_not_spelled_out(show: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = np.array([0.9957, 0.0042, 0.00012, 3.8e-8, 0.0])
    monkeypatch.setattr(Derived, "state_shares", shares)
    browser = show(page(fitted("hmm-dense")))
    assert texts(browser, ".share")[:5] == ["100%", "0.42%", "0.012%", "< 0.01%", "0%"]


def test_states_are_chosen_by_mouse_and_keys(show: Any) -> None:
    model = fitted("hmm-blocks", True)
    browser = show(page(model))
    assert len(texts(browser, "#states button")) == 8
    click(browser, "#states li:nth-child(3) button")
    assert browser.evaluate("undertow.chosen") == 2
    state = browser.evaluate("undertow.data.states[2]")
    z = int(state["name"])
    assert text_of(browser, "#detail h3") == f"State {z}"
    words = [w.word for w in model.top_words(z, 50) if w.probability >= 1e-3][:10]
    assert texts(browser, "#detail .bars .word") == words
    browser.press("ArrowDown")
    browser.press("Enter")
    assert browser.evaluate("undertow.chosen") == 3
    after = browser.evaluate("undertow.data.states[3].after[0][0]")
    click(browser, "#detail .flow ol:last-child button")  # a step to the most probable state after it
    assert browser.evaluate("undertow.chosen") == after
    click(browser, "#steps li button")
    assert browser.evaluate("undertow.chosen") == browser.evaluate("undertow.data.steps[0][1]")
    assert any(HOSTILE_WORD in line for line in texts(browser, "#states button"))


def test_neighbors_in_the_page_are_those_of_the_model(show: Any) -> None:
    model = fitted("lds")
    browser = show(page(model))
    words = browser.evaluate("undertow.words")
    for word in ("river", "dog"):
        got = browser.evaluate(f"undertow.nearest({words.index(word)}, 5)")
        want = model.neighbors(word, 5)
        assert_allclose([c for _, c in got], [x.cosine for x in want], rtol=0, atol=0.02)
    search(browser, "river")
    browser.press("Enter")
    assert text_of(browser, "#neighbors section h3") == "river"
    first = text_of(browser, "#neighbors section li button")
    click(browser, "#neighbors section li button")
    assert text_of(browser, "#neighbors section h3") == first


@pytest.mark.parametrize("kind", ["hmm-blocks", "hmm-dense", "fhmm", "lds"])
def test_clicking_a_token_shows_its_panel(show: Any, kind: str) -> None:
    model = fitted(kind)
    browser = show(page(model, TEXT))
    tokens = [w for s in TEXT for w in s]
    assert texts(browser, ".token") == tokens
    bits = -np.concatenate(model.log_probabilities(TEXT)) / np.log(2)
    for i in (2, 9):
        click(browser, f'.token[data-i="{i}"]')
        assert text_of(browser, "#panel h2") == tokens[i]
        assert_allclose(float(text_of(browser, "#panel .big").split()[0]), bits[i], rtol=0, atol=0.051)
        assert len(texts(browser, '.token[aria-current="true"]')) == 1
    browser.press("ArrowLeft")
    assert text_of(browser, "#panel h2") == tokens[8] and browser.evaluate("document.activeElement.dataset.i") == "8"
    browser.press("End")
    assert text_of(browser, "#panel h2") == tokens[-1]
    browser.press("Home")
    assert text_of(browser, "#panel h2") == tokens[0]
    if kind == "lds":
        near = [x.word for x in model.neighbors(TEXT[0], 8, position=0)]
        assert sorted(texts(browser, "#panel ul:last-of-type .row span:first-child")) == sorted(near)


def test_the_reader_colors_by_surprise_and_by_state(show: Any) -> None:
    model = fitted("hmm-dense", True)
    sentence = ["the", "dog", HOSTILE_WORD, "unheard"]
    browser = show(page(model, [sentence]))
    bits = -model.log_probabilities([sentence])[0] / np.log(2)
    shades = [int(np.searchsorted([2, 4, 6, 9, 12], round(b, 1), side="right")) for b in bits]
    for i, shade in enumerate(shades):
        assert f"shade{shade}" in browser.evaluate(f"document.querySelectorAll('.token')[{i}].className").split()
    assert len(texts(browser, "#legend .swatch")) == 6
    click(browser, '#modes input[value="both"]')
    both = model.surprise([sentence])[0].both_sides
    shades = [int(np.searchsorted([2, 4, 6, 9, 12], round(b, 1), side="right")) for b in both]
    for i, shade in enumerate(shades):
        assert f"shade{shade}" in browser.evaluate(f"document.querySelectorAll('.token')[{i}].className").split()
    browser.evaluate("undertow.choose(1, false)")
    assert f"{both[1]:.1f} bits" in texts(browser, "#panel .big")
    click(browser, '#modes input[value="0"]')
    states = model.decode([sentence], "posterior")[0].tolist()
    classes = [c.split() for c in browser.evaluate("[...document.querySelectorAll('.token')].map(t => t.className)")]
    colors = [next(c for c in found if c.startswith("color")) for found in classes]
    assert [[a == b for b in colors] for a in colors] == [[a == b for b in states] for a in states]
    assert "unknown" in classes[3] and "unknown" not in classes[0]
    browser.evaluate("undertow.choose(0, false)")
    same = browser.evaluate("[...document.querySelectorAll('.token')].map(t => t.classList.contains('same'))")
    assert same == [z == states[0] for z in states]
    assert texts(browser, ".token")[2] == HOSTILE_WORD and browser.evaluate("document.images.length") == 0


def test_the_index_leads_to_the_pages(show: Any, pages: Path) -> None:
    save_page(page(fitted("lds")), pages / "behind.html")
    card = PageCard("behind.html", "Behind", "Says.", "")
    browser = show(index_page("Title", "Lead.", [card], [("Do:", "undertow")]))
    click(browser, ".page-card a")
    browser.wait("location.href.endsWith('behind.html') && document.readyState === 'complete'")
    assert "linear dynamical system" in text_of(browser, "h1")
