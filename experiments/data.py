"""The real data as experiments/ and benchmarks/ read it: labelled sentences, WikiText-2, and the texts to learn from.

Files are looked for in $UNDERTOW_DATA (default ../shared/data). Labelled tokens can be respelled as an undertow
vocabulary writes them. Texts that take long to build are built once and kept in --work:

- `elife` and its `elife_counts`; `biomedical`: its first tokens, and the labelled CRAFT and BC2GM train text;
- `general`: parts of ten old books, WikiText-2, UN speeches and US Supreme Court opinions, and the words of MASC, EWT
  train and WNUT-17 train. There is no large web text here; a mixture knows more everyday words than eLife does.
"""

from __future__ import annotations

import itertools
import json
import lzma
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from source_key import work_of
from undertow import Corpus, LagCounts, Tokenizer, Vocabulary
from undertow.text.vocabulary import UNKNOWN

LEFT_OUT = "Leftout"
N_ARTICLES = 20  # labelled CRAFT train articles that the standard comparison takes
S = TypeVar("S", bound=Sized)

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


def lines_of(name: str) -> Iterator[str]:
    """The lines of an .xz file, named by its path below the data folder, without their ends."""
    with lzma.open(data_dir() / name, "rt", encoding="utf-8", newline="\n") as f:
        for line in f:
            yield line.rstrip("\n")


def records(name: str) -> Iterator[Any]:
    """The records of a JSON lines file."""
    return map(json.loads, lines_of(name))


def first(sentences: Iterable[S], n_tokens: int, length: Callable[[S], int] = len) -> list[S]:
    """The first sentences that have n_tokens together, or all."""
    out: list[S] = []
    for s in sentences:
        if n_tokens <= 0:
            break
        n_tokens -= length(s)
        out.append(s)
    return out


# --- labelled sentences ---------------------------------------------------------------------------------


def craft_articles(name: str) -> list[list[Tagged]]:
    """CRAFT articles (`train` or `dev`), each a list of tagged sentences."""
    articles: list[list[tuple[str, str] | None]] = []
    for line in lines_of(f"labelled/craft-pos.{name}.tsv.xz"):
        if line.startswith("# article"):
            articles.append([])
        else:
            word, _, tag = line.partition("\t")
            articles[-1].append((word, tag) if line else None)
    return [sentences_of(rows, same={}) for rows in articles]


def sentences_of(rows: Iterable[tuple[str, str] | None], same: dict[str, str] = SAME) -> list[Tagged]:
    """Runs of (word, tag) between None; `same` renames tags."""
    out: list[Tagged] = []
    words: list[str] = []
    tags: list[str] = []
    for row in itertools.chain(rows, [None]):
        if row is not None:
            words.append(row[0])
            tags.append(same.get(row[1], row[1]))
        elif words:
            out.append(Tagged(words, tags))
            words, tags = [], []
    return out


def ewt(part: str = "train", column: str = "xpos") -> list[Tagged]:
    """English Web Treebank, `train` or `dev`; Penn tags (`xpos`) or universal ones (`upos`)."""
    number = {"upos": 3, "xpos": 4}[column]

    def rows() -> Iterator[tuple[str, str] | None]:
        for line in lines_of(f"labelled/ud-en-ewt.{part}.conllu.xz"):
            cells = line.split("\t")
            if len(cells) == 10 and cells[0].isdigit():
                yield cells[1], cells[number]
            elif not line:
                yield None

    return sentences_of(rows())


def masc() -> list[Tagged]:
    """word_TAG with Penn tags; lines that are not so (titles of documents, junk tags) are left out."""
    out = []
    for line in lines_of("labelled/masc-pos.txt.xz"):
        pairs = [token.rpartition("_") for token in line.split()]
        good = [(w, t) for w, _, t in pairs if w and t and (t.isupper() or not any(map(str.isalnum, t)))]
        if good and len(good) == len(pairs):
            out.append(Tagged([w for w, _ in good], [SAME.get(t, t) for _, t in good]))
    return out


def tab_separated(name: str) -> list[Tagged]:
    """word TAB tag rows, such as `genia-pos.dev` or `bc2gm-ner.train`."""

    def rows() -> Iterator[tuple[str, str] | None]:
        for line in lines_of(f"labelled/{name}.tsv.xz"):
            cells = line.split("\t")
            yield (cells[0], cells[1]) if len(cells) > 1 and cells[0] else None  # WNUT: a bare TAB between sentences

    return sentences_of(rows())


def first_tokens(sentences: Sequence[Tagged], n: int) -> list[Tagged]:
    return first(sentences, n, lambda s: len(s.words))


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


# --- WikiText-2 -----------------------------------------------------------------------------------------


def wikitext(part: str) -> list[list[str]]:
    """The lines of WikiText-2 (`train` or `valid`), each with its end as a word."""
    return [[*line.split(), "<eos>"] for line in lines_of(f"text/wikitext2.{part}.txt.xz")]


# --- texts to learn from --------------------------------------------------------------------------------


def tokenized(lines: Iterable[str]) -> Iterator[list[str]]:
    """The sentences of the words rule."""
    return itertools.chain.from_iterable(map(Tokenizer(), lines))


def joined(corpus: Corpus, more: Iterable[Sequence[str]] = (), n_tokens: int | None = None) -> Corpus:
    """The first `n_tokens` tokens of a corpus (to the end of a sentence), then other sentences, in its vocabulary.

    Counts are those of the new text. The other sentences are spelled as the rule of the corpus spells.
    """
    last = corpus.n_sentences
    if n_tokens is not None and n_tokens < corpus.n_tokens:
        last = int(np.searchsorted(corpus.offsets, n_tokens))
    vocabulary = corpus.vocabulary
    encoded = [vocabulary.encode(respell(list(s), vocabulary)) for s in more if len(s)]
    ids = np.concatenate([corpus.ids[: corpus.offsets[last]], *encoded]).astype(np.uint32)
    lengths = np.concatenate([np.diff(corpus.offsets[: last + 1]), [len(s) for s in encoded]]).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    counted = vocabulary.with_counts(np.bincount(ids, minlength=len(vocabulary)))
    return Corpus(ids, offsets, counted, manifest={"tokenizer": corpus.manifest.get("tokenizer")})


def elife(work: Path) -> Corpus:
    place = work_of(work, __file__) / "elife.corpus"
    if not place.exists():
        Corpus.build([data_dir() / "text" / "elife.txt.xz"], place, n_jobs=2)
    return Corpus.open(place, verify=False)


def elife_counts(work: Path) -> LagCounts:
    place = work_of(work, __file__) / "elife.counts"
    if not place.exists():
        LagCounts.from_corpus(elife(work), lags=7, n_jobs=2, out=place)
    return LagCounts.open(place, verify=False)


def biomedical(work: Path, n_tokens: int | None) -> Corpus:
    craft = [s.words for a in craft_articles("train")[:N_ARTICLES] for s in a]
    genes = [s.words for s in tab_separated("bc2gm-ner.train")]
    return joined(elife(work), more=craft + genes, n_tokens=n_tokens)


def sample(n_tokens: int, more: Iterable[list[str]], vocab_size: int = 8_000) -> Corpus:
    """The first tokens of eLife and other sentences, in memory and with nothing kept: for --quick."""
    text = first(tokenized(lines_of("text/elife.txt.xz")), n_tokens)
    elife_alone = Corpus.from_sentences(text, vocab_size=vocab_size, unknown_classes=True)
    rule = {"tokenizer": Tokenizer().describe()}
    start = Corpus(elife_alone.ids, elife_alone.offsets, elife_alone.vocabulary, manifest=rule)
    return joined(start, more=more)


def general(work: Path, share: float = 1.0) -> Corpus:
    """About 11 M tokens, or a share of them; the labelled text is there in any case."""
    place = work_of(work, __file__) / f"general-{share:g}.corpus"
    if not place.exists():
        tokens = place.with_suffix(".txt")
        with open(tokens, "w", encoding="utf-8") as f:
            for sentence in _general_sentences(share):
                f.write(" ".join(sentence) + "\n")
        Corpus.build([tokens], place, tokenizer="spaces", n_jobs=1)
        tokens.unlink()
    corpus = Corpus.open(place, verify=False)
    # the tokens in the file were cut by the words rule, which the models are to know
    return Corpus(corpus.ids, corpus.offsets, corpus.vocabulary, manifest={"tokenizer": Tokenizer().describe()})


def _general_sentences(share: float) -> Iterator[list[str]]:
    opinions = ("\n".join(opinion["text"]) for opinion in records("text/scotus.jsonl.xz"))
    for millions, text in ((3.0, lines_of("text/books.txt.xz")), (2.0, opinions), (3.0, _speeches())):
        yield from first(tokenized(text), round(millions * share * 1e6))
    wiki = tokenized(map(_as_running, lines_of("text/wikitext2.train.txt.xz")))
    for sentence in first(wiki, round(2.2 * share * 1e6)):
        yield [UNKNOWN if token == LEFT_OUT else token for token in sentence]
    one_line, nothing = Tokenizer(sentences="lines"), Vocabulary([UNKNOWN], [0])
    for labelled in (masc(), ewt("train"), tab_separated("wnut17-ner.train")):
        for s in labelled:
            yield [piece for word in respell(s.words, nothing) for line in one_line(word) for piece in line]


def _as_running(line: str) -> str:
    """WikiText without the marks of its tokenizer; what it left out stands for a word, so that sentences end right."""
    for mark, plain in ((" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", "."), (UNKNOWN, LEFT_OUT)):
        line = line.replace(mark, plain)
    return line


def _speeches() -> Iterator[str]:
    """The speeches with their hard-wrapped lines joined; the latest come first."""
    for speech in reversed(list(records("time/ungdc-1946-2014.jsonl.xz"))):
        yield " ".join(speech["text"].split("\n"))
