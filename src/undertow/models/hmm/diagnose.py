"""Diagnostics of a fitted hidden Markov model: how spread its distributions are, and how much of it is in use.

As the draft "Scaling Hidden Markov Language Models" suggests: entropy and rank of the parameters. Nothing here makes a
Z×Z array beyond 2,048 states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svdvals

from undertow.errors import InputError
from undertow.kernels.chain.block_operators import BlockLowRank, PairSparse
from undertow.kernels.chain.operators import LowRank
from undertow.kernels.chain.spectrum import (
    effective_rank,
    entropy,
    estimated_effective_rank,
    product_singular_values,
    row_entropies,
)
from undertow.kernels.types import F32, F64
from undertow.models.constraints import is_number
from undertow.models.hmm.params import BlockParams, Params
from undertow.tables import Table

EXACT_STATES = 2048  # up to here all singular values are computed
MOST_ENTRIES = 1 << 27  # of the transition whose logs are taken; with more, a sample of rows (11,585 states)
BATCH_ENTRIES = 1 << 21  # entries of the transition that are made together
PROBES, LANCZOS_STEPS = 8, 80  # of the estimated rank; four probes gave error bars that were too short
LISTED_BLOCKS = 8  # in the text of a diagnosis


class Spread(NamedTuple):
    """How widely the rows of a table of probabilities are spread.

    Attributes
    ----------
    entropy
        Mean over the rows, weighted by the shares of their states, in nats.
    perplexity
        exp(entropy): the number of equally probable outcomes that would be as uncertain.
    standard_error
        Of the entropy, if only a sample of the rows was read; 0 if all were.
    """

    entropy: float
    perplexity: float
    standard_error: float


class EffectiveRank(NamedTuple):
    """exp of the entropy of the singular values of the transition, divided by their sum.

    Attributes
    ----------
    value
        1 for equal rows, the number of states for a permutation.
    method
        "exact" from all singular values, or "estimated" by stochastic Lanczos quadrature.
    error
        Of an estimate: the standard error over its random probes and its distance from the estimate after half of the
        steps, together; 0 if exact.
    """

    value: float
    method: str
    error: float


class BlockUse(NamedTuple):
    """A block of words and states.

    Attributes
    ----------
    block
        Its number.
    words
        Number of words that its states emit.
    states
        Number of its states.
    token_share
        Share of the tokens of the fitted text that are words of it.
    effective_states
        exp of the entropy of the shares of its states: the number of equally frequent states that would spread as much.
    """

    block: int
    words: int
    states: int
    token_share: float
    effective_states: float


class Diagnosis(NamedTuple):
    """How spread the distributions of an HMM are, and how many of its states are in use.

    Attributes
    ----------
    transition, emission
        Entropy and perplexity of their rows.
    effective_rank
        Of the transition.
    state_shares
        (Z,) how often each state comes in a long text: the stationary distribution of the transition.
    effective_states
        exp of the entropy of the shares.
    unused_states
        Number of states with a share below `unused_below`.
    unused_below
        That share.
    blocks
        Words, states and shares of each block; empty for a model without blocks.
    """

    transition: Spread
    emission: Spread
    effective_rank: EffectiveRank
    state_shares: F32
    effective_states: float
    unused_states: int
    unused_below: float
    blocks: Table[BlockUse]

    def to_dict(self) -> dict[str, Any]:
        """All but the shares of the single states, as JSON knows it."""
        return {
            "states": len(self.state_shares),
            "transition": self.transition._asdict(),
            "emission": self.emission._asdict(),
            "effective_rank": self.effective_rank._asdict(),
            "effective_states": self.effective_states,
            "unused_states": self.unused_states,
            "unused_below": self.unused_below,
            "blocks": [block._asdict() for block in self.blocks],
        }

    def facts(self) -> list[tuple[str, str]]:
        """The figures as (name, text), for people."""
        Z, rank = len(self.state_shares), self.effective_rank
        estimated = "" if rank.method == "exact" else f", estimated, ± {rank.error:,.2g}"
        out = [
            ("next state", _spread_text(self.transition)),
            ("word of a state", _spread_text(self.emission)),
            ("effective rank of the transition", f"{rank.value:,.1f} of {Z:,}{estimated}"),
            ("effective number of states", f"{self.effective_states:,.1f} of {Z:,}"),
            ("unused states", f"{self.unused_states:,} with a share below {self.unused_below:.2g}"),
        ]
        if self.blocks:
            shares = [b.token_share for b in self.blocks]
            used = [b.effective_states / b.states for b in self.blocks]
            out += [
                ("blocks", f"{len(shares):,}, with {min(shares):.2%} to {max(shares):.2%} of the tokens"),
                ("effective states of a block", f"{min(used):.0%} to {max(used):.0%} of its states"),
            ]
        return out

    def __repr__(self) -> str:
        facts = self.facts()
        width = max(len(name) for name, _ in facts)
        lines = [f"Diagnosis of {len(self.state_shares):,} states", *(f"  {k:<{width}}  {v}" for k, v in facts)]
        if self.blocks:
            lines.append(f"  {'block':>5} {'words':>7} {'states':>6} {'tokens':>7} {'effective states':>16}")
            largest = sorted(self.blocks, key=lambda b: -b.token_share)
            lines += [
                f"  {b.block:>5} {b.words:>7,} {b.states:>6,} {b.token_share:>7.2%} {b.effective_states:>16,.1f}"
                for b in largest[:LISTED_BLOCKS]
            ]
            if len(largest) > LISTED_BLOCKS:
                lines.append(f"  … and {len(largest) - LISTED_BLOCKS:,} blocks with fewer tokens")
        return "\n".join(lines)


def diagnose(
    params: Params, state_shares: F32, word_counts: NDArray[Any], unused: float = 0.01, seed: int = 0
) -> Diagnosis:
    """Diagnostics from the parameters, the stationary shares of the states and the counts of the words.

    Parameters
    ----------
    params
        Of the model.
    state_shares
        (Z,) its stationary distribution.
    word_counts
        (V,) of the text that it was fitted to.
    unused
        A state is unused if its share is below this part of an even share, 1/Z.
    seed
        Of what is estimated from samples.
    """
    if not (is_number(unused) and 0 <= unused < math.inf):
        raise InputError(f"unused={unused!r} must be a number, at least 0: a part of an even share of the tokens.")
    rng = np.random.default_rng(seed)
    shares = np.asarray(state_shares, dtype=np.float64)
    shares = shares / shares.sum()
    below = unused / params.n_states
    return Diagnosis(
        _transition_spread(params.transition, shares, rng),
        _spread(float(shares @ emission_entropies(params))),
        transition_rank(params.transition, rng),
        state_shares,
        math.exp(entropy(shares)),
        int((shares < below).sum()),
        below,
        _block_uses(params, shares, np.asarray(word_counts, dtype=np.float64)),
    )


def _spread(mean: float, error: float = 0.0) -> Spread:
    return Spread(mean, math.exp(mean), error)


def _spread_text(spread: Spread) -> str:
    error = f" ± {spread.standard_error:.2g}" if spread.standard_error else ""
    return f"perplexity {spread.perplexity:,.1f} (entropy {spread.entropy:.3f}{error} nats)"


# --- entropies ------------------------------------------------------------------------------------------


def _transition_spread(T: Any, shares: F64, rng: np.random.Generator) -> Spread:
    """All rows, or as many as `MOST_ENTRIES` allows, drawn by their shares: then their plain mean is unbiased."""
    Z = len(shares)
    if Z * Z <= MOST_ENTRIES:
        return _spread(sum(float(shares[some] @ row_entropies(rows)) for some, rows in _all_rows(T)))
    drawn = np.sort(rng.choice(Z, size=max(2, MOST_ENTRIES // Z), p=shares))
    batch = max(1, BATCH_ENTRIES // Z)
    found = np.concatenate([row_entropies(T.rows(drawn[i : i + batch])) for i in range(0, len(drawn), batch)])
    return _spread(float(found.mean()), float(found.std(ddof=1) / math.sqrt(len(found))))


def _all_rows(T: Any) -> Iterator[tuple[slice, F32]]:
    """The rows of a transition, some states at a time."""
    if isinstance(T, PairSparse):
        yield from ((T.live(b), T.block_rows(b)) for b in range(len(T.first) - 1))
        return
    batch = max(1, BATCH_ENTRIES // T.n_states)
    for start in range(0, T.n_states, batch):
        some = slice(start, min(start + batch, T.n_states))
        yield some, T.rows(np.arange(some.start, some.stop))


def emission_entropies(params: Params) -> F64:
    """(Z,) entropy of the words of each state, in nats."""
    out = np.zeros(params.n_states)
    for word in range(params.n_words):
        live, p = params.live_emission(word)
        p = np.asarray(p, dtype=np.float64)
        out[live] -= p * np.log(np.where(p > 0, p, 1))
    return out


# --- rank -----------------------------------------------------------------------------------------------


def transition_rank(T: Any, rng: np.random.Generator) -> EffectiveRank:
    """Exact for a low rank and for up to `EXACT_STATES` states, otherwise estimated."""
    if isinstance(T, LowRank):
        return EffectiveRank(effective_rank(product_singular_values(T.R, T.E)), "exact", 0.0)
    if isinstance(T, BlockLowRank):
        return EffectiveRank(effective_rank(product_singular_values(T.R, T.ET.T)), "exact", 0.0)
    if T.n_states <= EXACT_STATES:
        return EffectiveRank(effective_rank(svdvals(T.dense().astype(np.float64))), "exact", 0.0)
    signs = rng.choice([-1.0, 1.0], size=(PROBES, T.n_states))
    value, error = estimated_effective_rank(_gram(T), signs, LANCZOS_STEPS)
    return EffectiveRank(value, "estimated", error)


def _gram(T: Any) -> Callable[[F64], F64]:
    """The product x → x T'T, or x T T', whose eigenvalues are the same."""

    def by_blocks(x: F64) -> F64:
        x32 = x.astype(np.float32)
        out = np.zeros_like(x32)
        for b in range(len(T.first) - 1):
            rows = T.block_rows(b)  # in the cache for both products
            out += (x32 @ rows.T) @ rows
        return out.astype(np.float64)

    def by_operator(x: F64) -> F64:
        return np.asarray(T.pull(T.push(x.astype(np.float32))), dtype=np.float64)

    return by_blocks if isinstance(T, PairSparse) else by_operator


# --- blocks ---------------------------------------------------------------------------------------------


def _block_uses(params: Params, shares: F64, word_counts: F64) -> Table[BlockUse]:
    out = Table(BlockUse)
    if not isinstance(params, BlockParams):
        return out
    of_word, G = params.blocks.word_block, params.blocks.n_blocks
    anywhere = of_word < 0  # words that were never seen, which all states emit alike
    words = np.bincount(of_word[~anywhere], minlength=G)
    tokens = np.bincount(of_word[~anywhere], weights=word_counts[~anywhere], minlength=G)
    total = max(1.0, float(word_counts.sum()))
    for b in range(G):
        own = shares[params.blocks.live(b)]
        mass = own.sum()
        effective = math.exp(entropy(own / mass)) if mass > 0 else 0.0
        out.append(BlockUse(b, int(words[b]), len(own), float(tokens[b] / total), effective))
    return out
