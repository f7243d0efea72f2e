"""Sentences with tags from files of columns."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from sentences import is_one_sentence
from undertow.errors import InputError
from undertow.text.reading import ReadingOptions
from undertow.text.tagged import TaggedSentence, read_tagged

CONLLU = """# sent_id = 1
1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tghost\t_\t_\t_\t_\t_\t_\t_\t_

1\t3 000\t3000\tNUM\tCD\t_\t0\troot\t_\t_
"""
CONLL = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\n# CD O\n"


def pairs(sentences: object) -> list[tuple[list[str], list[str]]]:
    return [(s.words, s.tags) for s in sentences]  # type: ignore[attr-defined]


def test_conllu(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(CONLLU)
    words = [["The", "do", "n't"], ["3_000"]]
    assert pairs(read_tagged([path])) == list(zip(words, [["DET", "AUX", "PART"], ["NUM"]], strict=True))
    assert pairs(read_tagged([path], "xpos")) == list(zip(words, [["DT", "VBP", "RB"], ["CD"]], strict=True))
    assert pairs(read_tagged([path], 5)) == pairs(read_tagged([path], "xpos"))
    assert [s.line for s in read_tagged([path])] == [1, 8]


def test_conll_and_tsv_packed_or_not(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.conll", tmp_path / "b.tsv.xz"
    plain.write_text(CONLL)
    packed.write_bytes(lzma.compress(b"the\tDT\r\nriver\tNN\r\n"))
    sentences = list(read_tagged([plain, packed]))
    assert sentences == [
        TaggedSentence(["EU", "rejects"], ["B-ORG", "O"], str(plain), 3),
        TaggedSentence(["#"], ["O"], str(plain), 6),
        TaggedSentence(["the", "river"], ["DT", "NN"], str(packed), 1),
    ]
    assert pairs(read_tagged([plain], 2))[0] == (["EU", "rejects"], ["NNP", "VBZ"])
    assert pairs(read_tagged([plain], -2)) == pairs(read_tagged([plain], 2))
    swapped = ReadingOptions(format="tsv", column=2)
    assert pairs(read_tagged([packed], 1, swapped)) == [(["DT", "NN"], ["the", "river"])]


def test_it_is_read_as_it_is_asked_for(tmp_path: Path) -> None:
    good, bad = tmp_path / "a.tsv", tmp_path / "b.tsv"
    good.write_text("a\tX\n\nb\tY\n")
    bad.write_text("a\tX\n\nb\n")
    sentences = read_tagged([good, bad])
    assert [next(sentences).words for _ in range(3)] == [["a"], ["b"], ["a"]]
    with pytest.raises(InputError, match=r"b\.tsv, row 3"):
        next(sentences)


@pytest.mark.parametrize(
    ("name", "text", "tags", "expected"),
    [
        ("a.tsv", "a\tX\nb\t\n", None, "row 2: the tag in column 2 is empty"),
        ("a.tsv", "a\tX Y\n", None, "row 1: the tag in column 2 has white space"),
        ("a.tsv", "\n\na\tX\n", 3, "row 3: column 3 for the tags is not among the 2"),
        ("a.tsv", "a\tX\n", -3, "column -3 for the tags is not among"),
        ("a.tsv", "a\tX\n", 1, "column 1 for the tags holds the words"),
        ("a.tsv", "a N\n", None, "one column here: words and tags must be in two, separated by tabs (if by"),
        ("a.conll", "a\n", None, "one column here: words and tags must be in two"),
        ("a.tsv", "a\tX\n", "xpos", "no column is called xpos"),
        ("a.tsv", "a\tX\n", 0, "tags=0 is not a column"),
        ("a.tsv", "a\tX\n", "pos", "tags='pos' is not a column"),
        ("a.txt", "a\tX\n", None, "is not named like a file of columns"),
        ("a.conllu", CONLLU, 2, "column 2 for the tags holds the words"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, name: str, text: str, tags: int | str | None, expected: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as e:
        list(read_tagged([tmp_path / name], tags))
    assert expected in str(e.value) and is_one_sentence(str(e.value))
