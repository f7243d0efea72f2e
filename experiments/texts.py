"""The two texts that the tagging tables learn representations from, built once and kept in --work.

biomedical: the first tokens of eLife, and the labelled CRAFT and BC2GM train text without its tags.
general: parts of ten old books, WikiText-2, UN speeches and US Supreme Court opinions, and the words of MASC, EWT train
and WNUT-17 train. There is no large web text here; a mixture knows more everyday words than eLife or WikiText-2 do.
"""

from __future__ import annotations

import itertools
import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path

from pos_data import craft_articles, data_dir, ewt, masc, respell, tab_separated
from representations import joined
from source_key import work_of

from undertow import Corpus, LagCounts
from undertow.text.tokenizer import Tokenizer
from undertow.text.vocabulary import UNKNOWN, Vocabulary

LEFT_OUT = "Leftout"
N_ARTICLES = 20  # labelled CRAFT train articles that the standard comparison takes


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
    text = _first(itertools.chain.from_iterable(map(Tokenizer(), _lines("text/elife.txt.xz"))), n_tokens)
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
    rule = Tokenizer()
    for millions, lines in ((3.0, _lines("text/books.txt.xz")), (2.0, _opinions()), (3.0, _speeches())):
        yield from _first(itertools.chain.from_iterable(map(rule, lines)), round(millions * share * 1e6))
    wiki = itertools.chain.from_iterable(rule(_as_running(line)) for line in _lines("text/wikitext2.train.txt.xz"))
    for sentence in _first(wiki, round(2.2 * share * 1e6)):
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


def _lines(name: str) -> Iterator[str]:
    with lzma.open(data_dir() / name, "rt", encoding="utf-8", newline="\n") as f:
        yield from f


def _opinions() -> Iterator[str]:
    for line in _lines("text/scotus.jsonl.xz"):
        yield "\n".join(json.loads(line)["text"])


def _speeches() -> Iterator[str]:
    """The speeches with their hard-wrapped lines joined; the latest come first."""
    speeches = [json.loads(line) for line in _lines("time/ungdc-1946-2014.jsonl.xz")]
    for speech in reversed(speeches):
        yield " ".join(speech["text"].split("\n"))


def _first(sentences: Iterable[list[str]], n: int) -> Iterator[list[str]]:
    for sentence in sentences:
        if n <= 0:
            return
        n -= len(sentence)
        yield sentence
