"""Learning vectors: PMIVectors and ContextVectors against gensim's Word2Vec, and the LDS, on one text.

    .venv/bin/pip install -c constraints.txt '.[rivals]'
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/pmi.py              # 8 M tokens; about nine minutes of one core

From the encoded corpus to the vectors, counting included, one thread each. The text is that of
experiments/tagging_default.py. Needs the real data (UNDERTOW_DATA, default ../shared/data).
"""

from __future__ import annotations

from bench import Clock, Spent, parser, print_header, print_row, timed, work_option
from lds import gensim_seconds
from tagging_default import text_of
from undertow import LDS, ContextVectors, PMIVectors


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--millions", type=float, default=8.0, help="tokens of the text, in millions")
    work_option(arguments)
    options = arguments.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    text = text_of(options.millions)
    print(f"{text.n_tokens:,} tokens, V = {len(text.vocabulary):,}", flush=True)
    PMIVectors(2, random_state=0).fit([["a", "b", "a"], ["b", "a"]])  # compiled
    clock = Clock()
    rows: dict[str, Spent] = {}
    rows["PMIVectors(200)"] = timed(lambda: PMIVectors(200, random_state=0).fit(text))[0]
    rows['PMIVectors(200, contexts="near")'] = timed(
        lambda: PMIVectors(200, contexts="near", random_state=0).fit(text)
    )[0]
    rows["LDS(200)"] = timed(lambda: LDS(200, random_state=0).fit(text))[0]
    rows["ContextVectors(128)"] = timed(lambda: ContextVectors(128, random_state=0).fit(text))[0]
    rows["gensim Word2Vec, CBOW"] = gensim_seconds(text, 200, options.work, workers=1)
    rival = rows["gensim Word2Vec, CBOW"]
    print_header("way", "seconds", "processor seconds", "of gensim's speed, processor time")
    for name, spent in rows.items():
        print_row(name, f"{spent.wall:.1f}", f"{spent.cpu:.1f}", f"{rival.cpu / spent.cpu:.1f}×")
    print(f"{clock.read().wall:.0f} s in all")


if __name__ == "__main__":
    main()
