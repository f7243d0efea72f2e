"""An offline HTML page of the hidden states of an HMM or a factorial HMM, or of word clusters."""

from __future__ import annotations

import math
from typing import Any

from undertow.errors import InputError
from undertow.models.factorial.model import FactorialHMM
from undertow.models.hmm.model import HMM
from undertow.models.hmm.params import BlockParams
from undertow.results.word_clusters import WordClusters
from undertow.text.word_classes import PREFIX
from undertow.view.charts import curve_chart
from undertow.view.document import document, facts_list, page_top, search_box, text
from undertow.view.model_page import parameters_section
from undertow.view.state_tables import WORDS, StateTable, cluster_states, fhmm_states, hmm_states, payload

LISTED = 400  # states in the list; the others are found by their words
SAMPLE = 120  # tokens
BLOCKS = 200  # in the table of the diagnostics
SCRIPTS = ("dom.js", "combobox.js", "theme.js", "states.js")


def states_page(model: HMM | FactorialHMM | WordClusters, *, title: str | None = None) -> str:
    """The page of a model as a string; it works offline.

    Parameters
    ----------
    model
        A fitted model.
    title
        The title; by default it describes the content.
    """
    table = state_table(model)
    what = "clusters" if isinstance(model, WordClusters) else "states"
    heading = f"{_size(model)} of {len(model.vocabulary_):,} words" if title is None else title
    listed = min(LISTED, len(table.states))
    body = "".join(
        [
            page_top(heading, LEADS[model.kind]),
            facts_list(_facts(model)),
            _explorer(table, what, listed),
            _steps_section(table),
            _sample_section(model),
            _curves_section(model),
            _diagnosis_section(model),
            parameters_section(model),
        ]
    )
    data = {**payload(table), "listed": listed, "what": what.removesuffix("s")}
    return document(heading, body, styles=["document.css", "states.css"], scripts=SCRIPTS, data=data)


def state_table(model: Any) -> StateTable:
    """The states of a model that has some."""
    if isinstance(model, HMM):
        return hmm_states(model)
    if isinstance(model, FactorialHMM):
        return fhmm_states(model)
    if isinstance(model, WordClusters):
        return cluster_states(model)
    raise InputError(f"A {type(model).__name__} has no states to show: give an HMM, FactorialHMM or WordClusters.")


LEADS = {
    "hmm": "A hidden Markov model reads a text as a walk through hidden states: each state has its own words, and its "
    "own probabilities of the next state. Choose a state, or search for a word to see the states it comes from.",
    "fhmm": "A factorial hidden Markov model has a state in each of its layers at every token, and the layers choose "
    "the word together. Choose a state, or search for a word to see its states.",
    "clusters": "Words that stand in the same places share a cluster; clusters whose paths begin alike are related. "
    "Choose a cluster, or search for a word.",
}


def _size(model: HMM | FactorialHMM | WordClusters) -> str:
    if isinstance(model, HMM):
        return f"The {model.params_.n_states:,} states of a hidden Markov model"
    if isinstance(model, FactorialHMM):
        sizes = model.params_.sizes
        states = f"{len(sizes)} × {sizes[0]}" if len(set(sizes)) == 1 else " + ".join(map(str, sizes))
        return f"The {states} states of a factorial HMM"
    return f"{len(model.paths_):,} clusters"


def _facts(model: HMM | FactorialHMM | WordClusters) -> list[tuple[str, str]]:
    vocabulary = model.vocabulary_
    if isinstance(model, HMM):
        facts = [(f"{model.params_.n_states:,}", "states")]
        if isinstance(model.params_, BlockParams):
            facts.append((f"{model.params_.blocks.n_blocks:,}", "blocks of words and states"))
        if model.rank is not None:
            facts.append((f"{model.rank:,}", "rank of the transition"))
    elif isinstance(model, FactorialHMM):
        sizes = model.params_.sizes
        states = f"{sizes[0]}" if len(set(sizes)) == 1 else ", ".join(map(str, sizes))
        facts = [(f"{len(sizes)}", "layers"), (states, "states in each")]
    else:
        facts = [(f"{len(model.paths_):,}", "clusters")]
    facts += [(f"{len(vocabulary):,}", "words"), (f"{int(vocabulary.counts.sum()):,}", "tokens read")]
    if model.history_:
        facts += [(f"{len(model.history_)}", "passes over the text")]
        facts += [(f"{math.exp(-model.history_[-1]):,.1f}", "perplexity in training")]
    held_out = getattr(model, "validation_history_", [])
    if held_out:
        facts.append((f"{math.exp(-max(held_out)):,.1f}", "perplexity held out"))
    return facts


def _explorer(table: StateTable, what: str, listed: int) -> str:
    few = listed < table.n_states
    note = f"The {listed:,} most frequent of {table.n_states:,} {what} are listed. " if few else ""
    n_words = len(table.word_states)
    searched = f"The search knows {n_words:,} words" + (", the most frequent." if n_words == WORDS else ".")
    single = "A state of nearly one word is written with those that follow it: word → words. " if table.steps else ""
    classes = any(w.word.startswith(PREFIX) for state in table.states[:listed] for w in state.words)
    rare = " Names such as &lt;unk:-ed&gt; stand for rare words of a kind, here those in -ed." if classes else ""
    return (
        f"<h2>{what.capitalize()} and their words</h2>"
        f'<p class="note">{note}{single}{searched} Percentages at the left are shares of all tokens.{rare}</p>'
        f"{search_box('Search a word')}"
        '<div class="explorer"><div class="list-box">'
        f'<ol id="states" class="state-list" aria-label="{what.capitalize()}"></ol></div>'
        '<section id="detail" class="detail" aria-live="polite" aria-label="What was chosen"></section></div>'
    )


def _steps_section(table: StateTable) -> str:
    if not table.steps:
        return ""
    return (
        "<h2>The strongest steps</h2><p>The most informative steps from state to state: frequent ones, far more "
        "probable than the frequency of the state they lead to. The figure is the probability of the step.</p>"
        '<ol id="steps" class="steps"></ol>'
    )


def _sample_section(model: HMM | FactorialHMM | WordClusters) -> str:
    if isinstance(model, WordClusters):
        return ""
    words = model.sample(SAMPLE, random_state=0)
    return (
        "<h2>Text drawn from the model</h2><p>A walk through the states, one word from each; the first "
        f"{SAMPLE} tokens with random_state=0.</p><p class=quote>{text(' '.join(words))}</p>"
    )


def _curves_section(model: HMM | FactorialHMM | WordClusters) -> str:
    bits = [[-v / math.log(2) for v in values] for values in (model.history_, held_out_history(model))]
    series = [(name, values) for name, values in zip(("training", "held out"), bits, strict=True) if values]
    if not series:
        return ""
    exact = "" if getattr(model, "scores_exactly", True) else " (a bound)"
    chart = curve_chart(series, x_label="pass", y_label=f"bits per token{exact}")
    return (
        "<h2>Training</h2><p>How well the words are predicted after each pass over the text: one bit less halves the "
        f"perplexity.</p><div class=chart>{chart}</div>"
    )


def _diagnosis_section(model: HMM | FactorialHMM | WordClusters) -> str:
    if not isinstance(model, HMM):
        return ""
    found = model.diagnose()
    facts = "".join(f"<tr><td>{text(name)}</td><td>{text(value)}</td></tr>" for name, value in found.facts())
    section = (
        "<h2>Diagnostics</h2><p>How uncertain the next state and its word are, and how much of the model is in use. A "
        "perplexity or an effective number is the number of equally probable ones that would be as uncertain.</p>"
        f"<table>{facts}</table>"
    )
    if not found.blocks:
        return section
    largest = sorted(found.blocks, key=lambda b: -b.token_share)[:BLOCKS]
    rows = "".join(
        f"<tr><td>{b.block}</td><td>{b.words:,}</td><td>{b.states:,}</td><td>{b.token_share:.2%}</td>"
        f"<td>{b.effective_states:,.1f}</td></tr>"
        for b in largest
    )
    title = f"the {len(largest):,} with most tokens" if len(largest) < len(found.blocks) else "all blocks"
    return (
        f"{section}<details><summary>Blocks: {title}</summary><table><tr><th>block</th><th>words</th>"
        f"<th>states</th><th>share of the tokens</th><th>effective states</th></tr>{rows}</table></details>"
    )


def held_out_history(model: Any) -> list[float]:
    """Mean log-probabilities of held-out text after each pass, if there was some."""
    return list(getattr(model, "validation_history_", []))
