"""The index page of the demonstration: a card for each of its pages, with a preview of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from undertow.view.document import document, page_top, text
from undertow.view.reader_data import Reading
from undertow.view.reader_page import SURPRISE_STEPS


class PageCard(NamedTuple):
    """A link to another page in the same directory."""

    file: str
    title: str
    summary: str  # one sentence
    preview: str  # HTML


def index_page(title: str, lead: str, cards: Sequence[PageCard], commands: Sequence[tuple[str, str]]) -> str:
    """The page as a string; `commands` are (what it does, command line)."""
    links = "".join(
        f'<article class="page-card"><h2><a href="{text(card.file)}">{text(card.title)}</a></h2>'
        f'<p>{text(card.summary)}</p><div class="preview">{card.preview}</div></article>'
        for card in cards
    )
    steps = "".join(f"<li>{text(what)}<pre>{text(line)}</pre></li>" for what, line in commands)
    body = (
        f'{page_top(title, lead)}<main class="page-cards">{links}</main>'
        f"<h2>Three commands to type next</h2><ol>{steps}</ol>"
    )
    return document(title, body, styles=["document.css", "reader.css", "index.css"], scripts=["dom.js", "theme.js"])


def preview_of_reading(reading: Reading, n_sentences: int = 3) -> str:
    """The first sentences, each token colored by its surprise."""
    i, lines = 0, []
    for sentence in reading.sentences[:n_sentences]:
        spans = []
        for word in sentence:
            shade = sum(reading.surprise[i] >= step for step in SURPRISE_STEPS) if reading.surprise else 0
            spans.append(f'<span class="shade{shade}">{text(word)}</span>')
            i += 1
        lines.append(f'<p class="read">{" ".join(spans)}</p>')
    return "".join(lines)


def preview_of_lists(lists: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A line for each name and its words."""
    return "".join(f"<p><b>{text(name)}</b> {text(', '.join(words))}</p>" for name, words in lists)
