"""The neural HMM on a part of WikiText-2: low rank against dense, learned against frozen features, against EM.

    OMP_NUM_THREADS=1 .venv/bin/python experiments/hmm_neural.py                      # about 15 minutes
    OMP_NUM_THREADS=1 .venv/bin/python experiments/hmm_neural.py --rows low,dense --epochs 2

All rows have the same number of states, no blocks, the start from clusters, and the same seed. Perplexities are of the
smaller vocabulary, whose unknown words are one word: compare rows, not papers. Needs the real data (UNDERTOW_DATA) and
the extra `torch`.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from hmm_starts import lines

from undertow import HMM, Corpus
from undertow.neural.hmm import Options, fit_neural

# row -> (low rank?, features, dropout)
ROWS = {
    "low": (True, "learned", 0.0),
    "dense": (False, "learned", 0.0),
    "orthogonal": (True, "orthogonal", 0.0),
    "fourier": (True, "fourier", 0.0),
    "low-dropout": (True, "learned", 0.5),
    "dense-dropout": (False, "learned", 0.5),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=256)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=300_000)
    parser.add_argument("--words", type=int, default=8000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rows", default=",".join([*ROWS, "em-low", "em-dense"]))
    args = parser.parse_args()
    text = Corpus.from_sentences(lines("train", args.tokens), vocab_size=args.words, boundary="<eos>")
    other = Corpus.from_sentences(lines("valid", 40_000), vocabulary=text.vocabulary)
    for row in args.rows.split(","):
        began = time.perf_counter()
        low, features, dropout = ROWS.get(row, (row == "em-low", "learned", 0.0))
        print(f"--- {row}", flush=True)
        hmm = HMM(args.states, n_blocks=1, rank=args.rank if low else None, n_iter=args.epochs, random_state=0)
        if row in ROWS:
            options = Options(features=features, dropout=dropout, batch_tokens=4096, learning_rate=3e-3)
            fit_neural(hmm.set_params(verbose=True), text, other, options=options)
        else:
            hmm.set_params(n_iter=10, n_chunks=4).fit(text, validation=other)
            print("held out", [round(float(np.exp(-x)), 1) for x in hmm.validation_history_])
        print(f"{row}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
