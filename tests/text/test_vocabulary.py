from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentences import is_one_sentence
from undertow import Vocabulary
from undertow.errors import FormatError, InputError
from undertow.text.word_classes import CLASSES, word_class

WORDS = st.text(min_size=1, max_size=8).filter(
    lambda w: min(w) > " " and "\x7f" not in w and w.encode("utf-8", "ignore").decode() == w
)


def test_order_is_unknown_then_falling_count_then_code_point() -> None:
    v = Vocabulary.from_counts({"b": 2, "a": 2, "z": 9, "ä": 2})
    assert v.words == ("<unk>", "z", "a", "b", "ä")
    assert v.counts.tolist() == [0, 9, 2, 2, 2]


def test_size_counts_the_special_words_and_the_rest_goes_to_unknown() -> None:
    v = Vocabulary.from_counts({"a": 5, "b": 3, "c": 1}, size=3)
    assert v.words == ("<unk>", "a", "b")
    assert v.counts.tolist() == [1, 5, 3]


def test_a_size_above_the_types_keeps_them_all() -> None:
    assert len(Vocabulary.from_counts({"a": 1, "b": 1}, size=1000)) == 3


def test_min_count() -> None:
    v = Vocabulary.from_counts({"a": 5, "b": 1}, min_count=2)
    assert v.words == ("<unk>", "a") and v.counts[0] == 1


def test_words_spelled_like_special_words_are_special() -> None:
    v = Vocabulary.from_counts({"<unk>": 4, "<eos>": 2, "a": 1}, boundary="<eos>")
    assert v.words == ("<unk>", "<eos>", "a") and v.counts.tolist() == [4, 2, 1]
    assert (v.unknown_id, v.boundary_id, v.boundary) == (0, 1, "<eos>")


def test_classes_take_the_words_left_out() -> None:
    counts = {"the": 50, "cat": 20, "plughed": 3, "xyzzied": 2, "GFP": 4, "p53": 1, "%%": 1}
    v = Vocabulary.from_counts(counts, min_count=25, classes=True, boundary="</s>")
    assert v.words == ("<unk>", "</s>", "<unk:#>", "<unk:*>", "<unk:-ed>", "<unk:AA>", "<unk:a>", "the")
    assert v.counts.tolist() == [0, 0, 1, 1, 5, 4, 20, 50]
    assert v.n_classes == 5 and v.n_special == 7


@pytest.mark.parametrize("size", [52, 53, 60, 90])
def test_classes_have_their_place_within_the_size(size: int) -> None:
    counts = {f"w{chr(97 + i % 26)}{chr(97 + i // 26)}{'ed' if i % 3 else 'ing'}": 100 - i for i in range(95)}
    v = Vocabulary.from_counts(counts, size=size, classes=True)
    assert len(v) == size and v.n_classes == 2 and v.counts.sum() == sum(counts.values())
    assert v.words[3:] == Vocabulary.from_counts(counts, size=size - 2).words[1:]


def test_a_very_small_vocabulary_has_no_classes() -> None:
    v = Vocabulary.from_counts({f"a{i}": 9 for i in range(80)}, size=51, classes=True)
    assert len(v) == 51 and v.n_classes == 0


def test_a_word_that_is_not_here_has_the_id_of_its_class() -> None:
    v = Vocabulary.from_counts({"the": 50, "plughed": 3, "Xyzzy": 2}, min_count=10, classes=True)
    assert v.words == ("<unk>", "<unk:-ed>", "<unk:Aa>", "the")
    assert [v.words[v.id(w)] for w in ("the", "walked", "London", "unseen")] == [
        "the",
        "<unk:-ed>",
        "<unk:Aa>",
        "<unk>",
    ]
    assert v.encode(["walked", "unseen"]).tolist() == [1, 0]
    assert v.fallback().tolist() == [0, 1, 2, 0] and v.n_unknown == 5
    plain = Vocabulary.from_counts({"the": 50, "plughed": 3}, min_count=10)
    assert plain.id("walked") == 0 and plain.fallback().tolist() == [0, 0] and plain.n_unknown == 3


def test_no_class_without_words_left_out() -> None:
    assert Vocabulary.from_counts({"a": 2, "b": 1}, classes=True).words == ("<unk>", "a", "b")


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("p38", "#"), ("GFP", "AA"), ("I", "Aa"), ("Smolensk", "Aa"), ("running", "-ing"), ("bred", "a"),
        ("walked", "-ed"),
        ("quickly", "-ly"), ("cats", "-s"), ("glass", "a"), ("virus", "a"), ("nervous", "-adj"), ("station", "-noun"),
        ("teacher", "-er"), ("realize", "-verb"), ("cat", "a"), ("±", "*"), ("état", "a"), ("ÉTAT", "AA"),
    ],
)  # fmt: skip
def test_classes_by_spelling(word: str, name: str) -> None:
    assert word_class(word) == f"<unk:{name}>" and word_class(word) in CLASSES


def test_id_encode_decode() -> None:
    v = Vocabulary.from_counts({"a": 2, "b": 1})
    assert v.id("a") == 1 and v.id("nowhere") == v.unknown_id and "nowhere" not in v
    assert v.encode(["b", "x", "a"]).tolist() == [2, 0, 1] and v.encode([]).dtype == np.uint32
    assert v.decode(v.encode(["b", "x"])) == ["b", "<unk>"]


def test_it_cannot_be_changed() -> None:
    v = Vocabulary.from_counts({"a": 2})
    with pytest.raises(ValueError):
        v.counts[0] = 7
    with pytest.raises(AttributeError):
        v.words = ()  # type: ignore[misc]


@pytest.mark.parametrize("word", ["a b", "a\nb", "", "\t", "a\x00", "a\rb", "\ud800"])
def test_words_that_would_break_a_file_are_refused(word: str) -> None:
    with pytest.raises(InputError) as e:
        Vocabulary.from_counts({word: 1})
    assert is_one_sentence(str(e.value))


@pytest.mark.parametrize(
    "arguments",
    [{"size": 1}, {"size": 0}, {"min_count": 0}, {"boundary": "<unk>"}, {"boundary": "a b"}],
)
def test_impossible_choices_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(InputError) as e:
        Vocabulary.from_counts({"a": 1}, **arguments)  # type: ignore[arg-type]
    assert is_one_sentence(str(e.value))


@given(st.dictionaries(WORDS, st.integers(1, 2**40), max_size=20), st.booleans(), st.booleans())
def test_write_and_read_give_the_same_back(
    tmp_path_factory, counts: dict[str, int], boundary: bool, classes: bool
) -> None:
    path = tmp_path_factory.mktemp("v") / "vocabulary.txt"
    v = Vocabulary.from_counts(counts, boundary="</s>" if boundary else None, classes=classes, min_count=3)
    v.write(path)
    back = Vocabulary.read(path)
    assert back == v and back.counts.tolist() == v.counts.tolist() and back.boundary == v.boundary
    assert v.counts.sum() == sum(counts.values()) and back.n_classes == v.n_classes
    assert back.fingerprint() == v.fingerprint()


@pytest.mark.parametrize(
    "text",
    [
        "", "a\t1\n", "<unk>\t1\tunknown", "<unk>\tx\tunknown\n", "<unk>\t1\tunknown\na b\t1\n",
        "<unk>\t1\tunknown\na\t1\na\t1\n", "<unk>\t1\tunknown\na\t-1\n",
        "<unk>\t1\tunknown\na\t1\tboundary\nb\t1\tboundary\n",
        "<unk>\t1\tunknown\na\t" + "9" * 30 + "\n", "<unk>\t1\tunknown\na\t1\nb\t1\tclass\n",
    ],
)  # fmt: skip
def test_damaged_files_are_refused(tmp_path, text: str) -> None:
    path = tmp_path / "vocabulary.txt"
    path.write_text(text)
    with pytest.raises(FormatError) as e:
        Vocabulary.read(path)
    assert is_one_sentence(str(e.value))


def test_invalid_utf8_is_refused(tmp_path) -> None:
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(b"<unk>\t1\tunknown\n\xff\t1\n")
    with pytest.raises(FormatError, match="byte 16"):
        Vocabulary.read(path)


@pytest.mark.parametrize(
    "counts",
    [[float("nan"), 1], [2**63, 1], [2**70, 1], [1.5, 1], ["x", "y"], [[1], [2]], None, 3, [10**18, 10**18], [-1, 1]],
    ids=str,
)
def test_counts_that_are_none(counts: Any) -> None:
    with pytest.raises(InputError) as e:
        Vocabulary(["<unk>", "a"], counts)
    assert is_one_sentence(str(e.value))


@pytest.mark.parametrize(
    "options",
    [{"counts": {"a": float("nan")}}, {"counts": {"a": 2**63}}, {"counts": {"a": "3"}}, {"size": "x"}, {"size": 2.5},
     {"min_count": "x"}, {"min_count": float("nan")}],
    ids=str,
)  # fmt: skip
def test_choices_that_are_none(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as e:
        Vocabulary.from_counts(**({"counts": {"a": 2}} | options))
    assert is_one_sentence(str(e.value))


@pytest.mark.parametrize("count", ["nan", "9223372036854775808", "-1", "1.5", "1e3", ""])
def test_a_file_with_a_count_that_is_none(count: str, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(f"<unk>\t0\tunknown\nthe\t{count}\n")
    with pytest.raises(FormatError, match="line 2"):
        Vocabulary.read(tmp_path / "v.txt")
    (tmp_path / "v.txt").write_text("<unk>\t900000000000000000\tunknown\nthe\t900000000000000000\n")
    with pytest.raises(FormatError, match="no text is that long"):
        Vocabulary.read(tmp_path / "v.txt")
