"""A gradient step of an HMM tied through embeddings: undertow against the same step by PyTorch's automatic derivative.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/hmm_gradient.py --states 2048 4096 8192

A step: the tables of the kept states (15 % are dropped), the E-step of 8,192 tokens of WikiText-2 and the gradient, in
one thread. The E-step, twice that of half of the batch, is the same for both; PyTorch makes tables and gradient by a
full softmax over the kept states, and is spared the emissions.
Processor seconds of the best of three; the gradients are compared. Needs the real data, and PyTorch for the rival.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import bench
from data import first, wikitext
from undertow import HMM, Corpus
from undertow.engine.blas import one_blas_thread
from undertow.kernels.chain.embeddings import ChainLayout, ExpectedCounts, chain_tables, log_likelihood_gradient
from undertow.kernels.chain.sparse import block_statistics
from undertow.models.hmm import embedded


def best(work: Any, n: int = 3) -> tuple[float, Any]:
    found = [bench.timed(work) for _ in range(n)]
    return min(spent.cpu for spent, _ in found), found[-1][1]


def by_torch(weights: Any, layout: Any, counts: ExpectedCounts) -> tuple[Any, Any]:
    """The gradient of Σ n log T for the leaving and arriving vectors; the emissions, a small part, are left out."""
    import torch

    torch.set_num_threads(1)
    low = layout.blocks.first
    dense = np.zeros((weights.n_states, weights.n_states), dtype=np.float32)
    for b, c in zip(*np.nonzero(layout.pair >= 0), strict=True):
        p = layout.pair[b, c]
        part = dense[low[b] : low[b + 1], low[c] : low[c + 1]]
        part[:] = counts.pairs[layout.starts[p] : layout.starts[p + 1]].reshape(part.shape)
    n = torch.from_numpy(dense)
    leave, arrive = (torch.from_numpy(x.copy()).requires_grad_() for x in (weights.leave, weights.arrive))
    bias = torch.from_numpy(weights.arrive_bias.copy())
    scale = math.sqrt(weights.width)

    def step() -> Any:
        leave.grad = arrive.grad = None
        value = (torch.log_softmax(scale * leave @ arrive.T + bias, dim=1) * n).sum()
        value.backward()  # type: ignore[no-untyped-call]
        return leave.grad, arrive.grad

    return best(step)


def measure(n_states: int, corpus: Corpus) -> str:
    """A row of the table."""
    rng = np.random.default_rng(0)
    model = HMM(n_states, n_blocks=128, parameterization="neural", batch_tokens=8192)
    settings = embedded.options_of(model, corpus)
    state = embedded.embedded_start(corpus, settings, rng, None, 1)
    state = embedded.split_states(state, embedded.final_sizes(state.first_sizes, n_states), rng)
    order = embedded.WordOrder.of(state.word_block)
    batch = embedded.text_batches(corpus, 8192, False, order)[0]
    kept = embedded.draw_states(state.first, settings.dropout, rng)
    layout = ChainLayout.of(order.per_block, np.diff(np.searchsorted(kept, state.first)), batch.seen)
    part, rows = state.weights.of_states(kept), np.empty((len(kept), len(kept)), dtype=np.float32)
    made, tables = best(lambda: chain_tables(part, layout, 1, rows))
    initial, T, emission = tables
    text = batch.parts[0]
    expected, stats = best(
        lambda: block_statistics(text.ids, text.bounds, layout.blocks, T, initial, emission, np.float32)
    )
    counts = ExpectedCounts(stats.pairs, stats.emission, stats.initial)
    whole = rows.copy()

    def differentiate() -> Any:
        rows[:] = whole  # it is overwritten
        return log_likelihood_gradient(part, layout, tables, rows, counts)

    derived, gradient = best(differentiate)
    rival, theirs = by_torch(part, layout, counts)
    pairs = zip((gradient.leave, gradient.arrive), theirs, strict=True)
    worst = max(float(np.abs(x - y.numpy()).max() / np.abs(x).max()) for x, y in pairs)
    return (
        f"| {n_states:,} | {made:.3f} | {2 * expected:.3f} | {derived:.3f} | {rival:.3f} | "
        f"{rival / (made + derived):.1f}× | {worst:.0e} |"
    )


def main() -> None:
    options = bench.parser(__doc__)
    options.add_argument("--states", type=int, nargs="*", default=[2048, 4096, 8192])
    given = options.parse_args()
    corpus = Corpus.from_sentences(first(wikitext("train"), 200_000))
    print("| states | tables | E-step | gradient | PyTorch, tables and gradient | against it | largest difference |")
    print("|---|---|---|---|---|---|---|")
    for n_states in given.states:
        with one_blas_thread():
            print(measure(n_states, corpus), flush=True)


if __name__ == "__main__":
    main()
