"""The spelling features of one token, written out one by one."""

from __future__ import annotations

import itertools


def _shape(word: str) -> str:
    out = ""
    for c in word:
        if c.isupper():
            out += "X"
        elif c.isalpha():
            out += "x"
        elif c.isdigit():
            out += "d"
        else:
            out += c
    return out


def _short(word: str) -> str:
    return "".join(c for c, _ in itertools.groupby(_shape(word)))


def naive_word_features(tokens: list[str], i: int, window: int) -> set[str]:
    word = tokens[i]
    out = {"bias", "w=" + word, "l=" + word.lower(), "shape=" + _shape(word), "short=" + _short(word)}
    for n in (1, 2, 3, 4):
        if len(word) >= n:
            out.add(f"p{n}=" + word[0:n])
            out.add(f"s{n}=" + word[len(word) - n :])
    if any(c in "0123456789" for c in word):
        out.add("digit")
    if "-" in word:
        out.add("hyphen")
    if word[0].isupper():
        out.add("capital")
    if any(c.isupper() for c in word[1:]):
        out.add("capital inside")
    if not any(c.isalpha() for c in word):
        out.add("no letter")
    for j in range(i - window, i + window + 1):
        if j == i:
            continue
        if j < 0 or j >= len(tokens):
            out.add(f"{j - i}:outside")
        else:
            near = tokens[j]
            out |= {f"{j - i}:l={near.lower()}", f"{j - i}:short={_short(near)}", f"{j - i}:s3={near[-3:]}"}
    return out
