"""The words rule written for reading: a string of class letters beside the text, and regular expressions on it.

Slow and obvious; `undertow.text.tokenizer_kernel.words_rule` must give the same tokens on every input.
"""

from __future__ import annotations

import re
import unicodedata

from undertow.text.tokenizer import ABBREVIATIONS, NUMERIC_ABBREVIATIONS


def char_class(c: str) -> str:
    """S space, L letter, D digit, ' apostrophe, or the character itself where the rule names it, else O."""
    category = unicodedata.category(c)
    if c in "\n\r":
        return "\n"
    if category in ("Cc", "Zs", "Zl", "Zp") or c in "\u200b\ufeff":
        return "S"
    if category == "Nd":
        return "D"
    if category[0] in "LMN" or category == "Cf":
        return "L"
    if c in "'’":
        return "'"
    if c in ".,_-":
        return c
    if c in "\u2010\u2011":
        return "="
    return "O"


def can_start(c: str) -> bool:
    return unicodedata.category(c) in ("Lu", "Lt", "Lo", "Nd") or c in "\"'“‘«([{¿¡"


def lowered(c: str) -> str:
    return c.lower() if len(c.lower()) == 1 else c


def address(text: str, i: int) -> str:
    """The web address that begins at i, or nothing."""
    found = re.compile(r"(?i:https?://|ftp://|www\.)", re.ASCII).match(text, i)
    if not found or char_class(text[found.end() : found.end() + 1] or " ") not in "LD":
        return ""
    end = found.end()
    while end < len(text) and char_class(text[end]) not in "S\n" and text[end] not in '<>"':
        if not text[end].isascii() and char_class(text[end]) not in "LD":
            break
        end += 1
    part = text[i:end]
    while part[-1] in ".,;:!?']}" or (part[-1] == ")" and "(" not in part):
        part = part[:-1]
    return part


def tag(text: str, i: int) -> str:
    """The hashtag or mention that begins at i, or nothing."""
    end = i + 1
    while end < len(text) and char_class(text[end]) in "LD_":
        end += 1
    name = text[i + 1 : end]
    if "L" not in map(char_class, name) or (text[i] == "@" and char_class(name[0]) == "D"):
        return ""
    return text[i:end]


REGION = "[\U0001f1e6-\U0001f1ff]"
FOLLOWS = "[\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"


def emoji(text: str, i: int) -> str:
    """The emoji sequence of more than one code point that begins at i, or nothing."""
    if re.match(REGION, text[i]):
        pair = re.compile(f"{REGION}{{2}}").match(text, i)
        return pair.group() if pair else ""
    end = i + 1
    while end < len(text):
        if re.match(FOLLOWS, text[end]):
            end += 1
        elif text[end] == "\u200d" and is_symbol(text[end + 1 : end + 2]):
            end += 2
        else:
            break
    return text[i:end] if end > i + 1 else ""


def is_symbol(c: str) -> bool:
    """Whether this is a character beyond ASCII that is neither a letter, a digit, an apostrophe nor white space."""
    return c != "" and not c.isascii() and char_class(c) in "O="


CONTRACTION = re.compile(r"(?i)^(.+?)(n't|'s|'m|'d|'re|'ve|'ll)$", re.DOTALL | re.ASCII)


def plain_tokenize(
    text: str,
    *,
    lower: bool = False,
    numbers: str = "class",
    hyphens: str = "split",
    sentences: str = "split",
    symbols: str = "whole",
) -> list[list[str]]:
    connectors = r"['_]" if hyphens == "split" else r"['_=\-]"
    word = re.compile(rf"[LD]+(?:(?:{connectors}|(?<=D)[.,](?=D))[LD]+)*")
    acronym = re.compile(r"(?:L\.){2,}")
    classes = "".join(map(char_class, text))
    done: list[list[str]] = []
    current: list[str] = []
    state = "inside"  # or "ended" (a terminal was seen) or "spaced" (white space after it)
    i = 0
    word_end = -1

    def close() -> None:
        nonlocal current
        if current:
            done.append(current)
        current = []

    while i < len(text):
        k, c = classes[i], text[i]
        if k == "\n":
            close()
            state = "inside"
            i += 1
            continue
        if k == "S":
            if state == "ended":
                state = "spaced"
            i += 1
            continue
        if state != "inside" and c not in ".!?…。！？" and not (state == "ended" and c in "\"'’”»)]}"):
            if state == "spaced" and can_start(c) and sentences == "split":
                close()
            state = "inside"
        whole = ""
        if symbols == "whole":
            whole = address(text, i)
            if c in "#@" and i != word_end:
                whole = tag(text, i)
            elif c == "*" or is_symbol(c):
                whole = emoji(text, i)
        if whole:
            current.append("".join(map(lowered, whole)) if lower else whole)
            i += len(whole)
            if c != "*" and not is_symbol(c):
                word_end = i
        elif m := acronym.match(classes, i):
            token = text[i : m.end()]
            current.append("".join(map(lowered, token)) if lower else token)
            word_end = i = m.end()
        elif m := word.match(classes, i):
            surface = text[i : m.end()].replace("’", "'")
            token = "".join(map(lowered, surface)) if lower else surface
            has_letter = "L" in m.group()
            word_end = i = m.end()
            folded = token.lower() if token.isascii() else ""
            initial = len(surface) == 1 and unicodedata.category(surface) in ("Lu", "Lt")
            numeric = re.compile(r"\.[ \t]+").match(text, i)
            before_number = numeric and numeric.end() < len(text) and classes[numeric.end()] == "D"
            if text[i : i + 1] == "." and (
                initial or folded in ABBREVIATIONS or (folded in NUMERIC_ABBREVIATIONS and before_number)
            ):
                current.append(token + ".")
                i += 1
                word_end = i
            elif not has_letter:
                current.append("NUM" if numbers == "class" else token)
            elif cut := CONTRACTION.match(token):
                head, tail = cut.groups()
                number = "L" not in "".join(map(char_class, head))
                current += ["NUM" if number and numbers == "class" else head, tail]
            else:
                current.append(token)
        elif k in ".-":
            run = re.compile(r"\.+|-+").match(text, i)
            assert run
            current.append(run.group() if len(run.group()) == 1 else "..." if k == "." else "--")
            i = run.end()
            if k == ".":
                state = "ended"
        else:
            current.append("'" if k == "'" else c)
            i += 1
            if c in "!?…":
                state = "ended"
            elif c in "。！？":
                state = "spaced"
    close()
    return done
