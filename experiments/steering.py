"""Steering a language model: two keywords in 32 words, by an HMM distilled from the model's own samples.

    .venv/bin/pip install -c constraints.txt '.[transformers]'
    OMP_NUM_THREADS=1 .venv/bin/python experiments/steering.py     # half an hour of one core; results/steering.md
    .venv/bin/python experiments/steering.py --quick               # a tiny model: seconds

A GPT-2 of two layers is trained on WikiText-2 (no weights can be downloaded here), texts are drawn from it, and an HMM
is fitted to them. A constraint asks for two words that the true continuation of a held-out line has, drawn at random
beyond the 100 most frequent words, with the line's first four words as the prompt. Rows: the language model alone;
rejection, the first of 100 tries that has both words; steered by the HMM; and steered by an HMM of one state, which
knows how frequent the words are and nothing else. Perplexity is that of the texts under the language model, lower being
more fluent. The goals: every steered text has both words, and a token costs at most 15 % more. Stages are kept in
--work as they finish. Needs the real data (UNDERTOW_DATA).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from data import first, wikitext
from pages import write_page
from source_key import work_of
from undertow import HMM, Corpus, load
from undertow.adapters.transformers import ConstraintLogitsProcessor
from undertow.constraints import Contains

HERE = Path(__file__).parent
HF: Any = transformers  # its types are not complete
PROMPT, LENGTH = 4, 32
FREQUENT = 100  # words that no constraint asks for
BATCH, BLOCK = 16, 64  # of training, in sequences and tokens


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


def choose_constraints(text: Corpus, valid: Corpus, n: int, seed: int) -> list[tuple[list[int], tuple[int, int]]]:
    """(prompt, two word ids) for n held-out lines."""
    rng = np.random.default_rng(seed)
    counts = text.vocabulary.counts
    frequent = set(np.argsort(-counts)[:FREQUENT].tolist()) | {0}
    found = []
    lines = [line for line in valid.sentences() if len(line) >= PROMPT + LENGTH]
    for i in rng.permutation(len(lines)).tolist():
        rest = {int(w) for w in lines[i][PROMPT : PROMPT + LENGTH]}
        good = sorted(w for w in rest - frequent if counts[w] >= 5 and text.vocabulary.words[w].isalpha())
        if len(good) >= 2:
            a, b = rng.choice(good, 2, replace=False).tolist()
            found.append((lines[i][:PROMPT].astype(np.int64).tolist(), (a, b)))
    return found[:n]


def has_both(texts: Any, words: tuple[int, int]) -> Any:
    """(n,) whether each text has both words."""
    return (texts == words[0]).any(dim=1) & (texts == words[1]).any(dim=1)


def plain_row(lm: Any, asked: list[Any], tries: int, seed: int) -> dict[str, dict[str, Any]]:
    """The language model alone, and the first try that has both words."""
    torch.manual_seed(seed)
    alone: dict[str, Any] = {"good": 0, "texts": 0, "logs": [], "seconds": 0.0, "tokens": 0}
    rejection: dict[str, Any] = {"good": 0, "texts": 0, "logs": []}
    for prompt, words in asked:
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


def steered_row(lm: Any, hmm: HMM, asked: list[Any], n: int, seed: int) -> dict[str, Any]:
    """n texts for each constraint; the time of the same number of tokens without steering, in turns, beside it."""
    torch.manual_seed(seed)
    out: dict[str, Any] = {"good": 0, "texts": 0, "logs": [], "prepare": 0.0, "steered": 0.0, "plain": 0.0, "tokens": 0}
    for prompt, words in asked:
        prompts = torch.tensor([prompt] * n)
        begin = time.process_time()
        processor = ConstraintLogitsProcessor(hmm, Contains(str(words[0]), str(words[1])), length=LENGTH)
        out["prepare"] += time.process_time() - begin
        begin = time.process_time()
        texts = written(lm, prompts, LENGTH, processor)
        out["steered"] += time.process_time() - begin
        begin = time.process_time()
        written(lm, prompts, LENGTH)
        out["plain"] += time.process_time() - begin
        out["tokens"] += texts.numel()
        out["good"] += int(has_both(texts, words).sum())
        out["texts"] += n
        out["logs"] += log_probabilities(lm, prompts, texts).tolist()
    return out


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
    given = parser.parse_args()
    HF.logging.set_verbosity_error()
    if given.quick:
        given.words, given.width, given.train_tokens, given.distill_tokens = 400, 32, 60_000, 20_000
        given.states, given.rank, given.constraints, given.texts, given.tries = 64, 16, 20, 4, 5
    work = work_of(given.work, __file__)
    work = work / ("quick" if given.quick else f"{given.words}-{given.width}-{given.train_tokens}-{given.seed}")
    work.mkdir(parents=True, exist_ok=True)
    text = Corpus.from_sentences(first(wikitext("train"), given.train_tokens), vocab_size=given.words)
    valid = Corpus.from_sentences(wikitext("valid"), vocabulary=text.vocabulary)
    lm = kept_lm(work, text, given)
    perplexity = valid_perplexity(lm, valid)
    print(f"the language model's perplexity on valid: {perplexity:.1f}", flush=True)
    asked = choose_constraints(text, valid, given.constraints, given.seed)
    kept = work / "rows.json"
    rows: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for states in (1, given.states):
        name = f"HMM of {states:,} state{'s' if states > 1 else ''}"
        hmm = kept_hmm(work / f"{states}.hmm", kept_samples(work, lm, text, given), len(text.vocabulary), states, given)
        if name not in rows:
            rows[name] = steered_row(lm, hmm, asked, given.texts, given.seed)
            kept.write_text(json.dumps(rows))
            print(name, summary(rows[name]), flush=True)
    if f"rejection, {given.tries} tries" not in rows:
        rows |= plain_row(lm, asked, given.tries, given.seed)
        kept.write_text(json.dumps(rows))
    page = table(rows, perplexity, len(asked), given)
    print(page)
    if given.quick:
        steered = [row for name, row in rows.items() if name.startswith("HMM")]
        bad = [row for row in steered if row["good"] < row["texts"]]
        sys.exit("a steered text lacks a word" if bad else None)
    data = {name: {k: v for k, v in row.items() if k != "logs"} for name, row in rows.items()}
    write_page("steering", page, __file__, vars(given), data=data)


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
    n_tokens = row.get("tokens") or 1
    out = {"share": row["good"] / row["texts"]}
    if row["logs"]:
        out["perplexity"] = float(np.exp(-np.mean(row["logs"])))
    if "steered" in row:
        out["overhead"] = row["steered"] / row["plain"] - 1
        out["prepare"] = row["prepare"] / row["texts"]
        out["ms"] = 1000 * (row["steered"] - row["plain"]) / n_tokens
    return out


def table(rows: dict[str, Any], perplexity: float, n: int, given: argparse.Namespace) -> str:
    out = [
        "# Steering a language model by an HMM distilled from it",
        "",
        f"A GPT-2 of two layers and width {given.width} over {given.words:,} words, trained on "
        f"{given.train_tokens:,} tokens of WikiText-2 (perplexity of valid {perplexity:.1f}); HMMs distilled from "
        f"{given.distill_tokens:,} of its tokens. {n} constraints, each of two words that the true continuation of a "
        f"held-out line has; {LENGTH} words after its first {PROMPT}. *Perplexity* is that of the texts under the "
        "language model. *Overhead* is processor time of generation with the processor against without, in the same "
        f"run, {given.texts} texts together; *prepare* is the look-ahead, once for each constraint.",
        "",
        "| way | texts | have both words | perplexity | overhead of a token | ms a token | prepare, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    order = sorted(rows, key=lambda name: name.startswith("HMM"))
    for name in order:
        row, s = rows[name], summary(rows[name])
        cost = ["", "", ""]
        if "overhead" in s:
            cost = [f"{100 * s['overhead']:.0f} %", f"{s['ms']:.2f}", f"{1000 * row['prepare'] / n:.0f}"]
        shown = f"steered by an {name}" if name.startswith("HMM") else name
        fluency = f"{s['perplexity']:.1f}" if "perplexity" in s else "–"
        cells = [shown, f"{row['texts']:,}", f"{100 * s['share']:.1f} %", fluency, *cost]
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    main()
