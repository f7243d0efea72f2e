"""An offline HTML page of a linear dynamical system: neighbors with a search box, transitions, spectrum, training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.types import F32, I64
from undertow.models.answers import Transition
from undertow.models.lds.model import LDS
from undertow.models.similar_words import frequent_words
from undertow.view.charts import bar_chart, curve_chart, eigenvalue_chart, half_life
from undertow.view.document import base64_codes, clean, digits, document, facts_list, page_top, search_box, text
from undertow.view.model_page import parameters_section

WORDS = 5000  # most frequent words whose neighbors can be searched
VECTOR_BYTES = 1_500_000  # of the vectors in the page, before base64: 5,000 words of 300 dimensions
TRANSITIONS = 12
SAME = 0.4  # a transition is left out if more than this share of its words is in stronger ones
SCRIPTS = ("dom.js", "combobox.js", "theme.js", "words.js")


class PackedWords(NamedTuple):
    """Word vectors in a byte a number: vector i is steps[i] times codes[i]."""

    ids: I64
    codes: NDArray[np.int8]  # (n, h)
    steps: F32  # (n,)


def lds_page(model: LDS, *, title: str | None = None) -> str:
    """The page of an LDS as a string; it works offline.

    Parameters
    ----------
    model
        A fitted model.
    title
        The title; by default it describes the content.
    """
    heading = f"The words of a linear dynamical system of {model.params_.n_components} dimensions"
    heading = heading if title is None else title
    packed = packed_words(model)
    facts = [
        (f"{model.params_.n_components}", "dimensions"),
        (f"{len(model.vocabulary_):,}", "words"),
        (f"{int(model.vocabulary_.counts.sum()):,}", "tokens read"),
        (f"{len(model.history_)}", "iterations"),
    ]
    body = [
        page_top(
            heading,
            "A linear dynamical system gives every word a vector, and every token in its context another. "
            "Words that occur in the same contexts have similar vectors: search for a word to see those nearest to it.",
        ),
        facts_list(facts),
        _neighbors_section(len(packed.ids)),
        transitions_section(distinct_transitions(model)),
        _spectrum_section(model),
        _training_section(model),
        parameters_section(model),
    ]
    words = [model.vocabulary_.words[i] for i in packed.ids.tolist()]
    data = {
        "words": [clean(word) for word in words],
        "counts": model.vocabulary_.counts[packed.ids].tolist(),
        "vectors": base64_codes(packed.codes),
        "steps": digits(packed.steps),
        "first": first_words(packed, words),
    }
    return document(heading, "".join(body), styles=["document.css", "states.css"], scripts=SCRIPTS, data=data)


def packed_words(model: LDS) -> PackedWords:
    """The vectors of the most frequent words among those that `model.neighbors` gives, in a byte a number."""
    vectors, counts = model.word_vectors(), model.vocabulary_.counts
    allowed = np.flatnonzero(frequent_words(model.vocabulary_, model.min_count))
    n = min(WORDS, max(100, VECTOR_BYTES // vectors.shape[1]))
    ids = allowed[np.argsort(-counts[allowed], kind="stable")[:n]]
    chosen = vectors[ids]
    steps = np.maximum(np.abs(chosen).max(axis=1), 1e-12) / 127
    return PackedWords(ids, np.rint(chosen / steps[:, None]).astype(np.int8), steps.astype(np.float32))


def distinct_transitions(model: LDS, n: int = TRANSITIONS, n_words: int = 6) -> list[Transition]:
    """The strongest transitions, without those that mostly repeat the words of stronger ones on the same side."""
    kept: list[Transition] = []
    before: set[str] = set()
    after: set[str] = set()
    for t in model.transitions(min(6 * n, model.params_.n_components), n_words=n_words):
        repeated = len(before.intersection(t.before)) + len(after.intersection(t.after))
        if repeated <= SAME * (len(t.before) + len(t.after)):
            kept.append(t)
            before.update(t.before)
            after.update(t.after)
        if len(kept) == n:
            break
    return kept


def transitions_section(transitions: list[Transition]) -> str:
    """Transitions of the hidden state as a table."""
    rows = "".join(
        f"<tr><td>{text(', '.join(t.before))}</td><td>{text(', '.join(t.after))}</td><td>{t.strength:.2f}</td></tr>"
        for t in transitions
    )
    return (
        "<h2>What leads to what</h2><p>The strongest steps of the hidden state: words that lead into others, and the "
        "correlation of the step. Steps that repeat the words of a stronger one are left out.</p>"
        f"<table><thead><tr><th>from</th><th>to</th><th>correlation</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _neighbors_section(n: int) -> str:
    return (
        f'<h2>Neighbors</h2><p class="note">{n:,} of the most frequent words are in this page, their vectors rounded '
        "to a byte a number; figures are cosines, correct to about 0.01.</p>"
        f'{search_box("Search a word")}<div id="neighbors" class="columns cards" aria-live="polite"></div>'
    )


def first_words(packed: PackedWords, words: Sequence[str], n: int = 3) -> list[int]:
    """Places of a few words to begin with: of several letters, with near neighbors, and unlike each other."""
    good = [i for i, w in enumerate(words[:1500]) if w.isalpha() and w.islower() and len(w) > 3][:600]
    if len(good) < n:
        return list(range(min(n, len(words))))
    vectors = packed.codes * packed.steps[:, None]
    cosines = vectors[good] @ vectors.T
    near = np.sort(cosines, axis=1)[:, -6:-1].mean(axis=1)
    kept: list[int] = []
    for k in np.argsort(-near, kind="stable").tolist():
        if all(cosines[k, j] < 0.3 for j in kept):
            kept.append(good[k])
        if len(kept) == n:
            break
    return kept


def _spectrum_section(model: LDS) -> str:
    eigenvalues = np.linalg.eigvals(model.params_.A)
    modulus = np.sort(np.abs(eigenvalues))[::-1]
    lives = half_life(modulus)
    slow, middle = float(lives[0]), float(np.median(lives))
    return (
        "<h2>How long the state remembers</h2><p>Eigenvalues of the transition, inside the unit circle: the nearer to "
        f"it, the longer a direction of the state is remembered. The slowest has halved after {slow:.3g} tokens, the "
        f"median after {middle:.2g}.</p><div class=halves><div>"
        f"{bar_chart(modulus.tolist(), y_label='modulus of the eigenvalues')}</div><div>"
        f"{eigenvalue_chart(eigenvalues.tolist())}</div></div>"
    )


def _training_section(model: LDS) -> str:
    chart = curve_chart([("training", model.history_)], x_label="iteration", y_label="log-likelihood per token")
    return (
        "<h2>Training</h2><p>The Gaussian log-likelihood of the pair counts after each iteration of EM.</p>"
        f"<div class=chart>{chart}</div>"
        if chart
        else ""
    )
