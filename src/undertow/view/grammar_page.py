"""An offline HTML page of a grammar: its kinds of words, its rules, its training; or the trees of a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from undertow.models.grammar.model import Grammar
from undertow.view.charts import curve_chart
from undertow.view.document import document, facts_list, page_top, text
from undertow.view.model_page import parameters_section
from undertow.view.tree_page import tree_page

KINDS = 60  # of words, and as many kinds of phrases
RULES = 40
WORDS = 8
TREE_TOKENS = 2_000  # sentences are drawn until there are so many tokens


def grammar_page(model: Grammar, *, title: str | None = None) -> str:
    """The page of a grammar as a string; it works offline.

    Parameters
    ----------
    model
        A fitted model.
    title
        The title; by default it describes the content.
    """
    n_phrases, n_kinds = model.n_nonterminals, model.n_preterminals
    heading = f"A grammar of {n_phrases:,} kinds of phrases and {n_kinds:,} kinds of words" if title is None else title
    facts = [
        (f"{n_phrases:,}", "kinds of phrases"),
        (f"{n_kinds:,}", "kinds of words"),
        (f"{len(model.vocabulary_):,}", "words"),
        (f"{len(model.history_)}", "passes over the text"),
        (f"{np.exp(-model.history_[-1]):,.1f}", "perplexity in training"),
    ]
    lead = (
        "A grammar takes every sentence for a tree: a phrase is made of two parts, each a phrase or a kind of word, "
        "and a kind of word chooses the word. Nobody named the kinds: they are described by their typical words."
    )
    chart = curve_chart([("training", model.history_)], x_label="pass", y_label="log-likelihood of a token")
    body = [
        page_top(heading, lead),
        facts_list(facts),
        _symbols_section(model, "Kinds of words", "P", n_phrases, n_phrases + n_kinds),
        _symbols_section(model, "Kinds of phrases", "N", 0, n_phrases),
        _rules_section(model),
        f"<h2>Training</h2><div class=chart>{chart}</div>" if chart else "",
        parameters_section(model),
    ]
    return document(heading, "".join(body), scripts=["dom.js", "theme.js"])


def trees_page(model: Grammar, sentences: Sequence[Sequence[str]], *, title: str | None = None) -> str:
    """The trees of the first sentences of a text."""
    shown: list[list[str]] = []
    for sentence in sentences:
        if sum(map(len, shown)) >= TREE_TOKENS:
            break
        shown.append(list(sentence))
    return tree_page(model.trees(shown), title="A text as a grammar reads it" if title is None else title)


def _symbols_section(model: Grammar, heading: str, letter: str, start: int, stop: int) -> str:
    """Symbols by their share of all symbols of their sort, with their typical words; those never used left out."""
    counts = model.symbol_counts_[start:stop]
    order = [int(k) for k in np.argsort(-counts, kind="stable")[:KINDS] if counts[k] >= 0.5]
    rows = "".join(
        f"<tr><td>{letter}{k}</td><td>{text(' '.join(w.word for w in model.top_words(start + k, WORDS)))}</td>"
        f"<td>{counts[k] / counts.sum():.1%}</td></tr>"
        for k in order
    )
    some = f"The {len(order)} most used of {stop - start:,}. " if len(order) < stop - start else ""
    return (
        f'<h2>{heading}</h2><p class="note">{some}The share is that of all of them in the training text.</p><table>'
        f"<thead><tr><th>kind</th><th>typical words</th><th>share</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _rules_section(model: Grammar) -> str:
    def name(symbol: int) -> str:
        n = model.n_nonterminals
        return f"N{symbol}" if symbol < n else f"P{symbol - n}"

    rows = "".join(
        "<tr>"
        + "".join(
            f"<td>{name(symbol)}: {text(' '.join(words[:4]))}</td>"
            for symbol, words in zip(rule.symbols, (rule.parent, rule.left, rule.right), strict=True)
        )
        + f"<td>{rule.probability:.1%}</td></tr>"
        for rule in model.top_rules(RULES)
    )
    return (
        '<h2>Rules</h2><p class="note">The most used ones: of which two parts a phrase is made, and how often that is '
        "so among phrases of its kind.</p><table><thead><tr><th>phrase</th><th>first part</th><th>second part</th>"
        f"<th>probability</th></tr></thead><tbody>{rows}</tbody></table>"
    )
