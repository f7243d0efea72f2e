"""Labelled sentences of the standard comparisons, and their tokens in the spelling of an undertow vocabulary."""

from __future__ import annotations

import itertools
import lzma
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from undertow import Vocabulary

BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}", "``": "“", "''": "”"}
SAME = {"(": "-LRB-", ")": "-RRB-"}  # one tag, two names

# Penn tags by their universal ones, after the map of Petrov, Das & McDonald (2011): twelve tags
UNIVERSAL = {
    "VERB": "BES HVS MD VB VBD VBG VBN VBP VBZ VP",
    "NOUN": "NN NNP NNPS NNS NP",
    "PRON": "EX PRP PRP$ WP WP$",
    "ADJ": "JJ JJR JJS AFX",
    "ADV": "RB RBR RBS RN WRB",
    "ADP": "IN",
    "CONJ": "CC",
    "DET": "DT PDT PRT WDT",
    "NUM": "CD",
    "PRT": "POS RP TO",
    "X": "FW LS SYM UH ADD GW XX",
    ".": "# $ '' , -LRB- -RRB- . : `` HYPH NFP",
}
_UNIVERSAL_OF = {penn: universal for universal, tags in UNIVERSAL.items() for penn in tags.split()}


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


def lines_of(name: str) -> Iterator[str]:
    with lzma.open(data_dir() / "labelled" / name, "rt", encoding="utf-8", newline="\n") as f:
        for line in f:
            yield line.rstrip("\n")


def sentences_of(rows: Iterable[tuple[str, str] | None]) -> list[Tagged]:
    """Runs of (word, tag) between None."""
    out: list[Tagged] = []
    words: list[str] = []
    tags: list[str] = []
    for row in itertools.chain(rows, [None]):
        if row is not None:
            words.append(row[0])
            tags.append(SAME.get(row[1], row[1]))
        elif words:
            out.append(Tagged(words, tags))
            words, tags = [], []
    return out


def ewt(part: str = "train", column: str = "xpos") -> list[Tagged]:
    """English Web Treebank, `train` or `dev`; Penn tags (`xpos`) or universal ones (`upos`)."""
    number = {"upos": 3, "xpos": 4}[column]

    def rows() -> Iterator[tuple[str, str] | None]:
        for line in lines_of(f"ud-en-ewt.{part}.conllu.xz"):
            cells = line.split("\t")
            if len(cells) == 10 and cells[0].isdigit():
                yield cells[1], cells[number]
            elif not line:
                yield None

    return sentences_of(rows())


def masc() -> list[Tagged]:
    """word_TAG with Penn tags; lines that are not so (titles of documents, junk tags) are left out."""
    out = []
    for line in lines_of("masc-pos.txt.xz"):
        pairs = [token.rpartition("_") for token in line.split()]
        good = [(w, t) for w, _, t in pairs if w and t and (t.isupper() or not any(map(str.isalnum, t)))]
        if good and len(good) == len(pairs):
            out.append(Tagged([w for w, _ in good], [SAME.get(t, t) for _, t in good]))
    return out


def tab_separated(name: str) -> list[Tagged]:
    """word TAB tag rows, such as `genia-pos.dev` or `bc2gm-ner.train`."""

    def rows() -> Iterator[tuple[str, str] | None]:
        for line in lines_of(f"{name}.tsv.xz"):
            cells = line.split("\t")
            yield (cells[0], cells[1]) if len(cells) > 1 and cells[0] else None  # WNUT: a bare TAB between sentences

    return sentences_of(rows())


def first_tokens(sentences: Sequence[Tagged], n: int) -> list[Tagged]:
    """The first sentences that have n tokens together."""
    out, seen = [], 0
    for s in sentences:
        if seen >= n:
            break
        out.append(s)
        seen += len(s.words)
    return out


def universal(sentences: Sequence[Tagged]) -> list[Tagged]:
    """Penn tags as universal ones; of alternatives (`NN|JJ`) the first counts."""
    return [Tagged(s.words, [_UNIVERSAL_OF.get(t.split("|")[0], "X") for t in s.tags]) for s in sentences]


def respell(words: list[str], vocabulary: Vocabulary) -> list[str]:
    """Penn tokens as the words rule would have written them: brackets, quotes, and numbers as NUM."""
    out = []
    for word in words:
        plain = BRACKETS.get(word, word).replace("’", "'")
        if plain not in vocabulary and any(c.isdigit() for c in plain) and not any(c.isalpha() for c in plain):
            plain = "NUM"
        out.append(plain)
    return out
