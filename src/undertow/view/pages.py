"""The page of any model, or of a text as a model reads it."""

from __future__ import annotations

from collections.abc import Sequence

from undertow.models.base import Estimator
from undertow.models.dynamic.model import DynamicEmbedding
from undertow.models.factorial.model import FactorialHMM
from undertow.models.grammar.model import Grammar
from undertow.models.hmm.model import HMM
from undertow.models.lds.model import LDS
from undertow.results.word_clusters import WordClusters
from undertow.view.grammar_page import grammar_page, trees_page
from undertow.view.lds_page import lds_page
from undertow.view.map_page import map_page
from undertow.view.model_page import plain_page
from undertow.view.reader_page import reader_page
from undertow.view.states_page import states_page


def page(model: Estimator, sentences: Sequence[Sequence[str]] | None = None, *, title: str | None = None) -> str:
    """An HTML page as a string; it works offline, and `document.save_page` writes it.

    Parameters
    ----------
    model
        A fitted model of any kind.
    sentences
        A text as token lists: the page then shows it as an HMM, FactorialHMM or LDS reads it, or the trees of a
        Grammar, and otherwise the model.
    title
        The title; by default it describes the content.

    Raises
    ------
    InputError
        If a text is given and the model does not read it token by token, or the text has no words.
    """
    if isinstance(model, Grammar):
        return grammar_page(model, title=title) if sentences is None else trees_page(model, sentences, title=title)
    if sentences is not None:
        return reader_page(model, sentences, title=title)
    if isinstance(model, HMM | FactorialHMM | WordClusters):
        return states_page(model, title=title)
    if isinstance(model, LDS):
        return lds_page(model, title=title)
    if isinstance(model, DynamicEmbedding):
        return map_page(model.map_data(), title=title)
    return plain_page(model, title=title)
