"""What the tagging tables share: rows that are kept as they finish, groups of tokens, significance."""

from __future__ import annotations

import json
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest

from data import Tagged
from source_key import work_of
from undertow.results.tagging.scores import RARE
from undertow.results.tagging.spans import spans_of

Tags = list[list[str]]


class Row(NamedTuple):
    """A tagger that was trained and has tagged the test."""

    tags: Tags
    cpu: float  # processor seconds of training and tagging
    wall: float


class Rows:
    """Rows in files of a directory of --work for the source of this script: a run that was stopped goes on there."""

    def __init__(self, work: Path, script: str, name: str = "rows") -> None:
        self.place = work_of(work, script) / name
        self.place.mkdir(parents=True, exist_ok=True)

    def has(self, key: str) -> bool:
        return (self.place / f"{key}.json").exists()

    def __call__(self, key: str, make: Callable[[], Tags]) -> Row:
        path = self.place / f"{key}.json"
        if not path.exists():
            began, began_cpu = time.perf_counter(), processor_seconds()
            tags = make()
            found = {"tags": tags, "cpu": processor_seconds() - began_cpu, "wall": time.perf_counter() - began}
            waiting = path.with_suffix(".part")
            waiting.write_text(json.dumps(found))
            waiting.replace(path)
        return Row(**json.loads(path.read_text()))


def processor_seconds() -> float:
    """Of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# --- tokens ---------------------------------------------------------------------------------------------


def right(gold: Sequence[Tagged], tags: Tags) -> Any:
    """Whether each token has its tag, in one array."""
    return np.array([g == t for s, found in zip(gold, tags, strict=True) for g, t in zip(s.tags, found, strict=True)])


def groups(train: Sequence[Tagged], test: Sequence[Tagged]) -> dict[str, Any]:
    """Masks of the test's tokens: all, those not in the labelled text, those at most twice in it. Case counts."""
    seen = Counter(word for s in train for word in s.words)
    times = np.array([seen[word] for s in test for word in s.words])
    return {"all": times >= 0, "OOV": times == 0, "rare": times <= RARE}


def mcnemar(ours: Any, theirs: Any) -> float:
    """Exact, two-sided: are the tokens that only one of two taggers got right shared out evenly?"""
    won, lost = int((ours & ~theirs).sum()), int((~ours & theirs).sum())
    return float(binomtest(won, won + lost).pvalue) if won + lost else 1.0


# --- spans ----------------------------------------------------------------------------------------------


def span_counts(gold: Sequence[Tagged], tags: Tags) -> Any:
    """(n_sentences, 3) spans that are right, found, and there."""
    rows = []
    for s, found in zip(gold, tags, strict=True):
        ours, theirs = set(spans_of(found)), set(spans_of(s.tags))
        rows.append((len(ours & theirs), len(ours), len(theirs)))
    return np.array(rows)


def f1(counts: Any) -> Any:
    """F1 of the sums of (..., 3) counts."""
    return 2 * counts[..., 0] / np.maximum(counts[..., 1] + counts[..., 2], 1)


def bootstrap(ours: Any, theirs: Any, n: int = 10_000, seed: int = 0) -> float:
    """Paired over sentences, two-sided: how often a resampled test set turns the difference of F1 around, twice."""
    rng = np.random.default_rng(seed)
    turned = 0
    difference = f1(ours.sum(0)) - f1(theirs.sum(0))
    for _ in range(0, n, 100):
        weights = rng.multinomial(len(ours), np.full(len(ours), 1 / len(ours)), size=100)
        drawn = f1(weights @ ours) - f1(weights @ theirs)
        turned += int((drawn * np.sign(difference) <= 0).sum())
    return min(1.0, 2 * (turned + 1) / (n + 1))


def spread(values: Any, digits: int = 2) -> str:
    """The mean over seeds, and the standard deviation if there are several."""
    told = f"{np.mean(values):.{digits}f}"
    return told + (f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else "")


def seeds_of(name: str, seeds: int, rival_seeds: int) -> range:
    """Spelling alone has nothing random in it; ours and the rivals have seeds, of the model and of the tagger."""
    ours = "LDS" in name or name.startswith(("EM", "SSID"))
    return range(1 if name == "Lex" else seeds if ours else rival_seeds)


def shown_p(p: float) -> str:
    return f"{p:.1e}" if p < 0.001 else f"{p:.3f}"
