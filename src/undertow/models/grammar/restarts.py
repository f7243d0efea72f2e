"""Random starts, of which the best by likelihood is kept."""

from __future__ import annotations

import numpy as np

from undertow.engine import Engine
from undertow.models.fitting import LOGGER
from undertow.models.grammar.chain_start import chain_start
from undertow.models.grammar.em import Fitted, MStep, em_iterations, mean_log_likelihood, split_chunks
from undertow.models.grammar.init import Sizes, random_start, sentence_lengths, word_classes
from undertow.text.corpus import Corpus

PASSES = 2  # over the sample before starts are compared
SAMPLE_TOKENS = 100_000  # of the beginning of the text; the end of it is what is compared
HELD_OUT = 0.2  # share of the sample


def best_start(
    text: Corpus,
    sizes: Sizes,
    init: str,
    n_restarts: int,
    m_step: MStep,
    rng: np.random.Generator,
    n_threads: int,
    engine: Engine | None,
    lean: str = "right",
) -> Fitted:
    """The start whose held-out part of a sample is most probable after some passes over the rest of the sample."""
    starts = [one_start(text, sizes, init, m_step, rng, n_threads, lean) for _ in range(n_restarts)]
    if n_restarts == 1:
        return starts[0]
    shards = [shard for chunk in split_chunks(text, max(5, -(-text.n_tokens * 5 // SAMPLE_TOKENS))) for shard in chunk]
    sample = shards[: max(2, round(len(shards) * min(1.0, SAMPLE_TOKENS / text.n_tokens)))]
    n_held = max(1, round(HELD_OUT * len(sample)))
    train, held = sample[:-n_held] or sample, sample[-n_held:]
    scores = []
    for number, start in enumerate(starts, 1):
        fit = start
        for step in em_iterations(start, m_step, [[shard] for shard in train], PASSES, engine):
            fit = step.params
        scores.append(mean_log_likelihood(fit.params, held, engine))
        LOGGER.info("start %d of %d: held-out perplexity %.2f of a sample", number, n_restarts, np.exp(-scores[-1]))
    return starts[int(np.argmax(scores))]


def one_start(
    text: Corpus,
    sizes: Sizes,
    init: str,
    m_step: MStep,
    rng: np.random.Generator,
    n_threads: int,
    lean: str,
) -> Fitted:
    """Parameters from one draw of the random numbers."""
    if init == "chain":
        return chain_start(text, sizes, m_step, rng, n_threads)
    classes = word_classes(text, sizes.n_preterminals, rng, n_threads) if init == "clusters" else None
    return random_start(sizes, sentence_lengths(text), m_step, rng, classes, lean)


__all__ = ["best_start", "one_start"]
