"""The compiled inner loops of the tokenizer: bytes in, tokens as spans of normalized bytes out.

`tests/oracles/plain_tokenizer.py` is the same rule written for reading; the two agree on every input.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

# character classes (low three bits of the table) and flags
SPACE, LETTER, DIGIT, APOSTROPHE, OTHER = 0, 1, 2, 3, 4
UPPER, STARTER, CLOSER, TERMINAL, WIDE_TERMINAL = 8, 16, 32, 64, 128
CLASS_MASK = 7

OPENERS = "\"'“‘«([{¿¡"
CLOSERS = "\"'’”»)]}"
TERMINALS = ".!?…"
WIDE_TERMINALS = "。！？"  # these end a sentence with no space after them

# what an ASCII character may begin: a web address, a hashtag or mention, a key with an asterisk
ADDRESS, NAME, KEYPAD = 1, 2, 3
SYMBOL_STARTS = np.zeros(128, dtype=np.uint8)
SYMBOL_STARTS[[ord(c) for c in "hHwWfF"]] = ADDRESS
SYMBOL_STARTS[[ord("#"), ord("@")]] = NAME
SYMBOL_STARTS[ord("*")] = KEYPAD
FIRST_FOLLOWER = 0xE2  # least first byte of what continues an emoji sequence


@cache
def character_tables() -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Class and flags of every code point, and its lower case where that is a single code point."""
    size = sys.maxunicode + 1
    classes = {"L": LETTER, "M": LETTER, "N": LETTER, "P": OTHER, "S": OTHER, "Z": SPACE}
    details = {"Nd": DIGIT, "Cc": SPACE, "Cf": LETTER, "Co": OTHER, "Cs": OTHER, "Cn": OTHER}
    flags = {"Lu": UPPER | STARTER, "Lt": UPPER | STARTER, "Lo": STARTER, "Nd": STARTER}
    code = {
        c: details.get(c, classes.get(c[0], OTHER)) | flags.get(c, 0)
        for c in {unicodedata.category(chr(i)) for i in range(size)}
    }
    table = np.fromiter((code[unicodedata.category(chr(i))] for i in range(size)), dtype=np.uint8, count=size)
    table[[0xFEFF, 0x200B]] = SPACE  # byte-order mark and zero-width space separate; joiners do not
    for c in "'’":
        table[ord(c)] = APOSTROPHE
    for chars, flag in (
        (OPENERS, STARTER),
        (CLOSERS, CLOSER),
        (TERMINALS, TERMINAL),
        (WIDE_TERMINALS, WIDE_TERMINAL),
    ):
        for c in chars:
            table[ord(c)] |= flag
    lower = np.arange(size, dtype=np.int32)
    for i in range(size):
        c = chr(i).lower()
        if len(c) == 1:
            lower[i] = ord(c)
    return table, lower


def pack_words(words: tuple[str, ...]) -> NDArray[np.uint64]:
    """Short ASCII words as integers, so that the compiled loop can look them up."""
    return np.sort(np.array([int.from_bytes(w.encode("ascii"), "big") for w in words], dtype=np.uint64))


@njit(cache=True, nogil=True)
def _decode(data: Any, i: Any) -> Any:
    """Code point at byte i of valid UTF-8, and its length in bytes."""
    b = np.int32(data[i])
    if b < 0x80:
        return b, 1
    if b < 0xE0:
        return ((b & 0x1F) << 6) | (data[i + 1] & 0x3F), 2
    if b < 0xF0:
        return ((b & 0x0F) << 12) | (np.int32(data[i + 1] & 0x3F) << 6) | (data[i + 2] & 0x3F), 3
    return (
        ((b & 0x07) << 18)
        | (np.int32(data[i + 1] & 0x3F) << 12)
        | (np.int32(data[i + 2] & 0x3F) << 6)
        | (data[i + 3] & 0x3F)
    ), 4


@njit(cache=True, nogil=True)
def _put(out: Any, at: Any, c: Any) -> Any:
    """Write a code point as UTF-8; returns the position after it."""
    if c < 0x80:
        out[at] = c
        return at + 1
    if c < 0x800:
        out[at] = 0xC0 | (c >> 6)
        out[at + 1] = 0x80 | (c & 0x3F)
        return at + 2
    if c < 0x10000:
        out[at] = 0xE0 | (c >> 12)
        out[at + 1] = 0x80 | ((c >> 6) & 0x3F)
        out[at + 2] = 0x80 | (c & 0x3F)
        return at + 3
    out[at] = 0xF0 | (c >> 18)
    out[at + 1] = 0x80 | ((c >> 12) & 0x3F)
    out[at + 2] = 0x80 | ((c >> 6) & 0x3F)
    out[at + 3] = 0x80 | (c & 0x3F)
    return at + 4


@njit(cache=True, nogil=True)
def _packed_lower(out: Any, start: Any, stop: Any) -> Any:
    """Up to eight ASCII letters, lowered, as one integer; 0 for anything else."""
    if stop - start > 8:
        return np.uint64(0)
    value = np.uint64(0)
    for i in range(start, stop):
        b = out[i]
        if 65 <= b <= 90:
            b = b + 32
        if b < 97 or b > 122:
            return np.uint64(0)
        value = (value << np.uint64(8)) | np.uint64(b)
    return value


@njit(cache=True, nogil=True)
def _contains(sorted_values: Any, value: Any) -> Any:
    k = np.searchsorted(sorted_values, value)
    return value != 0 and k < len(sorted_values) and sorted_values[k] == value


@njit(cache=True, nogil=True)
def _contraction(out: Any, start: Any, stop: Any) -> Any:
    """Bytes and letters of the contraction a word ends in (n't, 's, 'm, 'd, 're, 've, 'll), or 0."""
    n = stop - start
    last = out[stop - 1] | 32
    if n > 2 and out[stop - 2] == 39 and last in (115, 109, 100):  # 's 'm 'd
        return 2, 1
    if n > 3:
        before = out[stop - 2] | 32
        if before == 39 | 32 and out[stop - 2] == 39 and last == 116 and (out[stop - 3] | 32) == 110:  # n't
            return 3, 2
        if out[stop - 3] == 39 and (
            (before == 114 and last == 101) or (before == 118 and last == 101) or (before == 108 and last == 108)
        ):
            return 3, 2
    return 0, 0


@njit(cache=True, nogil=True)
def _is(data: Any, i: Any, letter: Any) -> Any:
    """Whether byte i is this ASCII letter in either case."""
    return i < len(data) and (data[i] | 32) == letter


@njit(cache=True, nogil=True)
def _url_end(data: Any, i: Any, table: Any) -> Any:
    """The position after the web address that begins at i, or i if there is none.

    It begins with http://, https://, ftp:// or www. and a letter or digit, and ends before white space, any of <>", or
    a character beyond ASCII that is no letter; punctuation at its end is not part of it, nor a bracket that it does not
    open.
    """
    n = len(data)
    j = i
    if _is(data, i, 119) and _is(data, i + 1, 119) and _is(data, i + 2, 119) and i + 3 < n and data[i + 3] == 46:
        j = i + 4
    else:
        if _is(data, i, 104) and _is(data, i + 1, 116) and _is(data, i + 2, 116) and _is(data, i + 3, 112):
            j = i + 5 if _is(data, i + 4, 115) else i + 4
        elif _is(data, i, 102) and _is(data, i + 1, 116) and _is(data, i + 2, 112):
            j = i + 3
        if j == i or j + 2 >= n or data[j] != 58 or data[j + 1] != 47 or data[j + 2] != 47:
            return i
        j += 3
    if j >= n:
        return i
    c, size = _decode(data, j)
    if (table[c] & CLASS_MASK) not in (LETTER, DIGIT):
        return i
    opened = False
    end = j
    while j < n:
        c, size = _decode(data, j)
        kind = table[c] & CLASS_MASK
        if kind == SPACE or (c > 127 and kind not in (LETTER, DIGIT)) or c in (60, 62, 34):
            break
        opened = opened or c == 40
        j += size
        # after the last character that may end an address: not one of . , ; : ! ? ' ] }
        if c not in (46, 44, 59, 58, 33, 63, 39, 93, 125) and (c != 41 or opened):
            end = j
    return end


@njit(cache=True, nogil=True)
def _name_end(data: Any, i: Any, table: Any) -> Any:
    """The position after the hashtag or mention that begins at i, or i if there is none.

    Letters, digits and underscores follow, with a letter among them, and no digit directly after @.
    """
    n = len(data)
    j = i + 1
    letters = 0
    while j < n:
        c, size = _decode(data, j)
        kind = table[c] & CLASS_MASK
        if kind not in (LETTER, DIGIT) and c != 95:
            break
        if kind == DIGIT and j == i + 1 and data[i] == 64:
            break
        letters += kind == LETTER
        j += size
    return j if letters > 0 else i


@njit(cache=True, nogil=True)
def _emoji_end(data: Any, c: Any, start: Any, i: Any, table: Any) -> Any:
    """The position after the emoji sequence whose first code point c reaches from start to i; start if c stands alone.

    Two regional indicators are a flag; else variation selectors, skin tones, tags and the keycap follow, and joiners
    with another symbol.
    """
    n = len(data)
    first = i
    if 0x1F1E6 <= c <= 0x1F1FF:
        follower, size = _decode(data, i)
        return i + size if 0x1F1E6 <= follower <= 0x1F1FF else start
    while i < n:
        follower, size = _decode(data, i)
        if follower in (0xFE0E, 0xFE0F, 0x20E3) or 0x1F3FB <= follower <= 0x1F3FF or 0xE0020 <= follower <= 0xE007F:
            i += size
            continue
        if follower != 0x200D or i + size >= n:
            break
        joined, more = _decode(data, i + size)
        if joined < 128 or (table[joined] & CLASS_MASK) != OTHER:
            break
        i += size + more
    return start if i == first else i


@njit(cache=True, nogil=True)
def _copy(data: Any, i: Any, stop: Any, out: Any, at: Any, lower: Any, lower_table: Any) -> Any:
    """Write the code points from i to stop, lowered if asked; returns the position after them."""
    while i < stop:
        c, size = _decode(data, i)
        at = _put(out, at, lower_table[c] if lower else c)
        i += size
    return at


@njit(cache=True, nogil=True)
def words_rule(
    data: Any,
    table: Any,
    lower_table: Any,
    abbreviations: Any,
    numeric_abbreviations: Any,
    lower: Any,
    number_class: Any,
    keep_hyphens: Any,
    split_sentences: Any,
    whole_symbols: Any,
) -> Any:
    """Apply the word rule (see `tokenizer`) to valid UTF-8.

    Returns (normalized bytes, token bounds of length n_tokens + 1, number of tokens in each sentence).
    """
    n = len(data)
    out = np.empty(3 * n + 8, dtype=np.uint8)  # a digit may become "NUM", a letter's lower case may be longer
    bounds = np.empty(n + 2, dtype=np.int64)
    sentences = np.empty(n + 1, dtype=np.int64)
    bounds[0] = 0
    n_tokens = 0
    n_sentences = 0
    in_sentence = 0
    at = 0  # write position in out
    i = 0
    word_end = -1  # where the last word ended: # and @ directly after it begin no tag
    pending = 0  # 0: no; 1: a sentence may have ended, no space yet; 2: a space was seen
    while i < n:
        c, size = _decode(data, i)
        flags = table[c]
        kind = flags & CLASS_MASK
        if kind == SPACE:
            if c in (10, 13):
                if in_sentence > 0:
                    sentences[n_sentences] = in_sentence
                    n_sentences += 1
                    in_sentence = 0
                pending = 0
            elif pending == 1:
                pending = 2
            i += size
            continue
        if pending != 0:
            stays = (flags & (TERMINAL | WIDE_TERMINAL)) != 0 or (pending == 1 and (flags & CLOSER) != 0)
            if not stays:
                if pending == 2 and (flags & STARTER) != 0 and split_sentences and in_sentence > 0:
                    sentences[n_sentences] = in_sentence
                    n_sentences += 1
                    in_sentence = 0
                pending = 0
        start = at
        symbol_end = i
        if whole_symbols:
            # cheap looks at the next byte first: nearly every token is none of these
            if c < 128:
                what = SYMBOL_STARTS[c]
                if what != 0 and i + 1 < n:
                    if what == ADDRESS:
                        if (data[i + 1] | 32) in (116, 119):  # ht, ft, ww
                            symbol_end = _url_end(data, i, table)
                    elif what == KEYPAD:
                        if data[i + 1] >= FIRST_FOLLOWER:
                            symbol_end = _emoji_end(data, c, i, i + 1, table)
                    elif i != word_end:
                        symbol_end = _name_end(data, i, table)
            elif kind == OTHER and i + size < n and data[i + size] >= FIRST_FOLLOWER:
                symbol_end = _emoji_end(data, c, i, i + size, table)
        if symbol_end > i:
            at = _copy(data, i, symbol_end, out, at, lower, lower_table)
            i = symbol_end
            if c < 128 and c != 42:
                word_end = i
        elif kind in (LETTER, DIGIT):
            # an acronym: two or more single letters, each with its full stop
            j = i
            pairs = 0
            acronym_at = at
            while j < n:
                cj, sj = _decode(data, j)
                if (table[cj] & CLASS_MASK) != LETTER or j + sj >= n or data[j + sj] != 46:
                    break
                if lower:
                    cj = lower_table[cj]
                acronym_at = _put(out, acronym_at, cj)
                out[acronym_at] = 46
                acronym_at += 1
                j += sj + 1
                pairs += 1
            if pairs >= 2:
                i = j
                at = acronym_at
            else:
                letters = 0
                characters = 0
                first_upper = (flags & UPPER) != 0
                previous_digit = False
                while i < n:
                    c, size = _decode(data, i)
                    kind = table[c] & CLASS_MASK
                    if kind in (LETTER, DIGIT):
                        previous_digit = kind == DIGIT
                        if kind == LETTER:
                            letters += 1
                        if lower:
                            c = lower_table[c]
                    else:
                        # a connector stays inside the word when a letter or digit follows it
                        if i + size >= n:
                            break
                        c_next, _ = _decode(data, i + size)
                        kind_next = table[c_next] & CLASS_MASK
                        if kind_next not in (LETTER, DIGIT):
                            break
                        if kind == APOSTROPHE:
                            c = 39
                        elif c in (46, 44):
                            if not (previous_digit and kind_next == DIGIT):
                                break
                        elif c != 95 and not (keep_hyphens and c in (45, 0x2010, 0x2011)):
                            break
                        previous_digit = False
                    at = _put(out, at, c)
                    characters += 1
                    i += size
                stop_follows = i < n and data[i] == 46
                kept_stop = False
                if stop_follows:
                    packed = _packed_lower(out, start, at)
                    if (characters == 1 and first_upper) or _contains(abbreviations, packed):
                        kept_stop = True
                    elif _contains(numeric_abbreviations, packed):
                        j = i + 1
                        while j < n and (data[j] == 32 or data[j] == 9):
                            j += 1
                        if j < n and j > i + 1:
                            c_next, _ = _decode(data, j)
                            kept_stop = (table[c_next] & CLASS_MASK) == DIGIT
                if kept_stop:
                    out[at] = 46
                    at += 1
                    i += 1
                elif letters == 0:
                    if number_class:
                        at = start
                        out[at] = 78
                        out[at + 1] = 85
                        out[at + 2] = 77
                        at += 3
                else:
                    tail, tail_letters = _contraction(out, start, at)
                    if tail > 0:
                        t0 = out[at - tail]
                        t1 = out[at - tail + 1]
                        t2 = out[at - 1]
                        at -= tail
                        if letters == tail_letters and number_class:
                            at = start
                            out[at] = 78
                            out[at + 1] = 85
                            out[at + 2] = 77
                            at += 3
                        n_tokens += 1
                        in_sentence += 1
                        bounds[n_tokens] = at
                        out[at] = t0
                        out[at + 1] = t1
                        out[at + tail - 1] = t2
                        at += tail
            word_end = i
        else:
            i += size
            if c in (46, 45):  # runs of full stops and hyphens are one token
                run = 1
                while i < n and data[i] == c:
                    run += 1
                    i += 1
                copies = run if run == 1 else (3 if c == 46 else 2)
                for _ in range(copies):
                    out[at] = c
                    at += 1
            else:
                at = _put(out, at, 39 if kind == APOSTROPHE else c)
            if (flags & TERMINAL) != 0:
                pending = 1
            elif (flags & WIDE_TERMINAL) != 0:
                pending = 2
        n_tokens += 1
        in_sentence += 1
        bounds[n_tokens] = at
    if in_sentence > 0:
        sentences[n_sentences] = in_sentence
        n_sentences += 1
    return out[:at], bounds[: n_tokens + 1], sentences[:n_sentences]


@njit(cache=True, nogil=True)
def spaces_rule(data: Any, lower_table: Any, lower: Any, keep_empty: Any) -> Any:
    """Tokens are what stands between white space (bytes ≤ 32); a line is a sentence. Returns as `words_rule`."""
    n = len(data)
    out = np.empty(2 * n + 8, dtype=np.uint8)
    bounds = np.empty(n // 2 + 2, dtype=np.int64)
    sentences = np.empty(n + 1, dtype=np.int64)
    bounds[0] = 0
    n_tokens = 0
    n_sentences = 0
    in_sentence = 0
    at = 0
    start = 0
    i = 0
    while i <= n:
        b = data[i] if i < n else np.uint8(10)
        if b <= 32:
            if at > start:
                n_tokens += 1
                in_sentence += 1
                bounds[n_tokens] = at
                start = at
            if b in (10, 13):
                last = i == n and (n == 0 or data[n - 1] in (10, 13))  # the line end we added after the data
                if in_sentence > 0 or (keep_empty and not last):
                    sentences[n_sentences] = in_sentence
                    n_sentences += 1
                in_sentence = 0
            i += 1
        elif lower:
            c, size = _decode(data, i)
            at = _put(out, at, lower_table[c])
            i += size
        else:
            out[at] = b
            at += 1
            i += 1
    return out[:at], bounds[: n_tokens + 1], sentences[:n_sentences]
