"""Questions on real text: words given both sides on WikiText-2 valid, and tags from few labels on EWT dev.

    OMP_NUM_THREADS=1 .venv/bin/python experiments/queries.py                  # fits HMM() first, ten minutes, once
    OMP_NUM_THREADS=1 .venv/bin/python experiments/queries.py --model hmm6144  # one that is fitted already
    .venv/bin/python experiments/queries.py --parts tags             # the other part stays as it was measured
    .venv/bin/python experiments/queries.py --quick

Calibration is measured on words masked one at a time, drawn at random: the share of masks whose most probable word is
right against its probability in 15 bins, and the same of all probabilities of all words (10 bins, even in the
logarithm), as a mean over masks of |expected − observed| numbers of words; chance alone makes both about √(bins /
masks). The settings of the tagging HMM (60 states,
2 passes, weight 0.03 for sentences without tags, smoothing 0.3) were chosen on the last 1,500 sentences of EWT train
with 300 labelled ones; before that one trial of three settings had printed its accuracy on dev.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from data import Tagged, ewt, wikitext
from pages import RESULTS, read_page, words_from, write_page
from source_key import work_of
from undertow import HMM, Corpus, CRFTagger, load

HERE = Path(__file__).parent
LABELLED = (100, 300, 1000)
SEEDS = (0, 1, 2)
NOTES = "## Notes"


def masked(model: HMM, valid: Corpus, n_masks: int) -> dict[str, float]:
    """Perplexities left to right and given both sides, speed, and calibration on some masks."""
    list(model.masked_log_probabilities([["the"] * 300]))  # compiled
    start = time.process_time()
    both = np.concatenate(model.masked_log_probabilities(valid))
    seconds = time.process_time() - start
    left = np.concatenate(model.log_probabilities(valid))
    hits, tops, bins, expected, observed = [], [], np.linspace(0, 1, 16), np.zeros(10), np.zeros(10)
    edges = np.geomspace(1e-6, 1, 11)
    for p, word in drawn_masks(model, valid, n_masks):
        tops.append(float(p.max()))
        hits.append(int(p.argmax()) == word)
        which = np.digitize(p, edges[1:-1])
        expected += np.bincount(which, weights=p, minlength=10)
        observed[which[word]] += 1
    top, hit = np.array(tops), np.array(hits, dtype=float)
    of_bin = np.digitize(top, bins[1:-1])
    errors = [abs((top - hit)[of_bin == b].sum()) for b in range(15)]
    return {
        "left to right": float(np.exp(-left.mean())),
        "both sides": float(np.exp(-both.mean())),
        "masks a CPU second": len(both) / seconds,
        "ECE of the top word": float(sum(errors) / len(top)),
        "ECE of all words": float(np.abs(expected - observed).sum() / len(top)),
        "top word right": float(hit.mean()),
        "masks": len(top),
    }


def drawn_masks(model: HMM, valid: Corpus, n: int) -> Any:
    """(distribution given both sides, the word that was there) of n tokens, drawn without replacement."""
    params, ids, bounds = model.params_, np.asarray(valid.ids), np.asarray(valid.offsets)
    before, after = params.filtered(ids, bounds), params.messages(ids, bounds)
    starts, ends = set(bounds[:-1].tolist()), set((bounds[1:] - 1).tolist())
    for t in np.random.default_rng(0).choice(valid.n_tokens, n, replace=False).tolist():
        state = np.asarray(params.initial, dtype=np.float64)
        if t not in starts:
            state = params.predicted(int(ids[t - 1]), before.values[before.at[t - 1] : before.at[t]]).astype(np.float64)
        if t not in ends:
            state = state * params.pulled(int(ids[t + 1]), after.values[after.at[t + 1] : after.at[t + 2]])
        p = params.word_probabilities(state)
        yield p / p.sum(), int(ids[t])


def accuracy(tagger: Any, dev: list[Tagged]) -> float:
    found = tagger.predict([s.words for s in dev])
    return float(
        np.mean([a == b for s, tags in zip(dev, found, strict=True) for a, b in zip(tags, s.tags, strict=True)])
    )


def tagging(sizes: tuple[int, ...], seeds: tuple[int, ...], rest: int) -> dict[str, dict[str, list[float]]]:
    """Accuracy on dev by the number of labelled sentences and the model."""
    train, dev, out = ewt("train"), ewt("dev"), {}
    for n in sizes:
        words = [s.words for s in train[:rest]]
        all_tags = [s.tags if i < n else None for i, s in enumerate(train[:rest])]
        both = Corpus.from_sentences(words, min_count=3, unknown_classes=True)
        alone = Corpus.from_sentences(words[:n], min_count=2, unknown_classes=True)
        settings: dict[str, Any] = {"n_states": 60, "n_iter": 2, "smoothing": 0.3}
        out[str(n)] = {
            "CRF on spelling": [accuracy(CRFTagger(n_iter=100).fit(words[:n], [s.tags for s in train[:n]]), dev)],
            "HMM, labelled alone": [
                accuracy(HMM(**settings, random_state=seed).fit(alone, all_tags[:n]), dev) for seed in seeds
            ],
            "HMM, labelled and the rest": [
                accuracy(HMM(**settings, random_state=seed).fit(both, all_tags), dev) for seed in seeds
            ],
        }
        print(n, out[str(n)], flush=True)
    return out


def table(asked: dict[str, float], tags: dict[str, dict[str, list[float]]]) -> str:
    names = list(next(iter(tags.values())))
    rows = [
        "# Questions: words given both sides, tags from few labels",
        "",
        "By `experiments/queries.py`. WikiText-2 valid, `HMM()`: 6,144 states in 192 blocks, tied through embeddings; "
        "each token masked once.",
        "",
        "| quantity | value |",
        "|---|---|",
        f"| perplexity, left to right | {asked['left to right']:.1f} |",
        f"| perplexity, given both sides | {asked['both sides']:.1f} |",
        f"| ratio | {asked['both sides'] / asked['left to right']:.3f} |",
        f"| masks a second of processor time, one core | {asked['masks a CPU second']:,.0f} |",
        f"| top word right, of {asked['masks']:,.0f} masks | {asked['top word right']:.1%} |",
        f"| expected calibration error, top word | {asked['ECE of the top word']:.2%} |",
        f"| the same, all probabilities of all words | {asked['ECE of all words']:.2%} |",
        "",
        "Penn tags of EWT dev: share of right tags, mean of the seeds. The CRF reads spelling and neighbors and sees "
        "the labelled sentences alone; *the rest* are the other sentences of train without their tags.",
        "",
        "| labelled sentences | " + " | ".join(names) + " |",
        "|---" * (1 + len(names)) + "|",
    ]
    for n, found in tags.items():
        shown = [f"{np.mean(v):.2%}" + (f" ± {np.std(v):.2%}" if len(v) > 1 else "") for v in found.values()]
        rows.append(f"| {n} | " + " | ".join(shown) + " |")
    return "\n".join(rows) + "\n\n"


def kept_model(work: Path) -> Any:
    """HMM() of WikiText-2 train; an interrupted fit goes on."""
    place = work_of(work, __file__) / "wikitext.hmm"
    if not place.exists():
        begin = time.process_time()
        HMM(random_state=0).fit(wikitext("train"), checkpoint=place.with_suffix(".fit")).save(place)
        print(f"fitted in {time.process_time() - begin:.0f} s of processor time", flush=True)
    return load(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="an HMM of WikiText-2 train that is fitted already")
    parser.add_argument("--work", type=Path, default=HERE / "work")
    parser.add_argument("--masks", type=int, default=120_000)
    parser.add_argument("--parts", nargs="+", choices=["masked", "tags"], default=["masked", "tags"])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if not options.quick and (RESULTS / "queries.json").exists():
        found = read_page("queries").data
    if "masked" in options.parts:
        model: Any
        valid = wikitext("valid")
        if options.quick:
            model = HMM(256, n_blocks=16, n_iter=2, random_state=0).fit(wikitext("train")[:2000])
            valid, options.masks = valid[:200], 50
        else:
            model = load(options.model) if options.model else kept_model(options.work)
        found["masked"] = masked(model, Corpus.from_sentences(valid, vocabulary=model.vocabulary_), options.masks)
        print(found["masked"], flush=True)
    if "tags" in options.parts:
        found["tags"] = tagging((100,), SEEDS[:1], 1000) if options.quick else tagging(LABELLED, SEEDS, 10**6)
    page = table(found["masked"], found["tags"]) + words_from("queries", NOTES)
    print(page)
    if options.quick:
        asked, tags = found["masked"], found["tags"]["100"]
        alone, both = (np.mean(tags[f"HMM, {name}"]) for name in ("labelled alone", "labelled and the rest"))
        if not asked["both sides"] < asked["left to right"] or not both > alone:
            sys.exit(
                f"both sides have {asked['both sides']:.1f}; {both:.1%} tags right with the rest, {alone:.1%} alone"
            )
    else:
        write_page("queries", page, __file__, vars(options), data=found)


if __name__ == "__main__":
    main()
