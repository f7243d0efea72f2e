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


def _letters(word: str) -> set[str]:
    """What is also read of a word where the tags mark spans."""
    low = word.lower()
    out = set()
    for n in (5, 6):
        if len(word) >= n:
            out |= {f"p{n}=" + word[0:n], f"s{n}=" + word[len(word) - n :]}
    out.add(f"length={len(word)}" if len(word) < 10 else "length=10")
    for i in range(len(low) + 2):
        for n in (3, 4):
            if i + n <= len(low) + 2:
                out.add("run=" + ("^" + low + "$")[i : i + n])
    pieces = [piece for part in low.split("-") for piece in part.split("/") if piece]
    if len(pieces) > 1:
        out |= {"first=" + pieces[0], "last=" + pieces[-1]} | {"piece=" + piece for piece in pieces}
    if any(piece in ("alpha", "beta", "gamma", "kappa") for piece in pieces):
        out.add("greek")
    if word and set(word) <= set("IVX"):
        out.add("roman")
    if any(c in "0123456789" for c in word):
        out.add("digits=" + "".join("0" if c in "0123456789" else c for c in low))
    if any(c.isupper() for c in word) and not any(c.islower() for c in word):
        out.add("capitals")
    return out


def naive_word_features(tokens: list[str], at: int, window: int, letters: bool = False) -> set[str]:
    word = tokens[at]
    out = {"bias", "w=" + word, "l=" + word.lower(), "shape=" + _shape(word), "short=" + _short(word)}
    low = word.lower()
    if letters:
        out |= _letters(word)
    if window:
        before = tokens[at - 1] if at > 0 else ""
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        out |= {
            f"-1,0:l={before.lower()} {low}",
            f"0,1:l={low} {after.lower()}",
            f"-1,1:l={before.lower()} {after.lower()}",
            f"-1,0:short={_short(before)} {_short(word)}",
            f"0,1:short={_short(word)} {_short(after)}",
            f"-1,0,1:short={_short(before)} {_short(word)} {_short(after)}",
        }
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
    for j in range(at - window, at + window + 1):
        if j == at:
            continue
        if j < 0 or j >= len(tokens):
            out.add(f"{j - at}:outside")
        else:
            near = tokens[j]
            out |= {f"{j - at}:l={near.lower()}", f"{j - at}:short={_short(near)}", f"{j - at}:s3={near[-3:]}"}
    return out
