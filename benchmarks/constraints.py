"""Generation under a two-keyword constraint from large hidden Markov models: before the first word, then per word.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/constraints.py [--words N] [--states 32768 4096]

The parameters are random, of the shape of a fit to WikiText-2's vocabulary, because a fit of 32,768 states takes hours
here and the work does not depend on the numbers. Processor time of one thread; *first* is all before the first word:
the prefix, the automaton, and the look-ahead. The rival is rejection: draw texts until one has both words; the number
of tries is 1/p, from `probability`, and the time of a try is that of `HMM.sample`.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/constraints.py --steering

steers a language model of GPT-2's smallest shape (124 million random weights, 50,257 tokens) with such an HMM:
processor time of a generated token with the logits processor and without, in turns, 8 texts of 8 tokens together.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bench import parser, print_header, print_row
from undertow import HMM, Vocabulary
from undertow.constraints import Contains
from undertow.engine.blas import one_blas_thread
from undertow.kernels.chain.block_operators import BlockLowRank
from undertow.kernels.chain.blocks import Blocks, weighted_emission
from undertow.models.hmm.params import BlockParams
from undertow.models.hmm.queries import Derived
from undertow.questions.continuations import context, draw
from undertow.questions.lookahead import check_length, prepare

RANK, PER_BLOCK, N_WORDS = 256, 32, 50_000


def random_rows(rng: np.random.Generator, shape: tuple[int, int], axis: int) -> Any:
    """Uneven distributions, as those of fitted models are."""
    out = rng.random(shape, dtype=np.float32) ** 8
    return out / out.sum(axis=axis, keepdims=True)


def random_model(n_states: int, seed: int = 0) -> HMM:
    rng, n_blocks = np.random.default_rng(seed), n_states // PER_BLOCK
    blocks = Blocks.of(rng.permutation(np.arange(N_WORDS) % n_blocks), np.full(n_blocks, PER_BLOCK))
    shape = n_states, RANK
    T = BlockLowRank(blocks.first, random_rows(rng, shape, 1), random_rows(rng, shape, 0))
    emission = rng.random(blocks.starts[-1], dtype=np.float32) ** 8
    total = weighted_emission(blocks, emission, np.ones(N_WORDS)).astype(np.float32)
    state = np.concatenate([np.arange(n_states)[blocks.live(b)] for b in blocks.word_block.tolist()])
    params = BlockParams(blocks, np.full(n_states, 1 / n_states, dtype=np.float32), T, emission / total[state])
    model = HMM(n_states, n_blocks=n_blocks, rank=RANK)
    model.params_, model.history_, model._derived = params, [0.0], Derived(params)
    model.vocabulary_ = Vocabulary(["<unk>", *(f"w{i}" for i in range(1, N_WORDS))], [1] * N_WORDS, boundary=False)
    return model


@one_blas_thread()
def measure(n_states: int, n_words: int) -> None:
    model = random_model(n_states)
    constraint, lengths = Contains("w17", "w4242"), check_length(n_words)
    for n in (1, 1, 8):  # the first run compiles
        begin = time.process_time()
        given = context(model.params_, model.vocabulary_, ["w3", "w9"], (), lengths)
        allowed = given.writable()
        plan = prepare(given.params, model.vocabulary_, constraint, lengths, given.following, allowed)
        first = time.process_time() - begin
        texts = draw(plan, given.start, n, 1.0, np.random.default_rng(0))
        spent = time.process_time() - begin - first
        assert all(constraint.holds(model.vocabulary_.decode(text)) for text in texts)
        if n == 1:
            alone = spent / n_words
    together = spent / n_words / n
    p = model.probability(constraint, prefix=["w3", "w9"], length=n_words)
    model.sample(n_words, random_state=0)
    begin = time.process_time()
    for seed in range(20):
        model.sample(n_words, random_state=seed, prefix=["w3", "w9"])
    a_try = (time.process_time() - begin) / 20
    print_row(
        *(f"{n_states:,}", f"{first:.2f} s", f"{1000 * alone:.1f} ms", f"{1000 * together:.1f} ms"),
        *(f"{p:.2g}", f"{a_try / p:,.0f} s"),
    )


@one_blas_thread()
def steer(n_states: int, n_tokens: int = 8, n_texts: int = 8) -> None:
    import torch
    import transformers

    from undertow.adapters.transformers import ConstraintLogitsProcessor

    tf: Any = transformers  # its types are not complete
    lm = tf.GPT2LMHeadModel(tf.GPT2Config(bos_token_id=0, eos_token_id=None, pad_token_id=None)).eval()
    model, prompts = random_model(n_states), torch.randint(0, 1000, (n_texts, 4))
    words = [*model.vocabulary_.words, *["<unk>"] * (lm.config.vocab_size - N_WORDS)]
    spent: dict[str, list[float]] = {"prepare": [], "steered": [], "plain": []}
    for _ in range(3):
        begin = time.process_time()
        processor = ConstraintLogitsProcessor(model, Contains("w17", "w4242"), length=n_tokens, words=words)
        spent["prepare"].append(time.process_time() - begin)
        for way, processors in (("steered", [processor]), ("plain", [])):
            begin = time.process_time()
            with torch.no_grad():
                mask = torch.ones_like(prompts)
                how = {"max_new_tokens": n_tokens, "do_sample": True, "top_k": 0, "logits_processor": processors}
                lm.generate(prompts, attention_mask=mask, **how)
            spent[way].append((time.process_time() - begin) / n_tokens / n_texts)
    prepare, steered, plain = (min(seconds) for seconds in spent.values())
    row = (
        f"{prepare:.2f} s",
        f"{1000 * plain:.1f} ms",
        f"{1000 * steered:.1f} ms",
        f"{100 * (steered / plain - 1):.0f} %",
    )
    print_row(f"{n_states:,}", *row)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--steering", action="store_true")
    options.add_argument("--words", type=int, default=32)
    options.add_argument("--states", type=int, nargs="+", default=[4096, 32768])
    given = options.parse_args()
    if given.steering:
        print_header("states", "prepare", "a token without", "a token with", "overhead")
        for n_states in given.states:
            steer(n_states)
        return
    print_header("states", "first", "a word", "a word, 8 texts together", "probability", "rejection, a text")
    for n_states in given.states:
        measure(n_states, given.words)


if __name__ == "__main__":
    main()
