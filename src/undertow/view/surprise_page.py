"""An offline HTML page of texts whose tokens are colored by how surprising they are. No script: two radio buttons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from undertow.questions.explain import Surprise
from undertow.view.document import document, text

LEVELS = (1, 2, 4, 6, 8, 11, 14)  # bits: a token of level i is at least LEVELS[i − 1] bits surprising
# One hue from pale to dark (dark mode: from dark to pale), so that only lightness tells; the text of each level keeps a
# contrast of at least 4.5 to its ground.
LIGHT = ("#fbfaf7", "#e8f1f8", "#cfe2f0", "#aecde4", "#84b3d4", "#5f9cc6", "#2f76a8", "#14507c")
DARK = ("#12181e", "#1a2a38", "#20394f", "#284d6b", "#2f5f85", "#7db0d6", "#a5cbe6", "#cfe4f4")
INK, PAPER, DARK_INK = "#1c2733", "#ffffff", "#e6e3dc"
STYLE = """
body { font: 17px/1.9 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 50rem;
       margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; line-height: 1.3; margin: 0 0 .4rem; }
label { margin-right: 1.2rem; } .text { margin: .6rem 0; }
.text span, .key span { padding: .05rem .22rem; border-radius: .25rem; }
.key { border-bottom: 1px solid var(--line); padding-bottom: .6rem; }
"""


def surprise_page(sentences: Sequence[Surprise], *, title: str) -> str:
    """An HTML page of sentences in color that works offline.

    Parameters
    ----------
    sentences
        Sentences with the surprise of each token, as `HMM.surprise` gives them.
    title
        The title of the page.

    Returns
    -------
    str
        The page.
    """
    n_tokens = sum(len(s.tokens) for s in sentences)
    means = (_mean(s.left_to_right for s in sentences), _mean(s.both_sides for s in sentences))
    body = (
        f"<h1>{text(title)}</h1>",
        f"<p class=faint>{n_tokens:,} tokens; on average {means[0]} bits given the tokens before, {means[1]} given "
        "both sides. Point at a word to see its own.</p>",
        "<input type=radio name=side id=left checked><label for=left>given the tokens before</label>",
        "<input type=radio name=side id=both><label for=both>given both sides</label>",
        f"<main><p class=key>bits: {_key()}</p>",
        *(f"<p class=text>{_sentence(s)}</p>" for s in sentences),
        "</main>\n",
    )
    return document(title, "".join(body), styles=(), more_style=STYLE + "".join(_colors()))


def level(bits: float) -> int:
    """The color of a token, 0 to 7."""
    return sum(bits >= edge for edge in LEVELS)


def _colors() -> Iterable[str]:
    for i in range(len(LEVELS) + 1):
        where = f"#left:checked ~ main .l{i}, #both:checked ~ main .b{i}, .key .k{i}"
        yield f"{where} {{ background: {LIGHT[i]}; color: {PAPER if i >= 6 else INK}; }}\n"
        yield "@media (prefers-color-scheme: dark) { "
        yield f"{where} {{ background: {DARK[i]}; color: {INK if i >= 5 else DARK_INK}; }} }}\n"


def _key() -> str:
    edges = ["0", *map(str, LEVELS)]
    return " ".join(f"<span class=k{i}>{edge}{'+' if i == len(LEVELS) else ''}</span>" for i, edge in enumerate(edges))


def _sentence(s: Surprise) -> str:
    rows = zip(s.tokens, s.left_to_right.tolist(), s.both_sides.tolist(), strict=True)
    return " ".join(
        f"<span class='l{level(a)} b{level(b)}' title='{_bits(a)} bits given the tokens before, {_bits(b)} given both "
        f"sides'>{text(word)}</span>"
        for word, a, b in rows
    )


def _bits(x: float) -> str:
    return f"{x:.2f}" if math.isfinite(x) else "∞"


def _mean(parts: Iterable[Iterable[float]]) -> str:
    values = [float(x) for part in parts for x in part]
    return _bits(sum(values) / len(values)) if values else "0"
