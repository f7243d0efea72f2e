"""Tagged sentences of the standard comparisons, and their tokens in the spelling of an undertow vocabulary."""

from __future__ import annotations

import lzma
import os
from pathlib import Path
from typing import NamedTuple

from undertow import Vocabulary

BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}", "``": "“", "''": "”"}


class Tagged(NamedTuple):
    words: list[str]
    tags: list[str]


def data_dir() -> Path:
    return Path(os.environ.get("UNDERTOW_DATA", Path(__file__).parents[2] / "shared" / "data"))


def craft_articles(name: str) -> list[list[Tagged]]:
    """CRAFT articles (`train` or `dev`), each a list of tagged sentences."""
    articles: list[list[Tagged]] = []
    words: list[str] = []
    tags: list[str] = []
    with lzma.open(data_dir() / "labelled" / f"craft-pos.{name}.tsv.xz", "rt", encoding="utf-8", newline="\n") as f:
        for row in f:
            line = row.rstrip("\n")
            if line.startswith("# article"):
                articles.append([])
            elif line:
                word, tag = line.split("\t")
                words.append(word)
                tags.append(tag)
            elif words:
                articles[-1].append(Tagged(words, tags))
                words, tags = [], []
    if words:
        articles[-1].append(Tagged(words, tags))
    return articles


def respell(words: list[str], vocabulary: Vocabulary) -> list[str]:
    """Penn tokens as the words rule would have written them: brackets, quotes, and numbers as NUM."""
    out = []
    for word in words:
        plain = BRACKETS.get(word, word).replace("’", "'")
        if plain not in vocabulary and any(c.isdigit() for c in plain) and not any(c.isalpha() for c in plain):
            plain = "NUM"
        out.append(plain)
    return out
