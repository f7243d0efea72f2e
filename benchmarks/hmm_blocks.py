"""One EM pass of hidden Markov models with blocks over WikiText-2's training text, and what questions to one cost.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/hmm_blocks.py [pairs] [low-rank] [questions] [--tokens N]

`questions` asks the default model on the validation text, after two passes, unless `--model` names a saved one;
its times are processor time. *first* is the first question of a fresh model, with the tables it makes and keeps.

Exchange clusters for blocks, a random start, eight chunks, two threads: the pass is what `HMM.fit` does, with M-steps.
*bytes* are those of the parameters, *peak* is the largest memory the process ever had, start included.
"""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np

from bench import best_of, parser, peak_bytes, print_header, print_row
from data import first, wikitext
from undertow import HMM, Corpus, load

ROWS: dict[str, list[tuple[int, int, int | None]]] = {
    "pairs": [(2**11, 128, None), (2**12, 128, None), (2**13, 128, None)],
    "low-rank": [(2**13, 128, 256), (2**14, 128, 256), (2**15, 128, 256)],
}


def sentences(part: str, n_tokens: int) -> list[list[str]]:
    return first(wikitext(part), n_tokens)


def corpus(n_tokens: int) -> Corpus:
    return Corpus.from_sentences(sentences("train", n_tokens))


def one_pass(text: Corpus, n_states: int, n_blocks: int, rank: int | None) -> None:
    cpu: list[float] = []
    events: list[Any] = []

    def watch(event: Any) -> None:
        events.append(event)
        cpu.append(time.process_time())

    model = HMM(
        n_states,
        parameterization="table",
        n_blocks=n_blocks,
        rank=rank,
        init="random",
        n_iter=2,
        random_state=0,
        n_jobs=2,
    )
    model.set_params(callbacks=[watch]).fit(text)  # the first pass compiles and warms up; the second is timed
    wall, spent = events[1].seconds - events[0].seconds, cpu[1] - cpu[0]
    size = sum(t.nbytes for t in model._tensors().values())
    took = f"{wall:.0f} s", f"{spent:.0f} s", f"{text.n_tokens / wall:,.0f}"
    memory = f"{size / 1e6:,.0f} MB", f"{peak_bytes() / 1e9:.1f} GB"
    print_row(f"{n_states:,}", n_blocks, rank or "pairs", *took, *memory)


def questions(n_tokens: int, saved: str | None) -> None:
    text = sentences("valid", n_tokens)
    model: Any = load(saved) if saved else HMM(n_iter=2, random_state=0, n_jobs=2).fit(corpus(n_tokens))
    five = [line for line in text if 10 < len(line) < 40][:5]
    n, n_drawn = sum(map(len, text)), 100_000

    def ask(model: Any, again: bool) -> dict[str, float]:
        spent: dict[str, float] = {}

        def clock(name: str, question: Any) -> None:
            spent[name] = best_of(question, 1, time.process_time)

        clock("transform of five sentences", lambda: model.transform(five))
        clock("transitions(5)", lambda: model.transitions(5))
        clock("sample(50)", lambda: model.sample(50))
        clock("next_words", lambda: model.next_words(five[0][:5]))
        clock("viterbi of five sentences", lambda: model.decode(five, "viterbi"))
        if again:
            clock("transform", lambda: model.transform(text))
            clock("decode", lambda: model.decode(text, "posterior"))
            clock("perplexity", lambda: model.perplexity(text))
            clock("viterbi", lambda: model.decode(text, "viterbi"))
            clock("sample", lambda: model.sample(n_drawn))
        return spent

    ask(model, again=True)  # compiles
    fresh, later = ask(pickle.loads(pickle.dumps(model)), again=False), ask(model, again=True)  # noqa: S301  # its own
    sizes = f"{model.params_.n_states:,} states, {model.params_.blocks.n_blocks} blocks"
    print_header(f"{sizes}, processor time", "first", "later")
    for name, seconds in fresh.items():
        print_row(name, f"{1e3 * seconds:,.1f} ms", f"{1e3 * later[name]:,.1f} ms")
    for name in ("transform", "decode", "perplexity", "viterbi"):
        print_row(f"{name} of {n:,} tokens", "", f"{n / later[name]:,.0f} tokens/s")
    print_row(f"sample of {n_drawn:,} tokens", "", f"{1e6 * later['sample'] / n_drawn:.1f} µs a token")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("rows", nargs="*", help=f"among {', '.join(ROWS)}, questions; the first two if none is given")
    options.add_argument("--tokens", type=int, default=10**9)
    options.add_argument("--model", help="a saved HMM to ask")
    given = options.parse_args()
    if "questions" in given.rows:
        questions(given.tokens, given.model)
        given.rows.remove("questions")
        if not given.rows:
            return
    text = corpus(given.tokens)
    print(f"{text.n_tokens:,} tokens, {len(text.vocabulary):,} words; {np.__version__=}")
    print_header("states", "blocks", "rank", "wall", "processor", "tokens/s", "bytes", "peak")
    for kind in given.rows or ROWS:
        for row in ROWS[kind]:
            one_pass(text, *row)


if __name__ == "__main__":
    main()
