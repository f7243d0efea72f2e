"""The first page of the demonstration: a door to each of its pages, with a glimpse of what is behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from undertow.view.document import document, page_top, text
from undertow.view.reader_data import Reading
from undertow.view.reader_page import SURPRISE_STEPS


class Door(NamedTuple):
    """A link to another page in the same directory."""

    file: str
    title: str
    says: str  # one sentence
    glimpse: str  # HTML


def index_page(title: str, lead: str, doors: Sequence[Door], commands: Sequence[tuple[str, str]]) -> str:
    """The page as a string; `commands` are (what it does, command line)."""
    cards = "".join(
        f'<article class="door"><h2><a href="{text(d.file)}">{text(d.title)}</a></h2><p>{text(d.says)}</p>'
        f'<div class="glimpse">{d.glimpse}</div></article>'
        for d in doors
    )
    steps = "".join(f"<li>{text(what)}<pre>{text(line)}</pre></li>" for what, line in commands)
    body = (
        f'{page_top(title, lead)}<main class="doors">{cards}</main><h2>Three commands to type next</h2><ol>{steps}</ol>'
    )
    return document(title, body, styles=["document.css", "reader.css", "index.css"], scripts=["dom.js", "theme.js"])


def glimpse_of_reading(reading: Reading, n_sentences: int = 3) -> str:
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


def glimpse_of_lists(lists: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A line for each name and its words."""
    return "".join(f"<p><b>{text(name)}</b> {text(', '.join(words))}</p>" for name, words in lists)
