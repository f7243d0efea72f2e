"""HTML sections about an LDS: its transitions, and neighbors of a word in context."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from undertow.models.lds.model import LDS


def transitions_section(model: LDS, n: int = 8, n_words: int = 4) -> str:
    """The strongest transitions of the hidden state as a table."""
    rows = "".join(
        f"<tr><td>{escape(', '.join(t.before))}<td>{escape(', '.join(t.after))}<td>{t.strength:.2f}"
        for t in model.transitions(n, n_words=n_words)
    )
    return (
        "<h2>What leads to what</h2><p>The strongest steps of the hidden state: words that lead into others, and the "
        f"correlation of the step.</p><table><tr><th>from<th>to<th>correlation{rows}</table>"
    )


def contexts_section(model: LDS, word: str, sentences: Sequence[Sequence[str]], n: int = 8) -> str:
    """The neighbors of a word, without context and in each sentence."""
    rows = [(f"<b>{escape(word)}</b>", model.neighbors(word, n))]
    for sentence in sentences:
        place = list(sentence).index(word)
        shown = " ".join(f"<b>{escape(w)}</b>" if i == place else escape(w) for i, w in enumerate(sentence))
        rows.append((shown, model.neighbors(sentence, n, position=place)))
    cells = "".join(f"<tr><td>{shown}<td>{escape(', '.join(x.word for x in near))}" for shown, near in rows)
    return (
        f"<h2>“{escape(word)}” in its contexts</h2>"
        "<p>Every token has a vector of its own; these words are nearest to it.</p>"
        f"<table class=prose><tr><th>token<th>most like it{cells}</table>"
    )
