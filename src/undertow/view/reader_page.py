"""An offline HTML page of a text as a model reads it: tokens colored by surprise or state, with a panel for each.

`undertow view MODEL TEXT` and `undertow surprise MODEL TEXT -o PAGE` both write it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from undertow.models.base import Estimator
from undertow.view.document import clean, digits, document, facts_list, page_top
from undertow.view.reader_data import Reading, read_text

SCRIPTS = ("dom.js", "theme.js", "reader.js")
SURPRISE_STEPS = (2, 4, 6, 9, 12)  # bits between the six shades
NAMES = {"hmm": "a hidden Markov model", "fhmm": "a factorial hidden Markov model", "lds": "a linear dynamical system"}


def reader_page(model: Estimator, sentences: Sequence[Sequence[str]], *, title: str | None = None) -> str:
    """The page as a string; it works offline.

    Parameters
    ----------
    model
        An HMM, FactorialHMM or LDS.
    sentences
        The text, as token lists.
    title
        The title; by default it names the model.

    Raises
    ------
    InputError
        If the model does not read text token by token, or the text has no words.
    """
    reading = read_text(model, sentences)
    heading = f"A text as {NAMES[model.kind]} reads it" if title is None else title
    body = page_top(heading, _lead(reading)) + facts_list(_facts(reading)) + READER
    return document(heading, body, styles=["document.css", "reader.css"], scripts=SCRIPTS, data=_payload(reading))


READER = """<div id="modes" class="modes" role="radiogroup" aria-label="Color of the tokens"></div>
<ul id="legend" class="legend" aria-label="Colors"></ul>
<div class="reader">
<div id="text" class="text" role="group" aria-label="The text; arrow keys move from token to token"></div>
<aside id="panel" class="panel" aria-live="polite" aria-label="The token chosen"></aside>
</div>
"""


def _lead(reading: Reading) -> str:
    what = [
        "Surprise is −log₂ of the probability of a token given those before it in its sentence: 1 bit is a fair coin "
        "toss."
    ]
    if reading.both_sides:
        what.append("Given both sides, it is that of a token given all others of its sentence.")
    if not reading.surprise:
        what = ["This model has too many joint states for the probability of each token: only states are shown."]
    if reading.states:
        what.append("States are those that the whole sentence makes most probable.")
    if reading.near:
        what.append("Each token has a vector of its own in its context: the panel shows the words nearest to it.")
    if 0 < len(reading.between) < reading.n_tokens:
        what.append(f"The words expected at a place are kept for the first {len(reading.between):,} tokens.")
    return " ".join([*what, "Choose a token by a click, or with the arrow keys."])


def _facts(reading: Reading) -> list[tuple[str, str]]:
    facts = [
        (f"{reading.n_tokens:,}", "tokens; the text goes on" if reading.is_cut else "tokens"),
        (f"{len(reading.sentences):,}", "sentences"),
        (f"{np.mean(reading.unknown):.1%}", "unknown words"),
    ]
    for bits, given in ((reading.surprise, ""), (reading.both_sides, " given both sides")):
        if bits and all(map(math.isfinite, bits)):
            mean = float(np.mean(bits))
            facts += [(f"{mean:.2f}", f"bits per token{given}"), (f"{2**mean:,.0f}", f"perplexity{given}")]
    return facts


def _payload(reading: Reading) -> dict[str, Any]:
    """Everything page/reader.js shows; words are places in a list of strings, states places in a list of states."""
    at: dict[str, int] = {}

    def places(words: Iterable[str]) -> list[int]:
        return [at.setdefault(word, len(at)) for word in words]

    keys = {key: k for k, key in enumerate(reading.state_words)}
    return {
        "sentences": [places(s) for s in reading.sentences],
        "unknown": [i for i, yes in enumerate(reading.unknown) if yes],
        "surprise": _finite(reading.surprise),
        "both": _finite(reading.both_sides),
        "shades": SURPRISE_STEPS,
        "states": [
            {
                "name": f"{m + 1}.{z}" if len(reading.states) > 1 else str(z),
                "words": [places(w.word for w in words), digits([w.probability for w in words], 2)],
                "color": reading.groups.get((m, z), -1),
            }
            for (m, z), words in reading.state_words.items()
        ],
        "grouped": len(reading.states) == 1 and len(set(reading.groups.values())) < len(reading.groups),
        "posterior": [
            [[[keys[m, z] for z, _ in token], digits([p for _, p in token], 2)] for token in layer]
            for m, layer in enumerate(reading.states)
        ],
        "expected": [[places(w.word for w in e), digits([w.probability for w in e], 2)] for e in reading.expected],
        "between": [[places(w.word for w in e), digits([w.probability for w in e], 2)] for e in reading.between],
        "near": [[places(x.word for x in near), digits([x.cosine for x in near], 2)] for near in reading.near],
        "strings": [clean(word) for word in at],
    }


def _finite(bits: list[float]) -> list[float | None]:
    """Rounded for the page; None for infinity, which JSON cannot hold."""
    return [round(b, 1) if math.isfinite(b) else None for b in bits]
