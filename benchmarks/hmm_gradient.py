"""A gradient step of an HMM tied through embeddings: undertow against the same step by PyTorch's automatic derivative.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/hmm_gradient.py --states 2048 8192 16384

A step: the tables of the kept states (15 % are dropped), the E-step of 8,192 tokens of WikiText-2 and the gradient, in
one thread. The E-step, twice that of half of the batch, is the same for both; PyTorch makes tables and gradient by
batched products over the pairs of blocks that the batch has, and is spared the emissions.
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
from undertow.kernels.chain.embeddings import ExpectedCounts, chain_tables, log_likelihood_gradient
from undertow.kernels.chain.sparse import block_statistics
from undertow.models.hmm import embedded


def best(work: Any, n: int = 3) -> tuple[float, Any]:
    found = [bench.timed(work) for _ in range(n)]
    return min(spent.cpu for spent, _ in found), found[-1][1]


def by_torch(weights: Any, layout: Any, counts: ExpectedCounts) -> tuple[Any, Any]:
    """The gradient of Σ n log T for the leaving and arriving vectors; the emissions, a small part, are left out.

    A batched product over the pairs of blocks of the text, its softmax, and the softmax over the blocks.
    """
    import torch

    torch.set_num_threads(1)
    first, sizes, scale = layout.blocks.first, layout.blocks.sizes, math.sqrt(weights.width)
    before, after = np.nonzero(layout.pair >= 0)
    G, most = len(sizes), int(sizes.max())
    place = np.zeros((G, most), dtype=np.int64)  # the state in each place of a block, a small one padded
    there = np.arange(most) < sizes[:, None]
    place[there] = np.arange(first[-1])
    n = np.zeros((len(before), most, most), dtype=np.float32)
    for p, (b, c) in enumerate(zip(before, after, strict=True)):
        low, high = layout.starts[layout.pair[b, c]], layout.starts[layout.pair[b, c] + 1]
        n[p, : sizes[b], : sizes[c]] = counts.pairs[low:high].reshape(sizes[b], sizes[c])
    leave, arrive = (torch.from_numpy(x.copy()).requires_grad_() for x in (weights.leave, weights.arrive))
    block, block_bias = torch.from_numpy(weights.block), torch.from_numpy(weights.block_bias)
    bias = torch.from_numpy(np.where(there, weights.arrive_bias[place], -1e4).astype(np.float32))
    number, first_of, second_of = torch.from_numpy(n), torch.from_numpy(before), torch.from_numpy(after)
    places, per_pair = torch.from_numpy(place), torch.from_numpy(n.sum(axis=2))

    def step() -> Any:
        leave.grad = arrive.grad = None
        left, right = leave[places][first_of], arrive[places][second_of]
        q = torch.log_softmax(scale * torch.bmm(left, right.transpose(1, 2)) + bias[second_of][:, None], dim=2)
        p = torch.log_softmax(scale * leave @ block.T + block_bias, dim=1)[places]
        value = (q * number).sum() + (p[first_of, :, second_of] * per_pair).sum()
        value.backward()  # type: ignore[no-untyped-call]
        return leave.grad, arrive.grad

    return best(step)


def measure(n_states: int, corpus: Corpus) -> str:
    """A row of the table."""
    rng = np.random.default_rng(0)
    model = HMM(n_states, n_blocks=256, parameterization="neural", batch_tokens=8192)
    settings = embedded.options_of(model, corpus)
    state = embedded.embedded_start(corpus, settings, rng, None, 1)
    # blocks of equal size, as the rival pads all of them to the largest
    state = embedded.split_states(state, np.full(settings.n_blocks, n_states // settings.n_blocks), rng)
    order = embedded.WordOrder.of(state.word_block, corpus.vocabulary.words)
    batch = embedded.text_batches(corpus, 8192, False, order)[0]
    kept = embedded.draw_states(state.first, settings.dropout, rng)
    layout = order.layout(np.diff(np.searchsorted(kept, state.first)), embedded.pairs_in(batch, order))
    part = state.weights.of_states(kept)
    made, tables = best(lambda: chain_tables(part, layout))
    initial, T, emission, *_ = tables
    text = batch[0]
    expected, stats = best(
        lambda: block_statistics(text.ids, text.bounds, layout.blocks, T, initial, emission, np.float32)
    )
    counts = ExpectedCounts(stats.pairs, stats.emission, stats.initial)

    def differentiate() -> Any:
        again = counts._replace(pairs=counts.pairs.copy())  # they are overwritten
        return log_likelihood_gradient(part, layout, tables, again)

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
    options.add_argument("--states", type=int, nargs="*", default=[2048, 8192, 16384])
    given = options.parse_args()
    corpus = Corpus.from_sentences(first(wikitext("train"), 200_000))
    print("| states | tables | E-step | gradient | PyTorch, tables and gradient | against it | largest difference |")
    print("|---|---|---|---|---|---|---|")
    for n_states in given.states:
        with one_blas_thread():
            print(measure(n_states, corpus), flush=True)


if __name__ == "__main__":
    main()
