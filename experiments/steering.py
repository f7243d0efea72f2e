"""Steering a language model: keywords and phrases in 32 words, by an HMM distilled from the model's own samples.

    .venv/bin/pip install -c constraints.txt '.[transformers]'
    OMP_NUM_THREADS=1 .venv/bin/python experiments/steering.py     # half an hour of one core; results/steering.md
    .venv/bin/python experiments/steering.py --parts steered kinds sizes    # the rest stays as it was measured
    .venv/bin/python experiments/steering.py --quick               # a tiny model: seconds

A GPT-2 of two layers is trained on WikiText-2 (no weights can be downloaded here), texts are drawn from it, and an HMM
is fitted to them. A constraint asks for two words that the true continuation of a held-out line has, drawn at random
beyond the 100 most frequent words, with the line's first four words as the prompt. Rows: the language model alone;
rejection, the first of 100 tries that has both words; steered by the HMM; and steered by an HMM of one state, which
knows how frequent the words are and nothing else. Perplexity is that of the texts under the language model, lower being
more fluent. The goals: every steered text has both words, and a token costs at most 15 % more.

Part `kinds` asks where an HMM of many states is worth more than one of one state: four kinds of constraints taken from
the true continuation, three seeds of lines and draws, everything else alike. Part `sizes` times the tokens of 1, 8 and
32 texts together, with an empty processor too: what Hugging Face itself takes for having one. Part `large` does the
same beside a language model of GPT-2's smallest shape with random weights, as time does not depend on them. Stages are
kept in --work as they finish. Needs the real data (UNDERTOW_DATA).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

from data import first, wikitext
from pages import RESULTS, read_page, words_from, write_page
from source_key import work_of
from undertow import HMM, Corpus, load
from undertow.adapters.transformers import ConstraintLogitsProcessor
from undertow.constraints import Constraint, Contains, EndsWith, Matches, Phrase

HERE = Path(__file__).parent
HF: Any = transformers  # its types are not complete
PROMPT, LENGTH = 4, 32
FREQUENT = 100  # words that no constraint asks for
BATCH, BLOCK = 16, 64  # of training, in sequences and tokens
PARTS = ("alone", "steered", "kinds", "sizes", "large")
SEEDS = (0, 1, 2)  # of the lines and draws of `kinds`
SIZES = (1, 8, 32)  # texts written together
SMALLEST = {"n_layer": 12, "n_head": 12, "n_embd": 768}  # published shape of GPT-2
LAST = 8  # words at the end that hold both keywords, in one of the kinds
NOTES = "## Notes"


def train(text: Corpus, given: argparse.Namespace) -> Any:
    torch.manual_seed(given.seed)
    size = {"n_layer": 2, "n_head": 4, "n_embd": given.width, "n_positions": 128}
    config = HF.GPT2Config(
        vocab_size=len(text.vocabulary), **size, bos_token_id=0, eos_token_id=None, pad_token_id=None
    )
    lm = HF.GPT2LMHeadModel(config)
    ids = torch.from_numpy(np.asarray(text.ids).astype(np.int64))
    n_steps = given.train_tokens // (BATCH * BLOCK)
    optimizer = torch.optim.AdamW(lm.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=n_steps)
    lm.train()
    for step in range(n_steps):
        starts = torch.randint(0, len(ids) - BLOCK, (BATCH,))
        batch = torch.stack([ids[s : s + BLOCK] for s in starts.tolist()])
        loss = lm(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} of {n_steps}: loss {float(loss.detach()):.3f}", flush=True)
    return lm.eval()


@torch.no_grad()
def written(lm: Any, prompts: Any, length: int, processor: Any = None) -> Any:
    """(n, length) sampled tokens after prompts (n, tokens)."""
    how: dict[str, Any] = {} if processor is None else {"logits_processor": [processor]}
    out = lm.generate(
        prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=length, do_sample=True, top_k=0, **how
    )
    return out[:, prompts.shape[1] :]


def sampler(lm: Any, text: Corpus, seed: int) -> Callable[[], Any]:
    """Texts of the language model, each begun with a word as frequent as in its training text."""
    counts = torch.from_numpy(text.vocabulary.counts.astype(np.float64))
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)

    def draw() -> Any:
        start = torch.multinomial(counts, 128, replacement=True, generator=generator)[:, None]
        return torch.cat([start, written(lm, start, BLOCK)], dim=1)

    return draw


@torch.no_grad()
def log_probabilities(lm: Any, prompts: Any, texts: Any) -> Any:
    """(n,) mean log-probability of the tokens of each text."""
    whole = torch.cat([prompts, texts], dim=1)
    logs = torch.log_softmax(lm(whole).logits[:, prompts.shape[1] - 1 : -1], dim=-1)
    return logs.gather(2, texts[:, :, None])[:, :, 0].mean(dim=1)


class Asked(NamedTuple):
    """A prompt, and what its true continuation has."""

    prompt: list[int]
    rest: list[int]  # the continuation
    words: tuple[int, int]  # two of its words, drawn at random


def keywords(text: Corpus, words: list[int]) -> list[int]:
    """Those of some words that may be asked for: not frequent ones, not rare ones, no signs."""
    counts = text.vocabulary.counts
    frequent = set(np.argsort(-counts)[:FREQUENT].tolist()) | {0}
    return sorted(w for w in set(words) - frequent if counts[w] >= 5 and text.vocabulary.words[w].isalpha())


def choose_constraints(text: Corpus, valid: Corpus, n: int, seed: int) -> list[Asked]:
    """n held-out lines with two words of each."""
    rng = np.random.default_rng(seed)
    found: list[Asked] = []
    lines = [line for line in valid.sentences() if len(line) >= PROMPT + LENGTH]
    for i in rng.permutation(len(lines)).tolist():
        line = lines[i][: PROMPT + LENGTH].astype(np.int64).tolist()
        good = keywords(text, line[PROMPT:])
        if len(good) >= 2:
            a, b = rng.choice(good, 2, replace=False).tolist()
            found.append(Asked(line[:PROMPT], line[PROMPT:], (a, b)))
    return found[:n]


def in_order(text: Corpus, asked: Asked) -> Constraint | None:
    """Two of its last words in their order, both again among the last words."""
    good = keywords(text, asked.rest[-LAST:])
    if len(good) < 2:
        return None
    first, second = sorted(good, key=asked.rest[-LAST:].index)[:2]
    return Matches(f".{{{LENGTH - LAST}}} .* {first} .* {second} .*")


def three_words(kind: Callable[[str], Constraint], at: int) -> Callable[[Corpus, Asked], Constraint | None]:
    """Three words of the continuation that begin at a place, none of them unknown."""

    def make(text: Corpus, asked: Asked) -> Constraint | None:
        words = asked.rest[at : at + 3]
        return None if 0 in words or not keywords(text, words) else kind(" ".join(map(str, words)))

    return make


KINDS: dict[str, Callable[[Corpus, Asked], Constraint | None]] = {
    "two words, anywhere": lambda text, asked: Contains(*map(str, asked.words)),
    "two words in their order, among the last eight": in_order,
    "a phrase of three words, anywhere": three_words(Phrase, LENGTH // 2),
    "the last three words": three_words(EndsWith, LENGTH - 3),
}


def has_both(texts: Any, words: tuple[int, int]) -> Any:
    """(n,) whether each text has both words."""
    return (texts == words[0]).any(dim=1) & (texts == words[1]).any(dim=1)


def plain_row(lm: Any, asked: list[Any], tries: int, seed: int) -> dict[str, dict[str, Any]]:
    """The language model alone, and the first try that has both words."""
    torch.manual_seed(seed)
    alone: dict[str, Any] = {"good": 0, "texts": 0, "logs": []}
    rejection: dict[str, Any] = {"good": 0, "texts": 0, "logs": []}
    for prompt, _, words in asked:
        prompts = torch.tensor([prompt] * tries)
        texts = written(lm, prompts, LENGTH)
        good = has_both(texts, words)
        alone["good"] += int(good.sum())
        alone["texts"] += tries
        alone["logs"].append(float(log_probabilities(lm, prompts[:1], texts[:1])))
        rejection["texts"] += 1
        if good.any():
            rejection["good"] += 1
            at = int(good.nonzero()[0])
            rejection["logs"].append(float(log_probabilities(lm, prompts[:1], texts[at : at + 1])))
    return {"the language model alone": alone, f"rejection, {tries} tries": rejection}


def steered_row(lm: Any, hmm: HMM, asked: list[Asked], n: int, seed: int) -> dict[str, Any]:
    """n texts for each constraint."""
    torch.manual_seed(seed)
    out: dict[str, Any] = {"good": 0, "texts": 0, "logs": []}
    for prompt, _, words in asked:
        prompts = torch.tensor([prompt] * n)
        processor = ConstraintLogitsProcessor(hmm, Contains(str(words[0]), str(words[1])), length=LENGTH)
        texts = written(lm, prompts, LENGTH, processor)
        out["good"] += int(has_both(texts, words).sum())
        out["texts"] += n
        out["logs"] += log_probabilities(lm, prompts, texts).tolist()
    return out


class Nothing(HF.LogitsProcessor):  # type: ignore[misc]
    """A processor that leaves the scores as they are."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return scores


def in_turns(lm: Any, hmm: HMM, constraint: Constraint, prompts: Any) -> dict[str, float]:
    """Processor time of preparing, and of writing with steering, with an empty processor, and without any."""
    clock = [time.process_time()]
    processor = ConstraintLogitsProcessor(hmm, constraint, length=LENGTH)
    clock.append(time.process_time())
    for now in (processor, Nothing(), None):
        written(lm, prompts, LENGTH, now)
        clock.append(time.process_time())
    return dict(zip(("prepare", "steered", "empty", "plain"), np.diff(clock).tolist(), strict=True))


def kinds_of_constraints(
    lm: Any, hmms: dict[str, HMM], text: Corpus, valid: Corpus, n: int, n_texts: int
) -> dict[str, dict[str, list[float]]]:
    """By kind and HMM, for each seed: the perplexity of the texts under the language model."""
    out: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in hmms} for kind in KINDS}
    for kind, make in KINDS.items():
        for seed in SEEDS:
            asked = choose_constraints(text, valid, 10**6, seed)
            pairs = [(a.prompt, c) for a in asked if (c := make(text, a)) is not None][:n]
            for name, hmm in hmms.items():
                torch.manual_seed(seed)
                logs: list[float] = []
                for prompt, constraint in pairs:
                    prompts = torch.tensor([prompt] * n_texts)
                    processor = ConstraintLogitsProcessor(hmm, constraint, length=LENGTH)
                    texts = written(lm, prompts, LENGTH, processor)
                    assert all(constraint.holds(map(str, row)) for row in texts.tolist()), constraint
                    logs += log_probabilities(lm, prompts, texts).tolist()
                out[kind][name].append(float(np.exp(-np.mean(logs))))
        print(kind, out[kind], flush=True)
    return out


def sizes_of_batches(
    lm: Any, hmms: dict[str, HMM], asked: list[Asked], repeats: int, sizes: tuple[int, ...] = SIZES
) -> dict[str, dict[str, Any]]:
    """By HMM and number of texts together: milliseconds a token without steering, and what steering adds."""
    out: dict[str, dict[str, Any]] = {name: {} for name in hmms}
    for name, hmm in hmms.items():
        in_turns(lm, hmm, Contains(*map(str, asked[0].words)), torch.tensor([asked[0].prompt]))  # compiled, in memory
        for n in sizes:
            spent = [
                in_turns(lm, hmm, Contains(str(words[0]), str(words[1])), torch.tensor([prompt] * n))
                for prompt, _, words in asked[:repeats]
            ]
            ms = {key: 1000 * np.array([now[key] for now in spent]) for key in spent[0]}
            added, empty = ms["steered"] - ms["plain"], ms["empty"] - ms["plain"]
            out[name][str(n)] = {  # medians: other processes disturb some of the turns
                "plain": float(np.median(ms["plain"])) / (n * LENGTH),
                "added": float(np.median(added)) / (n * LENGTH),
                "overhead": float(np.median(added / ms["plain"])),
                "empty": float(np.median(empty / ms["plain"])),
                "prepare": float(np.median(ms["prepare"])),
            }
            print(name, n, out[name][str(n)], flush=True)
    return out


def large_lm(vocab_size: int) -> Any:
    """A language model of GPT-2's smallest shape over as many tokens, with random weights."""
    ends = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": None}
    return HF.GPT2LMHeadModel(HF.GPT2Config(vocab_size=vocab_size, **SMALLEST, n_positions=128, **ends)).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--words", type=int, default=4000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--train-tokens", type=int, default=600_000, help="tokens read in training, again and again")
    parser.add_argument("--distill-tokens", type=int, default=400_000)
    parser.add_argument("--states", type=int, default=1024)
    parser.add_argument("--rank", type=int, default=128)
    parser.add_argument("--constraints", type=int, default=500)
    parser.add_argument("--texts", type=int, default=4, help="steered texts for each constraint")
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=HERE / "work")
    parser.add_argument("--kinds", type=int, default=50, help="constraints of each kind and seed")
    parser.add_argument("--repeats", type=int, default=60, help="constraints that are timed for each number of texts")
    parser.add_argument("--large-repeats", type=int, default=8, help="the same beside the large language model")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    given = parser.parse_args()
    HF.logging.set_verbosity_error()
    if given.quick:
        given.words, given.width, given.train_tokens, given.distill_tokens = 400, 32, 60_000, 20_000
        given.states, given.rank, given.constraints, given.texts, given.tries = 64, 16, 20, 4, 5
        given.kinds, given.repeats, given.large_repeats = 3, 1, 1
    work = work_of(given.work, __file__)
    work = work / ("quick" if given.quick else f"{given.words}-{given.width}-{given.train_tokens}-{given.seed}")
    work.mkdir(parents=True, exist_ok=True)
    text = Corpus.from_sentences(first(wikitext("train"), given.train_tokens), vocab_size=given.words)
    valid = Corpus.from_sentences(wikitext("valid"), vocabulary=text.vocabulary)
    lm = kept_lm(work, text, given)
    perplexity = valid_perplexity(lm, valid)
    print(f"the language model's perplexity on valid: {perplexity:.1f}", flush=True)
    asked = choose_constraints(text, valid, given.constraints, given.seed)
    kept = work / "found.json"
    found: dict[str, Any] = {"rows": {}}
    if kept.exists():
        found = json.loads(kept.read_text())
    elif not given.quick and (RESULTS / "steering.json").exists():
        found = read_page("steering").data
    samples = kept_samples(work, lm, text, given)
    hmms = {}
    for states in (1, given.states):
        name = f"HMM of {states:,} state{'s' if states > 1 else ''}"
        hmms[name] = kept_hmm(work / f"{states}.hmm", samples, len(text.vocabulary), states, given)
    if "sizes" in given.parts:
        found["sizes"] = sizes_of_batches(lm, hmms, asked, given.repeats)
        kept.write_text(json.dumps(found))
    if "large" in given.parts:
        many = {name: hmm for name, hmm in hmms.items() if hmm.n_states > 1}
        large = large_lm(len(text.vocabulary))
        found["large"] = sizes_of_batches(large, many, asked, given.large_repeats, SIZES[:2])
        kept.write_text(json.dumps(found))
    if "kinds" in given.parts:
        found["kinds"] = kinds_of_constraints(lm, hmms, text, valid, given.kinds, given.texts)
        kept.write_text(json.dumps(found))
    if "steered" in given.parts:
        for name, hmm in hmms.items():
            found["rows"][name] = with_perplexity(steered_row(lm, hmm, asked, given.texts, given.seed))
            kept.write_text(json.dumps(found))
            print(name, summary(found["rows"][name]), flush=True)
    if "alone" in given.parts:
        alone = plain_row(lm, asked, given.tries, given.seed)
        found["rows"] |= {name: with_perplexity(row) for name, row in alone.items()}
        kept.write_text(json.dumps(found))
    page = table(found, perplexity, len(asked), given) + words_from("steering", NOTES)
    print(page)
    if given.quick:
        steered = [row for name, row in found["rows"].items() if name.startswith("HMM")]
        bad = [row for row in steered if row["good"] < row["texts"]]
        sys.exit("a steered text lacks a word" if bad else None)
    write_page("steering", page, __file__, vars(given), data=found)


def with_perplexity(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the perplexity of its texts instead of their log-probabilities."""
    logs = row.pop("logs")
    return {**row, "perplexity": float(np.exp(-np.mean(logs)))} if logs else row


def kept_lm(work: Path, text: Corpus, given: argparse.Namespace) -> Any:
    place = work / "lm"
    if place.exists():
        return HF.GPT2LMHeadModel.from_pretrained(place).eval()
    begin = time.process_time()
    lm = train(text, given)
    print(f"trained in {time.process_time() - begin:.0f} s of processor time", flush=True)
    lm.save_pretrained(place)
    return lm


def kept_samples(work: Path, lm: Any, text: Corpus, given: argparse.Namespace) -> Any:
    """(n, tokens) ids drawn from the language model, the same for all HMMs."""
    place = work / "samples.npy"
    if not place.exists():
        draw, parts, n = sampler(lm, text, given.seed), [], 0
        while n < given.distill_tokens:
            parts.append(draw().numpy())
            n += parts[-1].size
        np.save(place, np.concatenate(parts))
    return np.load(place)


def kept_hmm(place: Path, samples: Any, vocab_size: int, states: int, given: argparse.Namespace) -> HMM:
    if place.exists():
        found: Any = load(place)
        return found  # type: ignore[no-any-return]
    rank = min(given.rank, states) if states > 1 else None
    hmm = HMM(states, rank=rank, n_iter=8, random_state=given.seed)
    begin = time.process_time()
    hmm.distill(samples, n_tokens=None, vocab_size=vocab_size)
    print(f"{states} states: fitted in {time.process_time() - begin:.0f} s, {hmm.history_}", flush=True)
    hmm.save(place)
    return hmm


def valid_perplexity(lm: Any, valid: Corpus) -> float:
    ids = np.asarray(valid.ids[:50_000]).astype(np.int64)
    blocks: Any = torch.from_numpy(ids[: len(ids) // BLOCK * BLOCK].reshape(-1, BLOCK))
    logs = [log_probabilities(lm, some[:, :1], some[:, 1:]) for some in blocks.split(32)]
    return float(torch.exp(-torch.cat(logs).mean()))


def summary(row: dict[str, Any]) -> dict[str, float]:
    out = {"share": row["good"] / row["texts"]}
    if "perplexity" in row:
        out["perplexity"] = row["perplexity"]
    return out


def table(found: dict[str, Any], perplexity: float, n: int, given: argparse.Namespace) -> str:
    rows = found["rows"]
    out = [
        "# Steering a language model by an HMM distilled from it",
        "",
        verdict(found, given),
        "",
        f"A GPT-2 of two layers and width {given.width} over {given.words:,} words, trained on "
        f"{given.train_tokens:,} tokens of WikiText-2 (perplexity of valid {perplexity:.1f}); HMMs distilled from "
        f"{given.distill_tokens:,} of its tokens. {n} constraints, each of two words that the true continuation of a "
        f"held-out line has; {LENGTH} words after its first {PROMPT}. *Perplexity* is that of the texts under the "
        "language model.",
        "",
        "| way | texts | have both words | perplexity |",
        "|---|---|---|---|",
    ]
    for name in sorted(rows, key=lambda name: name.startswith("HMM")):
        s = summary(rows[name])
        fluency = f"{s['perplexity']:.1f}" if "perplexity" in s else "–"
        out.append(f"| {shown(name)} | {rows[name]['texts']:,} | {100 * s['share']:.1f} % | {fluency} |")
    out += [
        "",
        "Milliseconds of processor time a token, the language model alone and what the processor adds, in turns in one "
        f"run, by the number of texts written together (medians of {given.repeats} constraints, {given.large_repeats} "
        "beside the large language model, which has GPT-2's smallest published shape, 12 layers of width 768, over the "
        "same words and random weights). *Empty* is the overhead of a processor that does nothing, and is part of the "
        "overhead; *prepare* is the look-ahead, once for each constraint.",
        "",
        "| language model | way | texts together | without | added | overhead | empty | prepare |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for beside, of in (("two layers", found["sizes"]), ("GPT-2's shape", found["large"])):
        for name, sizes in of.items():
            for size, ms in sizes.items():
                cells = [f"{ms['plain']:.2f}", f"{ms['added']:.2f}", f"{100 * ms['overhead']:.0f} %"]
                cells += [f"{100 * ms['empty']:.0f} %", f"{ms['prepare']:.0f}"]
                out.append(f"| {beside} | {shown(name)} | {size} | {' | '.join(cells)} |")
    out += [
        "",
        "Perplexity of the steered texts under the language model by the kind of constraint, mean of three seeds of "
        f"lines and draws ± their standard deviation ({given.kinds} constraints with {given.texts} texts each a seed); "
        "all of them satisfy their constraint. *Gain* is the ratio of the two in each seed.",
        "",
        "| constraint | " + " | ".join(shown(name) for name in next(iter(found["kinds"].values()))) + " | gain |",
        "|---|---|---|---|",
    ]
    for kind, of in found["kinds"].items():
        cells = [f"{np.mean(v):.1f} ± {np.std(v):.1f}" for v in of.values()]
        one, many = of.values()
        gains = np.array(one) / np.array(many)
        out.append(f"| {kind} | {' | '.join(cells)} | {gains.mean():.3f} ± {gains.std():.3f} |")
    return "\n".join(out) + "\n\n"


def shown(name: str) -> str:
    return f"steered by an {name}" if name.startswith("HMM") else name


def verdict(found: dict[str, Any], given: argparse.Namespace) -> str:
    """The goals in one sentence."""
    name = f"HMM of {given.states:,} state{'s' if given.states > 1 else ''}"
    said = []
    for part, beside in (("large", "a language model of GPT-2's smallest shape"), ("sizes", "the one of two layers")):
        sizes = found[part][name]
        shares = [ms["overhead"] for ms in sizes.values()]
        met = "met" if max(shares) < 0.15 else "met in part" if min(shares) < 0.15 else "**missed**"
        overhead = ", ".join(f"{100 * ms['overhead']:.0f} % with {size}" for size, ms in sizes.items())
        plain = [ms["plain"] for ms in sizes.values()]
        said.append(
            f"{met} beside {beside}, of which a token costs {min(plain):.1f} to {max(plain):.1f} ms: {overhead} texts "
            "together"
        )
    share_good = summary(found["rows"][name])["share"]
    one = ", ".join(f"{100 * ms['overhead']:.0f} %" for ms in found["sizes"]["HMM of 1 state"].values())
    return (
        f"The goal of at most 15 % more time a token is {said[0]}. It is {said[1]}. With an HMM of one state these are "
        f"{one}. {100 * share_good:.0f} % of the steered texts have both words."
    )


if __name__ == "__main__":
    main()
