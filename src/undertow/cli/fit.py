"""undertow fit: one subcommand a model."""

from __future__ import annotations

import click

from undertow.cli.lazy import LazyGroup

MODELS = {
    "hmm": ("undertow.cli.fit_hmm", "A hidden Markov model: a language model with many states."),
    "fhmm": ("undertow.cli.fit_fhmm", "A factorial HMM: parallel hidden chains, several states per token."),
    "lds": ("undertow.cli.fit_lds", "A linear dynamical system: token vectors in context."),
    "clusters": ("undertow.cli.fit_clusters", "Word clusters in a tree (Brown clusters), as a model for taggers."),
    "pmi": ("undertow.cli.fit_pmi", "Word vectors by pointwise mutual information, in seconds."),
    "context": ("undertow.cli.fit_context", "Token vectors by a network that predicts words from their neighbors."),
    "grammar": ("undertow.cli.fit_grammar", "A context-free grammar: a tree for every sentence."),
    "dynamic": ("undertow.cli.fit_dynamic", "A moving map of two kinds of entities, from events."),
}


@click.group(cls=LazyGroup, verbs=MODELS)
def command() -> None:
    """Fit a model to text or counts."""
