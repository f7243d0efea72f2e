from __future__ import annotations

import lzma
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oracles.plain_tokenizer import plain_tokenize
from sentences import is_one_sentence
from undertow import Tokenizer
from undertow.errors import InputError
from undertow.text.token_types import intern_tokens
from undertow.text.tokenizer import (
    ABBREVIATIONS,
    NUMERIC_ABBREVIATIONS,
    CallableTokenizer,
    as_tokenizer,
    tokenizer_from,
)

OPTIONS = [
    {},
    {"lower": True, "hyphens": "keep"},
    {"numbers": "keep", "sentences": "lines"},
    {"symbols": "split"},
]


def one(text: str, **options: object) -> list[str]:
    (sentence,) = Tokenizer(**options)(text)  # type: ignore[arg-type]
    return sentence


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The cat sat.", "The cat sat ."),
        ("don't it's we're I'm they'll he'd I've", "do n't it 's we 're I 'm they 'll he 'd I 've"),
        ("don’t CAN’T", "do n't CA N'T"),
        ("O'Brien snake_case _word_", "O'Brien snake_case _ word _"),
        ("3.14 1,000 1,000.5 E13.5 p53 24th", "NUM NUM NUM E13.5 p53 24th"),
        ("the 1990's", "the NUM 's"),
        ("spike-timing -- a ---- b", "spike - timing -- a -- b"),
        ("the U.S. and e.g. this", "the U.S. and e.g. this"),
        ("Dr. J. Smith, Fig. 3 and et al. said", "Dr. J. Smith , Fig. NUM and et al. said"),
        ("No. 5, but no. Really", "No. NUM , but no . Really"),
        ("wait.. what....", "wait ... what ..."),
        ("50% of $3 (x)", "NUM % of $ NUM ( x )"),
        ("naïve Ångström ½ H₂O", "naïve Ångström ½ H₂O"),
        ("a\u00a0b\u2028c\u200bd\x00e", "a b c d e"),
        ("١٢٣ 一二三", "NUM 一二三"),
        ("dogs' 'tis", "dogs ' ' tis"),
    ],
)
def test_the_rule_by_example(text: str, tokens: str) -> None:
    assert one(text, sentences="lines") == tokens.split(" ")


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("One. Two! Three? Four", 4),
        ('He said "No." Then left.', 2),
        ("See Fig. 3. It shows.", 2),
        ("in the U.S. Congress met", 1),
        ("Mr. Smith and J. Brown.", 1),
        ("lower. case follows", 1),
        ("Version 2.0 is out", 1),
        ("Ends (here.) Next", 2),
        ("He asked.) (Then) left", 2),
        ("好。好！好", 3),
        ("a\nb\r\nc\rd", 4),
        ("one\n\n\n", 1),
        ("What?! Yes... No", 3),
    ],
)
def test_sentences_by_example(text: str, n: int) -> None:
    assert len(Tokenizer()(text)) == n
    assert plain_tokenize(text) == Tokenizer()(text)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("see https://a.org/x_y?q=1&b=%20#top, now", "see https://a.org/x_y?q=1&b=%20#top , now"),
        ("(www.example.com) HTTP://X.org.", "( www.example.com ) HTTP://X.org ."),
        ("https://en.org/Bank_(river)", "https://en.org/Bank_(river)"),
        ("<http://a.b/c> «http://d.e» http:// x www. y", "< http://a.b/c > « http://d.e » http : / / x www . y"),
        ("#OpenData #30days # 5 #5 C# a#b", "#OpenData #30days # NUM # NUM C # a # b"),
        ("@ada_l: .@bob @ 5 @5pm a@b.com", "@ada_l : . @bob @ NUM @ 5pm a @ b . com"),
        ("👍🏽👩‍👩‍👧‍👦❤️🇫🇷🇩🇪 🏳️‍🌈1️⃣ #️⃣*️⃣", "👍🏽 👩‍👩‍👧‍👦 ❤️ 🇫🇷 🇩🇪 🏳️‍🌈 1️⃣ #️⃣ *️⃣"),
        ("🏴󠁧󠁢󠁥󠁮󠁧󠁿 😀😀 🇫 x", "🏴󠁧󠁢󠁥󠁮󠁧󠁿 😀 😀 🇫 x"),
    ],
)
def test_symbols_stay_whole(text: str, tokens: str) -> None:
    assert one(text, sentences="lines") == tokens.split(" ") == plain_tokenize(text, sentences="lines")[0]


def test_symbols_can_be_taken_apart_and_lowered() -> None:
    assert one("#Ab www.x ❤️", symbols="split") == ["#", "Ab", "www", ".", "x", "❤", "\ufe0f"]
    assert one("#Ab https://X.y", lower=True) == ["#ab", "https://x.y"]


def test_an_address_ends_a_sentence_as_a_word_does() -> None:
    assert len(Tokenizer()("Look at https://a.org/b. Then go.")) == 2


def test_a_description_of_version_1_took_symbols_apart() -> None:
    old = {"rule": "words", "lower": True, "numbers": "keep", "hyphens": "keep", "sentences": "lines", "version": 1}
    assert tokenizer_from(old) == Tokenizer("words", True, "keep", "keep", "lines", "split")
    new = Tokenizer(lower=True)
    assert tokenizer_from(new.describe()) == new


def test_lower_keep_numbers_keep_hyphens() -> None:
    assert one("State-of-the-Art IN 1999 İ ẞ Ⱥ", lower=True, numbers="keep", hyphens="keep") == [
        "state-of-the-art", "in", "1999", "İ", "ß", "ⱥ",
    ]  # fmt: skip


PIECES = st.sampled_from(
    [
        *"aZé9.,-_'’\"”)(!?…。 \n\r\t\u2028\u00ad\u0301٣Ⱥİ𝒳¿",
        "n't",
        "'s",
        "U.S.",
        "Dr.",
        "No. 5",
        "no. x",
        "...",
        "--",
        "1,0",
        *"#@*:/<]wF",
        *("http://", "HTTPS://", "ftp:", "www.", "w.w.w", "#a_", "@b"),
        *("\u200d", "\ufe0f", "\u20e3", "👍", "🏽", "🇫", "🇷", "❤", "\U000e0067", "‐", "«"),
    ]
    + list(ABBREVIATIONS[:5])
    + list(NUMERIC_ABBREVIATIONS[:3])
)
TEXTS = st.one_of(st.lists(PIECES, max_size=30).map("".join), st.text(max_size=40)).filter(
    lambda t: t.encode("utf-8", "ignore").decode() == t
)


@settings(max_examples=400)
@given(TEXTS, st.sampled_from(OPTIONS))
@example("a.b.c. x.", {})
@example("1.'s", {})
@example("x n't", {})
@example("ǅ. A", {"lower": True})
def test_the_compiled_rule_equals_the_plain_one(text: str, options: dict[str, object]) -> None:
    assert Tokenizer(**options)(text) == plain_tokenize(text, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["books.txt.xz", "opinions.txt.xz"])
def test_both_agree_on_real_text(name: str, options: dict[str, object]) -> None:
    text = lzma.decompress((files("undertow") / "data" / name).read_bytes())[:600_000].decode("utf-8", "ignore")
    tokens = Tokenizer(**options)(text)  # type: ignore[arg-type]
    assert tokens == plain_tokenize(text, **options)  # type: ignore[arg-type]
    assert sum(map(len, tokens)) > 100_000


def test_both_agree_on_biomedical_text(data_dir) -> None:
    with lzma.open(data_dir / "text" / "elife.txt.xz") as f:
        text = f.read(3_000_000).decode("utf-8", "ignore")
    assert Tokenizer()(text) == plain_tokenize(text)


def decode(tokenized) -> list[list[str]]:
    types = [t.decode() for t in tokenized.types]
    tokens = [types[i] for i in tokenized.ids]
    ends = np.cumsum(tokenized.lengths)
    return [tokens[e - n : e] for e, n in zip(ends, tokenized.lengths, strict=True)]


@given(TEXTS)
def test_numbered_tokens_are_the_tokens(text: str) -> None:
    numbered = Tokenizer().tokenize(text.encode())
    assert decode(numbered) == Tokenizer()(text)
    assert numbered.counts.tolist() == np.bincount(numbered.ids, minlength=len(numbered.types)).tolist()
    assert len(set(numbered.types)) == len(numbered.types)


def test_interning_grows_its_table() -> None:
    rng = np.random.default_rng(0)
    text = rng.integers(97, 123, 4 * 60_000).astype(np.uint8)
    bounds = np.arange(0, len(text) + 1, 4)
    ids, pool, edges, counts = intern_tokens(text, bounds)
    words = [text.tobytes()[i : i + 4] for i in range(0, len(text), 4)]
    first_seen = {w: None for w in words}
    types = [pool.tobytes()[a:b] for a, b in zip(edges[:-1], edges[1:], strict=True)]
    assert types == list(first_seen) and len(types) > 2 * 8192
    assert [types[i] for i in ids] == words and counts.sum() == len(words)


def test_spaces_rule_takes_tokens_as_they_are() -> None:
    t = Tokenizer(rule="spaces")
    assert t("don't stop .\n\n 3.5\u00a0x \t end\n") == [["don't", "stop", "."], ["3.5\u00a0x", "end"]]
    assert Tokenizer(rule="spaces", lower=True)("ÀB Ⱥ") == [["àb", "ⱥ"]]


def test_spaces_rule_keeps_empty_lines_on_request() -> None:
    lengths = Tokenizer(rule="spaces").tokenize(b"a b\n\n\nc\n", keep_empty=True).lengths
    assert lengths.tolist() == [2, 0, 0, 1]
    assert Tokenizer(rule="spaces").tokenize(b"a b\n\nc", keep_empty=True).lengths.tolist() == [2, 0, 1]


@pytest.mark.parametrize("text", ["", " ", "\n\n\n", "\x00\x00", "\u2028"])
def test_no_tokens(text: str) -> None:
    assert Tokenizer()(text) == []


def test_callables() -> None:
    assert decode(as_tokenizer(str.split).tokenize(b"a b\nc\n\n")) == [["a", "b"], ["c"]]
    pairs = CallableTokenizer(lambda line: [s.split() for s in line.split("|") if s])
    assert decode(pairs.tokenize(b"a b|c\n")) == [["a", "b"], ["c"]]
    assert as_tokenizer("spaces") == Tokenizer(rule="spaces") and as_tokenizer(None) == Tokenizer()


@pytest.mark.parametrize(
    "function", [lambda line: ["a b"], lambda line: [3], lambda line: [["x"], "str"], lambda line: [""]]
)
def test_a_callable_that_returns_nonsense_is_refused(function) -> None:
    with pytest.raises(InputError) as e:
        CallableTokenizer(function).tokenize(b"x\n")
    assert is_one_sentence(str(e.value))


@pytest.mark.parametrize("options", [{"rule": "bpe"}, {"numbers": "drop"}, {"hyphens": ""}, {"symbols": "x"}])
def test_unknown_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InputError) as e:
        Tokenizer(**options)  # type: ignore[arg-type]
    assert is_one_sentence(str(e.value))


def test_half_a_surrogate_is_refused() -> None:
    with pytest.raises(InputError, match="character 1"):
        Tokenizer()("a\ud800")
